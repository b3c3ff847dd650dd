#include "linerate/compress/method/built_in.hpp"

#include <utility>

#include "linerate/compress/method/formats.hpp"
#include "linerate/compress/payload.hpp"

namespace linerate::compress {
namespace {

class OneRoundCompressor : public BuiltIn {
 public:
  explicit OneRoundCompressor(OneRound method) : method_(std::move(method)) {}
  std::vector<Round> rounds(const Shape& shape) const override {
    return one_round_if_smaller(shape, method_.round(shape.elements));
  }
  CodecChoice choice(const Shape&) const override { return method_.choice; }
  std::optional<CodecChoice> dense_choice() const override { return method_.of_dense; }
  Residual residual() const override { return method_.residual; }
  Momentum momentum() const override { return method_.momentum; }
  bool is_unbiased() const override { return method_.is_unbiased; }
  std::int64_t remembered_bytes(const Shape& shape) const override {
    return method_.remembered_bytes * shape.elements;
  }
  std::int64_t dense_below() const override { return method_.dense_below; }

 private:
  OneRound method_;
};

}  // namespace

std::unique_ptr<const Compressor> one_round(OneRound method) {
  return std::make_unique<OneRoundCompressor>(std::move(method));
}

/// dense_below: a dense tensor would need an all-reduce of its own, because these sum 16 bits.
std::unique_ptr<const Compressor> half_precision(DType half) {
  return one_round({.round =
                        [half](std::int64_t n) {
                          return Round{Combine::sum, half, 2 * n};
                        },
                    .choice = CodecWith<HalfCodec, DType>{{half}},
                    .residual = Residual::optional,
                    .dense_below = 0});
}

std::unique_ptr<const Compressor> grid_codes(const GridFormat& format) {
  return one_round({.round = [format](std::int64_t n) { return gathered(bytes_of(format, n)); },
                    .choice = format,
                    .residual = format.residual,
                    .is_unbiased = format.unbiased});
}

std::unique_ptr<const Compressor> scaled_signs(const SignFormat& format) {
  return one_round({.round = [format](std::int64_t n) { return gathered(bytes_of(format, n)); },
                    .choice = format});
}

}  // namespace linerate::compress
