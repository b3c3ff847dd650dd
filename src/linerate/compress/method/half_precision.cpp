#include "linerate/compress/method/built_in.hpp"
#include "linerate/compress/method/formats.hpp"
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
  /// A dense tensor would need an all-reduce of its own, because these sum 16 bits.
  std::int64_t dense_below() const override { return 0; }

 private:
  DType half_;
};

}  // namespace

std::unique_ptr<const Compressor> half_precision(DType half) {
  return std::make_unique<HalfPrecision>(half);
}

namespace {

class GridCodes : public BuiltIn {
 public:
  explicit GridCodes(const GridFormat& format) : format_(format) {}
  std::vector<Round> rounds(const Shape& shape) const override {
    return one_round_if_smaller(
        shape, {.combine = Combine::gather, .bytes = bytes_of(format_, shape.elements)});
  }
  CodecChoice choice(const Shape&) const override {
    return CodecWith<GridCodec, GridFormat>{{format_}};
  }
  Residual residual() const override { return format_.residual; }
  bool is_unbiased() const override { return format_.unbiased; }

 private:
  GridFormat format_;
};

}  // namespace

std::unique_ptr<const Compressor> grid_codes(const GridFormat& format) {
  return std::make_unique<GridCodes>(format);
}

namespace {

class ScaledSigns : public BuiltIn {
 public:
  explicit ScaledSigns(const SignFormat& format) : format_(format) {}
  std::vector<Round> rounds(const Shape& shape) const override {
    return one_round_if_smaller(shape,
                                {.combine = Combine::gather, .bytes = bytes_of(format_, shape)});
  }
  CodecChoice choice(const Shape&) const override {
    return CodecWith<ScaledSignCodec, SignFormat>{{format_}};
  }
  Residual residual() const override { return Residual::needed; }

 private:
  SignFormat format_;
};

}  // namespace

std::unique_ptr<const Compressor> scaled_signs(const SignFormat& format) {
  return std::make_unique<ScaledSigns>(format);
}

}  // namespace linerate::compress
