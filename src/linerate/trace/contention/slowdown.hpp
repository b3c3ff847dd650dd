// How much slower the same work runs during something else, from repetitions with and without it.
//
// Example. A convolution takes 10 ms in steps in which no bucket moved during it. In another step a
// bucket moved during 8 of its 12 ms. It lost 2 ms in these 8 ms, a quarter. So work takes 1 / (1 -
// 1/4) = 1.33 times as long while data moves.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "linerate/core/intervals.hpp"
#include "linerate/trace/job/job.hpp"

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
/// of T. This is what sim/fluid.cpp computes, solved for the factor.
///
/// A repetition is alone if the other thing ran during at most a tenth of it, and touched if it ran
/// during at least half. Each touched one is compared with the median of those alone of its kind.
/// Repetitions in between are left out: work that takes longer by chance also meets more of the
/// other thing, which would look like a slowdown. The result is the median of the comparisons,
/// weighted by the time that they compare.
SlowdownFound slowdown_of(std::vector<Repetition> repetitions);

// What of a recorded job ran at the same time: operators during collectives, and the reverse; and
// how much slower operators ran then.

struct Overlap {
  /// Operators and kernels. Equal kind: one rank, one name, the same place among as many of that
  /// name in the step. `beside_s`: the rank's collectives moved data. Operators inside others are
  /// left out, and so are those during coders or during communications whose waiting is unknown.
  std::vector<Repetition> compute;
  /// Kernels. Equal kind: one rank, name and launch, between the same two kernels before and after
  /// it. A model repeats its layers, so one of them often ran apart from communication.
  std::vector<Repetition> alike;
  /// Collectives. Equal kind: one operation, size, type and group. `seconds`: from the last rank's
  /// arrival on. `beside_s`: any of its ranks computed.
  std::vector<Repetition> communication;
  /// `beside_s` of each collective, in the order of Breakdown::collectives; -1: unknown.
  std::vector<double> collective_beside_s;
  /// By rank: when it computed while its collectives moved data, and when it computed while it
  /// communicated at all. The second includes waiting for other ranks, known as such or not.
  std::vector<SpanSet> during_transfers, during_communication;
};

Overlap overlap_of(const Job& job);

/// Slowdown of computation during collectives: from the same place of several steps, else from
/// kernels that are alike. Two places also differ in the content of the caches, so the interval of
/// the second begins at 1.
SlowdownFound compute_slowdown(const Overlap& overlap);

// The same job without what several ranks and a profiler add to the time of each.

/// Kernels that follow each other lie a few microseconds apart, whatever host and network do.
inline constexpr std::int64_t kBetweenKernelsNs = 10'000;

/// When a rank computed; a device also copied, or was between two kernels that follow each other.
SpanSet at_work(const RankActivity& rank, bool on_device);

/// By rank: communication while it was not at work.
std::vector<SpanSet> exposed_communication_of(const Job& job);

/// By rank: what at_work() has between kernels. A profiler makes it longer.
std::vector<SpanSet> between_kernels(const Job& job);

/// By rank: when its device had nothing to do because the host was still at work on what comes
/// next. A profiler makes these pauses longer. None if the CPU is the device, or the host unknown.
std::vector<SpanSet> waits_for_host(const Job& job);

/// By rank: when its device had nothing to do, and its host was between two operators that follow
/// each other within a millisecond. That is Python, which a profiler slows, too.
std::vector<SpanSet> waits_between_operators(const Job& job);

/// By rank: the time that a hook takes to make gradients smaller before they are sent. It is its
/// work on the device, and the time in which the device does nothing during its calls. None if
/// gradients are sent whole, or if their sizes or those of the exchanges are unknown.
std::vector<SpanSet> hook_times(const Job& job);

/// A share of the time in `spans` is left out, as if it passed in no time.
struct LeftOut {
  const std::vector<SpanSet>& spans;  // by rank
  double share = 0;                   // below 1, or 1
};

/// The job without these times. Every rank's clock is bent by itself, so times of different ranks
/// no longer compare.
Job without(Job job, const std::vector<LeftOut>& all);

}  // namespace linerate::trace
