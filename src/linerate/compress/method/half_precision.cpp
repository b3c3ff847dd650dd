#include "linerate/compress/method/half_precision.hpp"

#include "linerate/compress/host_ops.hpp"
#include "linerate/compress/payload.hpp"

namespace linerate::compress {
namespace {

class HalfPrecision : public Compressor {
 public:
  explicit HalfPrecision(DType half) : half_(half) {}
  std::vector<Round> rounds(const Shape& shape) const override {
    return one_round_if_smaller(shape, {Combine::sum, half_, 2 * shape.elements});
  }
  std::unique_ptr<Codec> codec(const Shape& shape) const override {
    return std::make_unique<HalfCodec<HostOps>>(HostOps::Making{shape}, half_);
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
