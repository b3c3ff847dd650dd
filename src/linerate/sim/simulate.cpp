#include "linerate/sim/simulate.hpp"

#include <algorithm>
#include <cmath>

#include "linerate/sim/run_graph.hpp"

namespace linerate::sim {
namespace {

double makespan(const doc::TaskGraph& graph, Prices& prices, TaskTimes& times) {
  static constexpr std::uint32_t kBegin = 0;
  return run_graph(graph, prices, {&kBegin, 1}, times, false);
}

// End of the last computation of steps [0, steps), over all classes.
double compute_end(const Unrolled& unrolled, std::size_t step, const TaskTimes& times) {
  const doc::TaskGraph& graph = unrolled.graph;
  const std::uint32_t stop = step + 1 < unrolled.begins.size()
                                 ? unrolled.begins[step + 1]
                                 : static_cast<std::uint32_t>(graph.tasks.size());
  double end = 0;
  for (std::uint32_t i = unrolled.begins[step]; i < stop; ++i) {
    if (graph.tasks[i].resource != doc::Resource::compute) continue;
    const std::uint32_t from = times.first.empty() ? i : times.first[i];
    const std::uint32_t to = times.first.empty() ? i + 1 : times.first[i + 1];
    for (std::uint32_t s = from; s < to; ++s) end = std::max(end, times.end[s]);
  }
  return end;
}

// Steps overlap: the period of the cycle once it repeats. Systems of this kind settle after a few
// steps; one that alternates is averaged over the later half.
double steady_period(const Cycle& steps, Prices& prices, TaskTimes& times, Unrolled& unrolled) {
  const auto cycle = steps.size();
  constexpr std::size_t kMostCycles = 64;
  for (std::size_t cycles = 4;; cycles *= 2) {
    unroll(steps, static_cast<int>(cycles * cycle), unrolled);
    run_graph(unrolled.graph, prices, unrolled.begins, times, false);
    const auto end_of = [&](std::size_t c) { return compute_end(unrolled, c * cycle - 1, times); };
    const double last = end_of(cycles) - end_of(cycles - 1);
    const double before = end_of(cycles - 1) - end_of(cycles - 2);
    if (std::abs(last - before) <= 1e-12 * end_of(cycles)) return last;
    if (cycles >= kMostCycles)
      return (end_of(cycles) - end_of(cycles / 2)) / static_cast<double>(cycles - cycles / 2);
  }
}

double cycle_s(const Cycle& steps, Prices& prices, TaskTimes& times, Unrolled& unrolled) {
  if (reaches_next_step(steps)) return steady_period(steps, prices, times, unrolled);
  double sum = 0;
  for (const doc::TaskGraph* graph : steps) sum += makespan(*graph, prices, times);
  return sum;
}

double communication_s(const Cycle& steps, Prices& prices) {
  double sum = 0;
  for (const doc::TaskGraph* graph : steps)
    for (const doc::Task& task : graph->tasks)
      if (doc::is_communication(task.kind)) sum += prices.seconds(task);
  return sum;
}

}  // namespace

std::optional<Interval> Simulator::interval_of(const doc::Plan& plan,
                                               const cost::CostModel& model) {
  const Cycle cycle = cycle_of(plan);
  const auto steps = static_cast<double>(cycle.size());
  Prices low(model, plan.ranks, Bound::low);
  Prices high(model, plan.ranks, Bound::high);
  return Interval{cycle_s(cycle, low, times_, unrolled_) / steps,
                  cycle_s(cycle, high, times_, unrolled_) / steps};
}

SimResult Simulator::simulate(const doc::Plan& plan, const cost::CostModel& model) {
  Prices prices(model, plan.ranks);
  const Cycle cycle = cycle_of(plan);
  const auto steps = static_cast<double>(cycle.size());
  SimResult result;
  result.step_s = cycle_s(cycle, prices, times_, unrolled_) / steps;
  result.communication_s = communication_s(cycle, prices) / steps;
  if (prices.has_known_error()) result.interval = interval_of(plan, model);
  return result;
}

double Simulator::step_s(const doc::TaskGraph& graph, const cost::CostModel& model, int ranks) {
  Prices prices(model, ranks);
  if (graph.next_step.empty()) return makespan(graph, prices, times_);
  return steady_period({&graph}, prices, times_, unrolled_);
}

SimResult simulate(const doc::Plan& plan, const cost::CostModel& model) {
  return Simulator().simulate(plan, model);
}

}  // namespace linerate::sim
