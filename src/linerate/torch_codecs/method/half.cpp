// fp16 and bf16 over tensors (compress/method/half_precision.hpp).
#include "linerate/compress/method/half_precision.hpp"
#include "linerate/torch_codecs/method/methods.hpp"
#include "linerate/torch_codecs/words.hpp"

namespace linerate::torch_codecs {
namespace {

class HalfTensors : public TensorCodec {
 public:
  HalfTensors(const Making& making, DType half)
      : TensorCodec(making), half_(half), type_(half == DType::f16 ? at::kHalf : at::kBFloat16) {}

 private:
  TensorPayload do_encode(int, const TensorInput& input) override {
    const float share = 1.0f / static_cast<float>(input.ranks);
    if (!input.residual.defined()) return {bytes_of((input.gradient * share).to(type_)), {}};
    const at::Tensor v = corrected(input);
    const float limit = compress::half_limit(half_);
    const at::Tensor sent = (v.clamp(-limit, limit) * share).to(type_);
    keep_residual(input, v - sent.to(at::kFloat) * static_cast<float>(input.ranks));
    return {bytes_of(sent), {}};
  }

  void do_decode(int, const TensorArrived& arrived, const at::Tensor& mean) override {
    check_sum(arrived, 2 * elements(), name_of(half_));
    mean.copy_(arrived.payloads[0].view(type_));
  }

  DType half_;
  at::ScalarType type_;
};

}  // namespace

Made make_fp16(const Making& making, doc::OptionReader&) {
  return std::make_unique<HalfTensors>(making, DType::f16);
}
Made make_bf16(const Making& making, doc::OptionReader&) {
  return std::make_unique<HalfTensors>(making, DType::bf16);
}

}  // namespace linerate::torch_codecs
