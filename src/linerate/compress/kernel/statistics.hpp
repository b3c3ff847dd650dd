// What quantisers ask of values before they know their grid. Sums in f64 over 16 fixed lanes: the
// same bits on every machine.
#pragma once

#include <span>

namespace linerate::compress {

double sum_of_squares(std::span<const float> v);

/// Of v that is not empty; a zero is +0.
struct Range {
  float least, largest;
};
Range range_of(std::span<const float> v);

struct Moments {
  double sum, squares;
  float largest;  // of |v|
};
Moments moments_of(std::span<const float> v);

/// sums[i] += addends[i]: the step of error feedback that forms v.
void add_to(std::span<const float> addends, std::span<float> sums);

}  // namespace linerate::compress
