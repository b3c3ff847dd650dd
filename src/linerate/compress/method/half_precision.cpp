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
    if (input.residual.empty())
      narrow_scaled(input.gradient, 1.0f / static_cast<float>(input.ranks), half_, payload.data());
    else
      narrow_scaled(input.gradient, input.residual, input.ranks, half_limit(half_), half_,
                    payload.data());
    return bytes_;
  }

  void decode(int, const Arrived& arrived, std::span<float> mean) override {
    check_sum(arrived, bytes_, name_of(half_));
    widen(arrived.payloads[0].data(), half_, mean);
  }

 private:
  DType half_;
  std::size_t bytes_;
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
