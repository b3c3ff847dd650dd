// Which gradients each exchange of a rank carried, from the sizes of both.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// Positions first .. last of Job::gradients.
struct GradientRange {
  std::int32_t first = 0, last = 0;
};

/// When the data that it carries was ready; if that is unknown, when it began.
inline std::int64_t asked_ns(const Communication& c) {
  return c.ready_ns == kNotReady ? c.span.start_ns : c.ready_ns;
}

/// Counts and flags are whole numbers, gradients are not; an unknown type may be anything.
bool may_be_gradients(std::optional<DType> type);
/// All-reduces by step of a rank: positions in its communications, as the host issued them.
std::map<std::int32_t, std::vector<std::size_t>> all_reduces_by_step(const RankActivity& rank);
/// Bytes of the gradients that an exchange carries: a hook may send a narrower type than theirs.
std::int64_t carried_bytes(std::int64_t sent, std::optional<DType> type, DType gradients);

/// By communication of the rank: the gradients that it carries. Absent if it is no bucket of its
/// step's gradients in ready order. Example: gradients have 4, 8 and 1 MiB, exchanges 12, 0.001 and
/// 1 MiB. The first exchange carries gradients 0 and 1, the last one gradient 2. The small one is a
/// loss, and absent.
std::vector<std::optional<GradientRange>> gradients_of_exchanges(const Job& job,
                                                                 const RankActivity& rank);

// Private: which limits DDP's rule (core/bucket_limits.hpp) needs to cut gradients into the buckets
// that a trace shows. A trace has sizes of gradients and of exchanges, and not the limits.
//
// Example. Gradients get ready in the order 3, 4, 2, 5, 1 MiB, and exchanges have 7, 7 and 1 MiB.
// The first bucket closed at 7 MiB and not yet at 3, so its limit is above 3 and at most 7 MiB. The
// second one closed at 7 MiB and not at 2. The end of the gradients closed the last one, so it
// bounds a limit from below only. Any limit above 3 and up to 7 MiB gives these buckets, and 5 is
// the number that a person would have typed: bucket_cap_mb=5.

/// Any limit above `low` and up to `high` bytes cuts the same buckets.
struct LimitRange {
  std::int64_t low = 0, high = INT64_MAX;

  bool holds(std::int64_t limit) const { return limit > low && limit <= high; }
  bool empty() const { return low >= high; }
};

/// Limits of the first bucket, and of all that follow.
struct LimitRanges {
  LimitRange first, rest;
};

/// Finds the buckets of `gradients` among `exchanged`. Both are in bytes, the first in the order in
/// which gradients got ready, the second in order of issue. An exchange that is not the sum of the
/// next gradients is passed over. nullopt: the buckets do not cover all gradients. `kept` is set to
/// the positions of the buckets in `exchanged`.
std::optional<LimitRanges> limits_of(std::span<const std::int64_t> gradients,
                                     std::span<const std::int64_t> exchanged,
                                     std::vector<std::size_t>& kept);

/// The options of `ddp` that stand for these limits: "", "bucket_cap_mb=10" or "bucket=10MiB,
/// first=2MiB". DDP's defaults are preferred to an explicit bucket_cap_mb, and that to two limits.
/// nullopt: no limit cuts so.
std::optional<std::string> ddp_options(const LimitRanges& limits);

// Whether each rank of a job has the whole model, as data parallelism means it.

/// How the model is split over ranks, by its usual name, and what shows it: "FSDP2 (its own
/// annotations)". Empty: nothing in the trace speaks against whole gradients on every rank.
std::string sharding_of(const Job& job);

// Private: what the backward passes of a step that add up do with their gradients.

/// For people: how many passes add up to one exchange, and which of them exchange if it is not the
/// last one alone. Needs Job::accumulation.
std::vector<std::string> accumulation_in_words(const Job& job);

/// For people: that no step of a job of several ranks exchanges gradients, and what it sends
/// instead, as parameters that are averaged (local SGD). Empty: some does, or nothing is known.
std::string no_exchange_in_words(const Job& job);

// Private: which steps a rank's recording has in part only.

/// Sets StepSpan::partial on the first and last steps of each rank's recording if they lack
/// communications. A step lacks some if the rank's other steps have more and another rank has the
/// full number in the same step.
///
/// Example. Rank 0 has 4 communications in each of steps 3 to 6, rank 1 has 4, 4, 4 and 1. Rank 1's
/// recording ended within step 6, so that step is partial there. If rank 0 had 1 in step 6 as well,
/// the step would be complete. The job sent less in it, as it does when gradients add up over
/// steps.
void find_partial_steps(Job& job);

// Private: which marks of the profiler are one step, and which steps repeat together.

/// Marks that end in one update of the parameters become one step: gradient accumulation whose
/// profiler marks every pass. Sets Accumulation::marks and RankActivity::marks_ns. Marks outside of
/// whole steps, and those in which nothing ran, are no steps.
void join_marks(Job& job);

/// The job with steps joined to whole periods (Job::updates), if its steps repeat every few.
/// Examples are local SGD, inverses of K-FAC, and a log that is written every few steps. All ranks
/// must have the same period, without an exception, and the median step must differ from the mean
/// one. Absent: every step is like the others.
std::optional<Job> in_periods(const Job& job);

// Private: several traces of one rank, one a cycle of the profiler's schedule.

/// Recordings of one rank become one recording, in order of time. Steps that were numbered from 0
/// again get numbers after those of the cycle before. Throws InputError if two of them were
/// recorded at the same time: the same trace twice. Times are absolute.
void join_cycles(Job& job);

// What one rank typically does between two exchanges of gradients: its backward pass and how many
// of them add up (gradient accumulation).

/// Fills Job::gradients, layers and the passes of accumulation from the passes of its ranks. A time
/// is the median over the steps of a rank, and then over ranks that are alike. So one slow step or
/// one slow rank changes nothing.
void find_typical_step(Job& job);

/// The key with the most; of equals the smallest. `counts` must not be empty.
template <typename Key>
Key most_common(const std::map<Key, int>& counts) {
  return std::ranges::max_element(counts, {}, &std::pair<const Key, int>::second)->first;
}

/// The last pass of each of its steps, over the job's typical gradients.
std::vector<const BackwardPass*> exchanging_passes(const Job& job, const RankActivity& rank);

/// How many backward passes with an update of their own a step has (GradientRecord::turn): as its
/// gradients say, or without them its exchanges.
int turns_of(const Job& job);

/// Names of the job's layers and gradients, the same in Workload and Timeline. Traces have no names
/// of their own. "layer3" counts in forward order, and "layer3.gradient7" in ready order.
std::string layer_name(const Job& job, int layer);
std::string gradient_name(const Job& job, std::size_t gradient);

/// For an even number the smaller of the two in the middle. `values` must not be empty.
double lower_median(std::vector<double> values);

/// How much longer than typical ranks that are alike may take; the noise of steps is a few percent.
inline constexpr double kAlike = 0.1;

/// Of one value a rank: the median of those that are at most kAlike above the lower median. Three
/// ranks of 20, 21 and 30 ms give 20.5 ms, because 30 ms is more than 10 % above 21 ms. Two ranks
/// of 20 and 30 ms give 20 ms: the rank that nothing held up. `values` must not be empty.
double typical_of_ranks(std::vector<double> values);

}  // namespace linerate::trace
