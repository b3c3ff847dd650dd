#include "linerate/compress/method/half_precision.hpp"

#include "linerate/compress/method/built_in.hpp"
#include "linerate/compress/payload.hpp"

namespace linerate::compress {
namespace {

class HalfPrecision : public BuiltIn {
 public:
  explicit HalfPrecision(DType half) : half_(half) {}
  std::vector<Round> rounds(const Shape& shape) const override {
    return one_round_if_smaller(shape, {Combine::sum, half_, 2 * shape.elements});
  }
  CodecChoice choice(const Shape&) const override { return CodecWith<HalfCodec, DType>{{half_}}; }
  Residual residual() const override { return Residual::optional; }

 private:
  DType half_;
};

}  // namespace

std::unique_ptr<const Compressor> half_precision(DType half) {
  return std::make_unique<HalfPrecision>(half);
}

}  // namespace linerate::compress
