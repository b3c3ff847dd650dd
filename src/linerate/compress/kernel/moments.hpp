// Count, mean, variance and mean logarithm of a tensor's magnitudes, in double. Sums are kept in 32
// lanes: element i adds to lane i mod 32. This order does not depend on the width of the
// processor's vectors, so every machine gets the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace linerate::compress {

inline constexpr std::size_t kMomentLanes = 32;

/// Moments of the magnitudes x = |v| > 0.
class Moments {
 public:
  /// Counts `part` in; all calls but the last with multiples of 32 elements, so that their cuts do
  /// not change the sums.
  void add(std::span<const float> part);

  std::uint64_t count() const { return count_; }
  double largest() const { return largest_; }
  double mean() const;
  /// With divisor count - 1; 0 if fewer than two are counted.
  double variance() const;
  /// The root of the sum of squares, v's 2-norm.
  double norm() const;

  struct Lanes {  // one number a lane, for the kernel
    alignas(64) std::array<double, kMomentLanes> sum{}, squares{};
  };

 private:
  Lanes lanes_;
  std::uint64_t count_ = 0;
  double largest_ = 0;
};

/// Moments of the magnitudes whose bits (kernel/magnitude.hpp) are at least `least` >= 1, as their
/// excess y over that magnitude. In a tail that begins far from zero, sums of the excess lose fewer
/// digits than sums of x would.
class TailMoments {
 public:
  explicit TailMoments(std::uint32_t least);
  /// As Moments::add().
  void add(std::span<const float> part);

  std::uint64_t count() const { return count_; }
  /// Bits of the smallest and the largest magnitude counted; of no use if count() is 0.
  std::uint32_t smallest() const { return smallest_; }
  std::uint32_t largest() const { return largest_; }
  /// The mean of x - the smallest one.
  double mean_excess() const;
  double variance() const;

  struct Extremes {  // of a part
    std::uint64_t count;
    std::uint32_t smallest, largest;
  };

 private:
  std::uint32_t least_;
  Moments::Lanes lanes_;
  std::uint64_t count_ = 0;
  std::uint32_t smallest_ = 0x7fffffff, largest_ = 0;
};

/// The sum of ln x over x = |v| > 0, without a logarithm for each element. Exponents are added as
/// integers. Mantissas are multiplied, and one logarithm of the product is taken for each lane.
/// Example: 6, 0.5 and 5 are 1.5 * 4, 1 / 2 and 1.25 * 4. The mantissas' product is 1.875 and the
/// exponents' sum 3. So the answer is ln 1.875 + 3 ln 2 = ln 15.
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
  std::uint64_t steps_ = 0;  // of a lane: each added a bias of 1023 to its exponent
};

}  // namespace linerate::compress
