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

/// For a synchronising collective the least duration over its ranks.
Transfers transfers_of(const Job& job, const MatchResult& matched);

}  // namespace linerate::trace
