// Puts the interval of a predicted step together. Three things are not known exactly: the price of
// collectives, the time of one rank alone (T_1) and the speed of codecs. The simulator gives the
// first; the other two are added here. They are independent, so their squares add up.
//
// An example: a step of 100 ms with 97 to 103 ms by its collectives. T_1 was measured to within 4
// ms. The step is then 95 to 105 ms, since hypot(3, 4) = 5.
#include "linerate/sim/predicted_step.hpp"

#include <algorithm>
#include <cmath>

namespace linerate::sim {
namespace {

/// How many ranks share a core, at least 1.
double ranks_per_core(const doc::Cluster& cluster, int ranks) {
  return cluster.cores ? std::max(1.0, static_cast<double>(ranks) / *cluster.cores) : 1;
}

bool takes_coding_time(const doc::Task& task) {
  return (task.kind == doc::TaskKind::encode || task.kind == doc::TaskKind::decode) &&
         task.seconds > 0;
}

// The same Plan with every encoding and decoding `times` as long.
doc::Plan with_slower_coding(doc::Plan plan, double times) {
  for (doc::TaskGraph& graph : plan.variants)
    for (doc::Task& task : graph.tasks)
      if (takes_coding_time(task)) task.seconds *= times;
  return plan;
}

/// Widens the interval by something else that is independent of it: `below` seconds down and
/// `above` seconds up.
doc::Bounded widened(doc::Bounded step_s, double below, double above) {
  step_s.low = std::max(0.0, step_s.value - std::hypot(step_s.value - *step_s.low, below));
  step_s.high = step_s.value + std::hypot(*step_s.high - step_s.value, above);
  return step_s;
}

/// Adds what is not known of T_1: the Workload's interval, or else the spread between runs that
/// goes with kinds of networks. A step without an interval of its collectives stays without one,
/// because the interval of T_1 alone would look like everything that is not known.
doc::Bounded with_interval_of_t1(doc::Bounded step_s, const doc::Workload& workload,
                                 const cost::CostModel& model) {
  if (!step_s.has_interval()) return step_s;
  const double alone = workload.one_rank_step_s();
  double below = 0, above = 0;
  if (workload.step_low_s && workload.step_high_s) {
    below = alone - *workload.step_low_s, above = *workload.step_high_s - alone;
  } else if (model.has_spread()) {
    above = alone * model.cluster().nominal->step_spread;
    below = model.is_one_sided() ? 0 : above;
  } else {
    return step_s;
  }
  return widened(step_s, below, above);
}

/// The step with coding at either end of its cost: `spread` times quicker and `spread` times
/// slower. Both are simulated, because overlap may hide coding.
doc::Bounded with_interval_of_coding(doc::Bounded step_s, const doc::Plan& plan,
                                     const cost::CostModel& model, Simulator& simulator,
                                     double spread) {
  if (!step_s.has_interval() || spread <= 1 || !has_coding(plan)) return step_s;
  const double quick_s = simulator.step_s(with_slower_coding(plan, 1 / spread), model);
  const double slow_s = simulator.step_s(with_slower_coding(plan, spread), model);
  return widened(step_s, step_s.value - quick_s, slow_s - step_s.value);
}

}  // namespace

bool has_coding(const doc::Plan& plan) {
  const std::vector<doc::Task>& tasks = plan.variants.back().tasks;
  return std::any_of(tasks.begin(), tasks.end(), takes_coding_time);
}

PredictedStep predicted_step(const SimResult& result, const doc::Plan& plan,
                             const doc::Workload& workload, const cost::CostModel& model,
                             Simulator& simulator, double coding_spread) {
  PredictedStep predicted{
      with_interval_of_coding(with_interval_of_t1(result.step(), workload, model), plan, model,
                              simulator, coding_spread),
      {}};
  // Every rank codes at about the same time, each on the one thread that it was measured on.
  const double times = ranks_per_core(model.cluster(), plan.ranks);
  if (times <= 1 || !has_coding(plan)) return predicted;
  const SimResult crowded = simulator.simulate(with_slower_coding(plan, times), model);
  predicted.crowded_s = crowded.step_s;
  predicted.step_s.high =
      std::max(predicted.step_s.high_or_value(),
               with_interval_of_t1(crowded.step(), workload, model).high_or_value());
  return predicted;
}

}  // namespace linerate::sim
