// A tensor that travels dense: nothing is encoded, what arrives is the mean, and a momentum of it
// is kept, the same on every rank.
#pragma once

#include "linerate/core/error.hpp"
#include "linerate/torch_codecs/tensor_codec.hpp"

namespace linerate::torch_codecs {

class DenseMomentum : public TensorCodec {
 public:
  explicit DenseMomentum(const Making& making)
      : TensorCodec(making), momentum_(at::zeros({elements()}, options(at::kFloat))) {}

  std::vector<compress::StateField> state() override {
    return {state_field("momentum", compress::Passing::same, momentum_)};
  }

 protected:
  KeptTensor momentum_;

 private:
  TensorPayload do_encode(int, const TensorInput&) final {
    throw InternalError("a tensor that travels dense is not encoded");
  }
};

}  // namespace linerate::torch_codecs
