// What a remedy gains: the job's program is replayed without the cause, and every other task takes
// as long as recorded. And what it could gain at most, if the rest became better with it.
//
// Both figures are needed. Ranks 0, 1 and 2 compute for 10, 10 and 16 ms and exchange for 4 ms, so
// a step takes 20 ms. Replayed with rank 2 on time it takes 14 ms: a gain of 30 %. But the exchange
// may overlap with computation once nobody is late, and a step of 10 ms would gain 50 %. The first
// figure is what to expect, the second one bounds what can be hoped for.
#pragma once

#include "linerate/explain/explanation.hpp"
#include "linerate/explain/program.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// `whole`: the traces of all ranks are there, and their communication was found. Otherwise only
/// pauses and irregular steps are looked for, as a replay needs every rank. `matched` is of `job`.
CriticalPath critical_path_of(const Job& job, const MatchResult& matched, bool whole);

}  // namespace linerate::trace
