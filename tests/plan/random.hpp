// Random numbers that follow from a seed, one after the other.
#pragma once

#include <cstdint>

#include "linerate/core/random.hpp"

namespace linerate::support {

class Random {
 public:
  explicit Random(std::uint64_t seed) : seed_(seed) {}
  std::uint64_t below(std::uint64_t n) { return random_below(seed_, counter_++, n); }
  /// In [0, 1).
  double unit() { return random_unit(seed_, counter_++); }

 private:
  std::uint64_t seed_, counter_ = 0;
};

}  // namespace linerate::support
