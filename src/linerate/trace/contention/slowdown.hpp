// How much slower the same work runs during something else, from repetitions with and without it.
//
// Example. A convolution takes 10 ms in steps in which no bucket moved during it. In another step a
// bucket moved during 8 of its 12 ms. It lost 2 ms in these 8 ms, a quarter. So work takes 1 / (1 -
// 1/4) = 1.33 times as long while data moves.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace linerate::trace {

/// One repetition of a piece of work. Equal `kind`: the same work.
struct Repetition {
  std::uint64_t kind = 0;
  double seconds = 0;
  double beside_s = 0;  // during which the other thing ran
};

struct Slowdown {
  double factor = 1;         // at least 1
  double low = 1, high = 1;  // 90 % interval
};

struct SlowdownFound {
  std::optional<Slowdown> slowdown;  // absent: unknown
  /// What the comparisons are worth, in comparisons of equal weight.
  double comparisons = 0;
};

inline constexpr double kFewestComparisons = 8;
/// An interval whose ends are further apart than this factor tells nothing.
inline constexpr double kWidestSlowdown = 1.25;

/// Work that takes `base` alone takes T = base + (1 - 1/factor) x if the other thing runs during x
/// of T. This is what sim/fluid.hpp computes, solved for the factor.
///
/// A repetition is alone if the other thing ran during at most a tenth of it, and touched if it ran
/// during at least half. Each touched one is compared with the median of those alone of its kind.
/// Repetitions in between are left out: work that takes longer by chance also meets more of the
/// other thing, which would look like a slowdown. The result is the median of the comparisons,
/// weighted by the time that they compare.
SlowdownFound slowdown_of(std::vector<Repetition> repetitions);

}  // namespace linerate::trace
