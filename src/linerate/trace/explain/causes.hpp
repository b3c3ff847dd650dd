// Who holds a job up, by how much, in how many steps and in which part of them. Steps that do not
// repeat are found too, and kept apart from what does.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "linerate/trace/explain/cause.hpp"
#include "linerate/trace/explain/lateness.hpp"
#include "linerate/trace/explain/step_times.hpp"

namespace linerate::trace {

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
std::vector<Cause> late_ranks(const std::vector<Late>& lateness, const std::vector<int>& ranks,
                              const std::vector<std::int64_t>& steps,
                              const std::set<std::int64_t>& left_out, double least_s);

/// Pauses that every rank has in the same phase, in more than a few steps. Data loading must take
/// at least `least_loading_s`, any other pause `least_pause_s`. The lower median over ranks stands
/// for a step. So three ranks that idle for 8, 9 and 40 ms share a pause of 9 ms. Two ranks that
/// idle for 1 and 40 ms share 1 ms.
std::vector<Cause> shared_pauses(const OwnSteps& own, const std::set<std::int64_t>& left_out,
                                 double least_loading_s, double least_pause_s);

/// By lane: median over `steps` of how late it is, 0 if it is early.
std::vector<double> median_lateness_s(const std::vector<Late>& lateness, std::size_t lanes,
                                      const std::vector<std::int64_t>& steps);

}  // namespace linerate::trace
