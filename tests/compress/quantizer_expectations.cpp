#include "expectation.hpp"

namespace linerate::compress {

std::vector<Expectation> quantizer_expectations() {
  return {
      {.strategy = "fp16",
       .bytes = [](const Shape& s) { return std::vector{2 * s.elements}; },
       .largest = 65504,
       .sum_error = 0x1p-11},
      {.strategy = "bf16",
       .bytes = [](const Shape& s) { return std::vector{2 * s.elements}; },
       .sum_error = 0x1p-8},
  };
}

}  // namespace linerate::compress
