#include "linerate/compress/method/half_precision.hpp"

#include "linerate/compress/kernel/half.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {
namespace {

class HalfCodec : public Codec {
 public:
  HalfCodec(DType half, const Shape& shape) : half_(half), bytes_(to_index(2 * shape.elements)) {}

  std::size_t encode(int, const Input& input, std::span<std::byte> payload) override {
    scale_ = input.loss_scale.value_or(1);
    const auto ranks = static_cast<float>(input.ranks);
    if (input.residual.empty()) {
      narrow_scaled(input.gradient, scale_ / ranks, half_, payload.data());
      return bytes_;
    }
    const float limit = half_limit(half_, input.ranks) / scale_;
    const float largest =
        narrow_scaled(input.gradient, input.residual, {scale_ / ranks, ranks / scale_, limit},
                      half_, payload.data());
    overflowed_ = input.loss_scale && largest > limit;
    return bytes_;
  }
  bool overflowed() const override { return overflowed_; }

  void decode(int, const Arrived& arrived, std::span<float> mean) override {
    check_sum(arrived, bytes_, name_of(half_));
    widen(arrived.payloads[0].data(), half_, mean);
    if (scale_ == 1) return;
    for (float& value : mean) value *= 1 / scale_;
  }

 private:
  DType half_;
  std::size_t bytes_;
  float scale_ = 1;  // of the step at hand
  bool overflowed_ = false;
};

class HalfPrecision : public Compressor {
 public:
  explicit HalfPrecision(DType half) : half_(half) {}
  std::vector<Round> rounds(const Shape& shape) const override {
    return one_round_if_smaller(shape, {Combine::sum, half_, 2 * shape.elements});
  }
  std::unique_ptr<Codec> codec(const Shape& shape) const override {
    return std::make_unique<HalfCodec>(half_, shape);
  }
  Residual residual() const override { return Residual::optional; }

 private:
  DType half_;
};

}  // namespace

std::unique_ptr<const Compressor> half_precision(DType half) {
  return std::make_unique<HalfPrecision>(half);
}

}  // namespace linerate::compress
