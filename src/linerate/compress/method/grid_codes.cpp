#include "linerate/compress/method/grid_codes.hpp"

#include "linerate/compress/method/built_in.hpp"
#include "linerate/compress/payload.hpp"

namespace linerate::compress {
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

}  // namespace linerate::compress
