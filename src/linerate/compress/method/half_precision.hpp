// The two 16-bit floats as a compressor: fp16.cpp and bf16.cpp are its lines.
#pragma once

#include <memory>

#include "linerate/compress/codec.hpp"
#include "linerate/compress/kernel/half.hpp"

namespace linerate::compress {

/// Payload: a 16-bit float an element, 2n bytes, of v / ranks. v is divided before the cast,
/// because a sum of undivided gradients would overflow. Ranks add the payloads (all-reduce), and
/// the sum is the mean. Without a residual, v beyond the range of the type becomes an infinity,
/// which the mean shows. With a residual v is cut off at half_limit(), and the rest is sent in
/// later steps. Under a loss scale the codec then says that it overflowed.
std::unique_ptr<const Compressor> half_precision(DType half);

/// The largest v, on so many ranks, that the type holds. v / ranks, each partial sum of up to
/// `ranks` of them and the mean are rounded by 2^-11 at most. With two ranks none reaches infinity.
/// Example: 8 ranks in f16 may add 8 * 2^-11 of rounding, so the limit is 65,504 less .4 %, about
/// 65,248.
constexpr float half_limit(DType half, int ranks) {
  if (half != DType::f16) return 0x1p127f;
  const float rounded = ranks <= 2 ? 0 : static_cast<float>(ranks) * 0x1p-11f;
  return 65504 * (rounded < 0.5f ? 1 - rounded : 0.5f);
}

template <class Ops>
class HalfCodec final : public Ops::Codec {
 public:
  HalfCodec(const typename Ops::Making& making, DType half) : Ops::Codec(making), half_(half) {}

  void encode_all(int, const typename Ops::Sending& tensors) override {
    scale_ = tensors.loss_scale().value_or(1);
    const auto ranks = static_cast<float>(tensors.ranks());
    is_beyond_ = typename Ops::Flag();
    if (!tensors.keeps_residual()) return Ops::narrow(tensors, half_, scale_ / ranks);
    const float limit = half_limit(half_, tensors.ranks()) / scale_;
    const auto is_beyond =
        Ops::narrow_and_keep(tensors, half_, {scale_ / ranks, ranks / scale_, limit});
    if (tensors.loss_scale()) is_beyond_ = is_beyond;
  }
  void decode_all(int, const typename Ops::Arriving& tensors) override {
    Ops::widen(tensors, half_, 1 / scale_);
  }
  typename Ops::Flag is_beyond() const override { return is_beyond_; }

 private:
  DType half_;
  float scale_ = 1;  // of the step at hand
  typename Ops::Flag is_beyond_ = {};
};

}  // namespace linerate::compress
