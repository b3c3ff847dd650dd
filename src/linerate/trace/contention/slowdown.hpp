// How much slower the same work runs during something else, from repetitions with and without it.
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

/// A piece of work that takes `base` alone takes T = base + (1 - 1/factor) x if the other thing
/// runs during x of T: what sim/fluid.hpp computes, solved for the factor. Repetitions during at
/// least half of which it ran are compared with the median of those of the same kind with at most a
/// tenth. Those between are left out: there, work that takes longer by chance meets more of the
/// other thing, too. The median of the comparisons, weighted by the time that they compare.
SlowdownFound slowdown_of(std::vector<Repetition> repetitions);

}  // namespace linerate::trace
