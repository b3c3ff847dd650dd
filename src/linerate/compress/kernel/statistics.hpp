// Statistics of values, which quantisers take before they choose a grid. Sums are in f64 over 16
// fixed lanes: the same bits on every machine.
#pragma once

#include <cstddef>
#include <span>

namespace linerate::compress {

/// out[b] of bucket b: elements [b * bucket, (b + 1) * bucket) of v, the last one shorter.
void sums_of_squares(std::span<const float> v, std::size_t bucket, double* out);

/// A zero is +0.
struct Range {
  float least, largest;
};
void ranges_of(std::span<const float> v, std::size_t bucket, Range* out);

struct Spread {
  double sum, squares;
  float largest;  // of |v|
};
Spread spread_of(std::span<const float> v);

}  // namespace linerate::compress
