// Own time by step, from the own time before each point of a lane. Lateness by step (late_steps) is
// simpler than by stretch (lateness.hpp), and is used if the pauses of every rank's host are known.
#include "linerate/trace/explain/step_times.hpp"

#include <algorithm>
#include <utility>

#include "linerate/core/index.hpp"

namespace linerate::trace {
namespace {

/// Replaces idle time by what the host paused, from its mark of a step to the next one.
void take_pauses(const RankActivity& rank, StepTimes& times) {
  for (auto& [number, own] : times) own.idle = {};
  for (const PhaseSpan& pause : *rank.pauses) {
    const auto after =
        std::find_if(rank.steps.begin(), rank.steps.end(),
                     [&pause](const StepSpan& s) { return s.span.start_ns > pause.span.start_ns; });
    if (after == rank.steps.begin()) continue;
    const auto step = times.find((after - 1)->number);
    if (step != times.end()) step->second.idle[to_index(pause.phase)] += pause.span.length();
  }
}

}  // namespace

StepTimes step_times(const Lane& lane) {
  std::vector<OwnTime> up_to;  // by border: since the one before
  OwnTime open;
  for (const Point& p : lane.points) {
    open += p.before;
    if (p.kind == PointKind::border) up_to.push_back(std::exchange(open, {}));
  }
  StepTimes times;
  for (const StepWindow& s : lane.steps) times[s.number] = up_to[s.to];
  return times;
}

OwnSteps own_steps(const Job& job, const Program& program) {
  OwnSteps own;
  own.host = std::all_of(job.ranks.begin(), job.ranks.end(),
                         [](const RankActivity& r) { return r.pauses.has_value(); });
  for (std::size_t l = 0; l < program.lanes.size(); ++l) {
    own.lanes.push_back(step_times(program.lanes[l]));
    if (own.host) take_pauses(job.ranks[l], own.lanes[l]);
  }
  return own;
}

/// The middle of the others is their lower median. Steps that some rank lacks are passed over.
std::vector<Late> late_steps(const OwnSteps& own) {
  std::vector<Late> found;
  for (std::size_t l = 0; l < own.lanes.size(); ++l)
    for (const auto& [number, mine] : own.lanes[l]) {
      std::vector<std::pair<std::int64_t, const OwnTime*>> others;
      for (std::size_t o = 0; o < own.lanes.size(); ++o)
        if (const auto its = own.lanes[o].find(number); o != l && its != own.lanes[o].end())
          others.emplace_back(its->second.total_ns(), &its->second);
      if (others.empty() || others.size() + 1 < own.lanes.size()) continue;
      const auto middle = others.begin() + static_cast<std::ptrdiff_t>((others.size() - 1) / 2);
      std::nth_element(others.begin(), middle, others.end());
      Late late{.lane = static_cast<std::int32_t>(l),
                .step = number,
                .ns = mine.total_ns() - middle->first};
      for (std::size_t p = 0; p < kPhases; ++p)
        late.by_phase[p] =
            mine.of(static_cast<StepPhase>(p)) - middle->second->of(static_cast<StepPhase>(p));
      found.push_back(late);
    }
  return found;
}

}  // namespace linerate::trace
