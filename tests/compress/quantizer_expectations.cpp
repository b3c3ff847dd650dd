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

/// Codes of `bits`, and `each` bytes a bucket; bucket 0: one.
auto codes(std::int64_t bits, std::int64_t each, std::int64_t bucket) {
  return [=](const Shape& s) {
    const std::int64_t buckets = bucket ? ceil_div(s.elements, bucket) : 1;
    return std::vector{pad4(ceil_div(s.elements * bits, 8)) + each * buckets};
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
      {.strategy = "signsgd(momentum=0.9)", .bytes = signs(0), .keeps_zero = false},
      {.strategy = "efsignsgd", .bytes = signs(4)},
      {.strategy = "onebit", .bytes = signs(8)},
      {.strategy = "onebit(block=96)", .bytes = signs(8, 96)},
      {.strategy = "onebit-adam", .bytes = signs(4), .split = Split::none, .descent = 0.3},
      {.strategy = "onebit-adam(beta=0)", .bytes = signs(4)},
      {.strategy = "onebit-adam(freeze_step=2)",
       .bytes = signs(4),
       .bytes_in = [](const Shape& s,
                      int phase) { return phase == 0 ? std::vector{4 * s.elements} : signs(4)(s); },
       .split = Split::none},
      {.strategy = "qsgd", .bytes = codes(8, 4, 128)},
      {.strategy = "qsgd(bits=4)", .bytes = codes(4, 4, 128)},
      {.strategy = "qsgd(bits=2,bucket=32)", .bytes = codes(2, 4, 32)},
      {.strategy = "maxmin", .bytes = codes(8, 8, 512)},
      {.strategy = "maxmin(bits=8,rounding=stochastic)", .bytes = codes(8, 8, 512)},
      {.strategy = "maxmin(bits=4)", .bytes = codes(4, 8, 512)},
      {.strategy = "maxmin(bits=2,rounding=stochastic)", .bytes = codes(2, 8, 512)},
      {.strategy = "maxmin(bits=1)", .bytes = codes(1, 8, 512)},
      {.strategy = "terngrad", .bytes = codes(2, 4, 0)},
      {.strategy = "terngrad(clip=0)", .bytes = codes(2, 4, 0)},
      {.strategy = "natural",
       .bytes = [](const Shape& s) { return std::vector{pad4(ceil_div(9 * s.elements, 8))}; }},
      {.strategy = "natural(bits=8)",
       .bytes = [](const Shape& s) { return std::vector{4 + pad4(s.elements)}; }},
  };
}

}  // namespace linerate::compress
