#include "linerate/compress/method/formats.hpp"

#include <cmath>
#include <limits>

#include "linerate/compress/payload.hpp"

namespace linerate::compress {

std::int64_t heads_bytes(const GridFormat& format, std::int64_t n) {
  const std::int64_t buckets =
      format.bucket ? ceil_div(n, static_cast<std::int64_t>(format.bucket)) : 1;
  return 4 * static_cast<std::int64_t>(format.head_size) * buckets;
}

std::int64_t bytes_of(const GridFormat& format, std::int64_t n) {
  return heads_bytes(format, n) + pad4(ceil_div(n * format.bits, 8));
}

float round_up(double value) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  if (value >= kLargest) return kLargest;
  const auto nearest = static_cast<float>(value);
  return nearest < value ? std::nextafter(nearest, kLargest) : nearest;
}

std::int64_t bytes_of(const SignFormat& format, std::int64_t n) {
  const std::int64_t blocks = n == 0 ? 0 : format.block > 0 ? ceil_div(n, format.block) : 1;
  return 4 * levels_per_block(format.rule) * blocks + 4 * ceil_div(n, 32);
}

}  // namespace linerate::compress
