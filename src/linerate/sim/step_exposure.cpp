#include "linerate/sim/step_exposure.hpp"

#include "linerate/doc/exposed_communication.hpp"
#include "linerate/sim/steady_cycle.hpp"

namespace linerate::sim {
namespace {

// For one rank of a class, over the cycle.
double of_class(const SteadyCycle& cycle, std::int32_t rank_class) {
  std::vector<Span> communication, computation;
  for (std::uint32_t i = 0; i < cycle.unrolled.graph.tasks.size(); ++i) {
    const doc::TaskKind kind = cycle.unrolled.graph.tasks[i].kind;
    const bool sends = doc::is_communication(kind);
    if (!sends && !doc::is_computation(kind)) continue;
    if (const auto span = cycle.span(i, rank_class))
      (sends ? communication : computation).push_back(*span);
  }
  const SpanSet exposed = doc::exposed_communication(union_of(std::move(communication)),
                                                     union_of(std::move(computation)));
  double sum = 0;
  for (std::size_t s = 0; s < cycle.steps(); ++s)
    sum += seconds_of(clipped(exposed, cycle.step(s, rank_class)));
  return sum;
}

}  // namespace

double exposed_communication_s(const doc::Plan& plan, const cost::CostModel& model) {
  // Scratch of a thread: sweeps ask this for thousands of plans.
  thread_local SteadyCycle cycle;
  find_steady_cycle(plan, model, cycle);
  std::vector<double> of_classes;
  for (std::int32_t c = 0; c < cycle.classes.count(); ++c) of_classes.push_back(of_class(cycle, c));
  double sum = 0;
  const std::vector<std::int32_t> ranks = shown_ranks(plan, cycle.classes);
  for (const std::int32_t rank : ranks)
    sum += of_classes[static_cast<std::size_t>(cycle.classes.of_rank(rank))];
  return sum / static_cast<double>(ranks.size() * cycle.steps());
}

}  // namespace linerate::sim
