// Private: which marks of the profiler are one step, and which steps repeat together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

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
