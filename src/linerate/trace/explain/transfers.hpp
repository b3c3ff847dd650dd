// How much of each communication moved data, and how much of it was waiting for late ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "linerate/trace/explain/match.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

struct Transfers {
  /// By rank and communication: so many ns at its end moved data; before them it waited for the
  /// last rank. -1: unknown, as for a collective whose ranks are not all there.
  std::vector<std::vector<std::int64_t>> ns;
  std::size_t diverging = 0;  // collectives that should end everywhere at once, and did not
};

/// For a synchronising collective it is the least duration over its ranks: the last rank to come
/// waited for nobody. Ranks 0, 1 and 2 start at 1, 3 and 2 ms and end at 7 ms. Their durations are
/// 6, 4 and 5 ms. So data moved for 4 ms, and the ranks waited for 2, 0 and 1 ms before that.
///
/// Ends that disagree by more than scheduling explains contradict this. Such a collective is not
/// split, and counts as diverging. Recordings without durations have no split at all.
Transfers transfers_of(const Job& job, const MatchResult& matched);

}  // namespace linerate::trace
