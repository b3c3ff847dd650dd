// Who holds a job up, by how much, in how many steps and in which part of them; and what happened
// once and does not repeat.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "linerate/trace/explain/cause.hpp"
#include "linerate/trace/explain/lateness.hpp"
#include "linerate/trace/explain/step_times.hpp"

namespace linerate::trace {

/// Steps whose length, or a rank's own time in them, is far above its median; none of fewer than
/// three steps, and none if more than a quarter stand out. What a rank does after its last
/// collective holds up the others in the next step: then both are irregular.
std::vector<Irregularity> irregularities(const Program& program, const std::vector<int>& ranks);

/// Late ranks by how late they are. `steps`: numbers of all; `left_out`: the irregular ones. A rank
/// is late in a step if it comes later by at least `least_s` and a quarter of its greatest
/// lateness. It is not named if that much is what its steps differ by anyway: if its median is less
/// than three deviations of these steps, or it comes early by half as much in a third as many.
std::vector<Cause> late_ranks(const std::vector<Late>& lateness, const std::vector<int>& ranks,
                              const std::vector<std::int64_t>& steps,
                              const std::set<std::int64_t>& left_out, double least_s);

/// What every rank idles in the same place in more than a few steps: data loading of at least
/// `least_loading_s`, or a pause of at least `least_pause_s`. A rank's own idle time is that of its
/// steps (OwnSteps); of an even number of ranks the lower one in the middle counts.
std::vector<Cause> shared_pauses(const OwnSteps& own, const std::set<std::int64_t>& left_out,
                                 double least_loading_s, double least_pause_s);

/// By lane: median over `steps` of how late it is, 0 if it is early.
std::vector<double> median_lateness_s(const std::vector<Late>& lateness, std::size_t lanes,
                                      const std::vector<std::int64_t>& steps);

}  // namespace linerate::trace
