// What each rank did for itself in each of its steps, and how late it comes by that.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "linerate/explain/explanation.hpp"
#include "linerate/explain/lateness.hpp"
#include "linerate/explain/program.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// By number of the step.
using StepTimes = std::map<std::int64_t, OwnTime>;

/// Work and idle time between a lane's borders.
StepTimes step_times(const Lane& lane);

/// Own times by lane and step. If the pauses of every rank's host are recorded (`host`), they are
/// the idle time, because a device's idle time misleads twice. A device that is still at work hides
/// the begin of a pause. A device whose host is only just ahead idles a little after each kernel,
/// whoever waits for whom.
struct OwnSteps {
  std::vector<StepTimes> lanes;
  bool host = false;
};
OwnSteps own_steps(const Job& job, const Program& program);

/// Every rank against the one in the middle of the others, in the steps that all have.
LateSteps late_steps(const OwnSteps& own);

// Who holds a job up, by how much, in how many steps and in which part of them. Steps that do not
// repeat are found too, and kept apart from what does.

/// Steps whose length, or a rank's own time in them, is far above its median. Of fewer than three
/// steps none is irregular, and none if more than a quarter stand out. What a rank does after its
/// last collective holds up the others in the next step: then both are irregular. `ranks`: by lane.
std::vector<Irregularity> irregularities(const Program& program, const std::vector<int>& ranks);

/// Late ranks, the latest first. `steps`: numbers of all; `left_out`: the irregular ones. A rank is
/// late in a step if it comes later by at least `least_s` and a quarter of its greatest lateness.
///
/// A rank is not named if its steps differ by that much anyway. This is so if its median lateness
/// is less than three deviations of the late steps. It is also so if the rank often comes early, by
/// half its median lateness: more than once for three times that it is late.
std::vector<Cause> late_ranks(const LateSteps& lateness, const std::vector<int>& ranks,
                              const std::vector<std::int64_t>& steps,
                              const std::set<std::int64_t>& left_out, double least_s);

/// Pauses that every rank has in the same phase, in more than a few steps. Data loading must take
/// at least `least_loading_s`, any other pause `least_pause_s`. The lower median over ranks stands
/// for a step. So three ranks that idle for 8, 9 and 40 ms share a pause of 9 ms. Two ranks that
/// idle for 1 and 40 ms share 1 ms.
std::vector<Cause> shared_pauses(const OwnSteps& own, const std::set<std::int64_t>& left_out,
                                 double least_loading_s, double least_pause_s);

/// By lane: median over `steps` of how late it is, 0 if it is early.
std::vector<double> median_lateness_s(const LateSteps& lateness,
                                      const std::vector<std::int64_t>& steps);

// The part of a job that every one of its ranks recorded.

/// Numbers of the steps that some rank with steps lacks, or has in part.
std::set<std::int64_t> steps_of_some(const Job& job);

/// The part of the job from the first to the last step that all ranks with steps have whole, as far
/// as a program is made of it. Work, communications, phases and pauses outside are left out. If
/// rank 0 recorded steps 3 to 9 and rank 1 steps 5 to 12, both keep 5 to 9. Steps between these
/// that some rank lacks stay (steps_of_some names them). Absent: every such rank has the same first
/// and last step, or no step is common.
std::optional<Job> common_part(const Job& job);

// What a remedy gains: the job's program is replayed without the cause, and every other task takes
// as long as recorded. And what it could gain at most, if the rest became better with it.
//
// Both figures are needed. Ranks 0, 1 and 2 compute for 10, 10 and 16 ms and exchange for 4 ms, so
// a step takes 20 ms. Replayed with rank 2 on time it takes 14 ms: a gain of 30 %. But the exchange
// may overlap with computation once nobody is late, and a step of 10 ms would gain 50 %. The first
// figure is what to expect, the second one bounds what can be hoped for.

/// `whole`: the traces of all ranks are there, and their communication was found. Otherwise only
/// pauses and irregular steps are looked for, as a replay needs every rank. `matched` is of `job`.
CriticalPath critical_path_of(const Job& job, const MatchResult& matched, bool whole);

}  // namespace linerate::trace
