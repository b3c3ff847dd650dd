// A bit an element and one or two levels a block: what efsignsgd, onebit and onebit-adam send.
#pragma once

#include <cstdint>
#include <string>

#include "linerate/compress/codec.hpp"
#include "linerate/doc/option_reader.hpp"

namespace linerate::compress {

/// The rule for the two values of a block v[n], which its signs decode to.
enum class LevelRule : std::uint8_t {
  mean_magnitude,    // +-(sum |v|) / n: one level sent
  root_mean_square,  // +-sqrt(sum v^2 / n): one level sent
  mean_of_class,     // mean of v >= 0, mean of v < 0: two sent; 0 for a class without elements
};

/// How blocks of `block` elements, a multiple of 32, are sent; 0: one block, the whole tensor.
struct SignFormat {
  std::string method;  // for messages
  LevelRule rule = LevelRule::mean_magnitude;
  std::int64_t block = 0;
};
SignFormat onebit_adam_format();

/// Levels sent of a block.
constexpr std::int64_t levels_per_block(LevelRule rule) {
  return rule == LevelRule::mean_of_class ? 2 : 1;
}
/// f32 levels of all blocks, then the signs' words: 4 or 8 bytes a block and 4 ceil(n / 32).
std::int64_t bytes_of(const SignFormat& format, const Shape& shape);

}  // namespace linerate::compress
