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
    scale_ = input.loss_scale.value_or(1);
    const auto ranks = static_cast<float>(input.ranks);
    const float share = scale_ / ranks;
    if (!input.residual.defined()) return {bytes_of((input.gradient * share).to(type_)), {}};
    const at::Tensor v = corrected(input);
    const float limit = compress::half_limit(half_, input.ranks) / scale_;
    overflowed_ = input.loss_scale ? v.abs().gt(limit).any() : at::Tensor();
    const at::Tensor sent = (v.clamp(-limit, limit) * share).to(type_);
    keep_residual(input, v - sent.to(at::kFloat) * (ranks / scale_));
    return {bytes_of(sent), {}};
  }

  void do_decode(int, const TensorArrived& arrived, const at::Tensor& mean) override {
    check_sum(arrived, 2 * elements(), name_of(half_));
    mean.copy_(arrived.payloads[0].view(type_));
    if (scale_ != 1) mean.mul_(1 / scale_);
  }

  at::Tensor overflowed_there() const override { return overflowed_; }

  DType half_;
  at::ScalarType type_;
  float scale_ = 1;  // of the step at hand
  at::Tensor overflowed_;
};

}  // namespace

Made make_fp16(const Making& making, doc::OptionReader&) {
  return std::make_unique<HalfTensors>(making, DType::f16);
}
Made make_bf16(const Making& making, doc::OptionReader&) {
  return std::make_unique<HalfTensors>(making, DType::bf16);
}

}  // namespace linerate::torch_codecs
