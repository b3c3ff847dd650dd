// Count, mean, variance and mean logarithm of a tensor's magnitudes, in double and in one order:
// sums are kept in 32 lanes (element i adds to lane i mod 32) whatever the width of the processor's
// vectors, so that every machine gets the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace linerate::compress {

inline constexpr std::size_t kMomentLanes = 32;

/// Of the magnitudes x whose bits (kernel/magnitude.hpp) are at least `least_counted`, as they are
/// at y = x - origin, origin = the float of those bits, or 0 where that is the smallest one: of all
/// x > 0.
class Moments {
 public:
  /// least_counted >= 1.
  explicit Moments(std::uint32_t least_counted = 1);

  /// Counts `part` in; all calls but the last with multiples of 32 elements, so that their cuts do
  /// not change the sums.
  void add(std::span<const float> part);

  std::uint64_t count() const { return count_; }
  /// Bits of the smallest and the largest magnitude counted; of no use where count() is 0.
  std::uint32_t smallest() const { return smallest_; }
  std::uint32_t largest() const { return largest_; }
  double origin() const { return origin_; }
  /// Of y; 0 where nothing is counted.
  double mean() const;
  /// Of y, and so of x; with divisor count - 1. 0 where fewer than two are counted.
  double variance() const;
  /// Of y: the root of the sum of squares, their 2-norm.
  double root_of_squares() const;

  struct Lanes {  // one number a lane, for the kernel
    alignas(64) std::array<double, kMomentLanes> sum{}, squares{};
  };
  struct Extremes {  // of a part
    std::uint64_t count;
    std::uint32_t smallest, largest;
  };

 private:
  std::uint32_t least_counted_;
  float origin_;
  Lanes lanes_;
  std::uint64_t count_ = 0;
  std::uint32_t smallest_ = 0x7fffffff, largest_ = 0;
};

/// Sum of ln x over x = |v| > 0: of exponents as integers, and of the mantissas the logarithm of
/// their product, a lane each. Exact but for a rounding a factor; no logarithm an element.
class LogSum {
 public:
  /// As Moments::add().
  void add(std::span<const float> part);
  double sum() const;

  struct Lanes {
    alignas(64) std::array<double, kMomentLanes> product;
    alignas(64) std::array<std::uint64_t, kMomentLanes> exponent{};
    Lanes() { product.fill(1); }
  };

 private:
  void normalise();

  Lanes lanes_;
  std::uint64_t steps_ = 0;  // of a lane
};

}  // namespace linerate::compress
