// Values to encode without gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"

namespace linerate::compress {

/// Sums of four uniform numbers, of variance 1/3: no gradient has as many small values as large
/// ones.
inline std::vector<float> noise(std::int64_t n, std::uint64_t key) {
  std::vector<float> values(to_index(n));
  for (std::size_t i = 0; i < values.size(); ++i) {
    double sum = -2;
    for (std::uint64_t k = 0; k < 4; ++k) sum += random_unit(key, 4 * i + k);
    values[i] = static_cast<float>(sum);
  }
  return values;
}

}  // namespace linerate::compress
