#include "expectation.hpp"

namespace linerate::compress {
namespace {

/// A bit an element in words of 32, and `each` bytes a block.
auto signs(std::int64_t each, std::int64_t block = 0) {
  return [=](const Shape& s) {
    const std::int64_t blocks = block ? ceil_div(s.elements, block) : 1;
    return std::vector{4 * ceil_div(s.elements, 32) + each * blocks};
  };
}

}  // namespace

std::vector<Expectation> quantizer_expectations() {
  return {
      {.strategy = "fp16",
       .bytes = [](const Shape& s) { return std::vector{2 * s.elements}; },
       .largest = 65504,
       .sum_error = 0x1p-11},
      {.strategy = "bf16",
       .bytes = [](const Shape& s) { return std::vector{2 * s.elements}; },
       .sum_error = 0x1p-8},
      {.strategy = "signsgd", .bytes = signs(0), .keeps_zero = false},
      {.strategy = "efsignsgd", .bytes = signs(4)},
      {.strategy = "onebit", .bytes = signs(8)},
      {.strategy = "onebit(block=96)", .bytes = signs(8, 96)},
  };
}

}  // namespace linerate::compress
