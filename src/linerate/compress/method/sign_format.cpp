#include "linerate/compress/method/sign_format.hpp"

#include "linerate/compress/payload.hpp"

namespace linerate::compress {
namespace {

std::int64_t block_of(const SignFormat& format, const Shape& shape) {
  return format.block > 0 ? format.block : shape.elements;
}
std::int64_t level_bytes(const SignFormat& format, const Shape& shape) {
  if (shape.elements == 0) return 0;
  return 4 * levels_per_block(format.rule) * ceil_div(shape.elements, block_of(format, shape));
}

}  // namespace

std::int64_t bytes_of(const SignFormat& format, const Shape& shape) {
  return level_bytes(format, shape) + 4 * ceil_div(shape.elements, 32);
}

}  // namespace linerate::compress
