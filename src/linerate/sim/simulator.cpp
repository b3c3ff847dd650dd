// Finds the steady step of a Plan. A step without edges into the next one takes as long as its
// graph takes alone, and the cycle's mean is one over its variants. If steps overlap, several
// cycles are simulated one after the other until the time between their ends repeats.
//
// An example of overlap: forward takes 4 ms, backward 6 ms, and then a message takes 5 ms, for
// which the next step's backward waits. Alone a step takes 15 ms. In a run, the first step's
// computation ends at 10 ms and its message at 15 ms. The next forward ends at 14 ms, waits, and
// backward ends at 21 ms. The step after it ends computing at 32 ms. So the period is 11 ms.
//
// Intervals come from two more runs, in which all collectives and contention cost their low and
// their high end at once.
#include "linerate/sim/simulator.hpp"

#include <array>
#include <cmath>

#include "linerate/core/clock.hpp"
#include "linerate/doc/validate.hpp"

namespace linerate::sim {
namespace {

// The end of the last task of a variant alone, in seconds.
double makespan(const doc::Plan& plan, std::int32_t variant, Prices& prices, TaskTimes& times,
                Unrolled& unrolled) {
  unrolled.plan = &plan;
  unrolled.begins = {0};
  unrolled.variants = {variant};
  return run_steps(unrolled, prices, times);
}

// End of the last computation of a step, over all classes.
double compute_end(const Unrolled& unrolled, std::size_t step, const TaskTimes& times) {
  double end = 0;
  const std::uint32_t begin = unrolled.begins[step];
  const std::vector<doc::Task>& tasks = unrolled.variant(step).tasks;
  for (std::uint32_t i = unrolled.end(step); i-- > begin;) {
    if (tasks[i - begin].resource != doc::Resource::compute) continue;
    if (times.first.empty()) return times.end[i];  // one class runs them in order
    for (std::uint32_t s = times.first[i]; s < times.first[i + 1]; ++s)
      end = std::max(end, times.end[s]);
  }
  return end;
}

constexpr std::size_t kFewestCycles = 4, kMostCycles = 64;

// The period of the first `cycles` cycles of a run, in seconds; absent if it does not repeat yet.
// It repeats if the last two cycles took equally long, up to rounding. After kMostCycles cycles the
// mean over the later half is the answer, because the period may alternate between two values for
// ever.
std::optional<double> period_of(const Unrolled& unrolled, const TaskTimes& times,
                                std::size_t length, std::size_t cycles) {
  const auto end_of = [&](std::size_t c) { return compute_end(unrolled, c * length - 1, times); };
  const double last = end_of(cycles) - end_of(cycles - 1);
  const double before = end_of(cycles - 1) - end_of(cycles - 2);
  if (std::abs(last - before) <= 1e-12 * end_of(cycles)) return last;
  if (cycles < kMostCycles) return std::nullopt;
  return (end_of(cycles) - end_of(cycles / 2)) / static_cast<double>(cycles - cycles / 2);
}

// Steps overlap: simulates 4, 8, ... 64 cycles until their period repeats. Systems of this kind
// settle after a few steps. Each try starts anew; the last one costs more than all before it
// together.
double steady_period(const doc::Plan& plan, Prices& prices, TaskTimes& times, Unrolled& unrolled) {
  const std::size_t length = plan.cycle.size();
  for (std::size_t cycles = kFewestCycles;; cycles *= 2) {
    lay_out_steps(plan, first_of_cycle(plan), static_cast<int>(cycles * length), unrolled);
    run_steps(unrolled, prices, times);
    if (const auto period = period_of(unrolled, times, length, cycles)) return *period;
  }
}

// The same from a run that exists already and may be longer. Without contention a step does not
// depend on the steps after it, so the beginning of a long run is a short run.
std::optional<double> settled_period(const SteadyCycle& run, const Prices& prices) {
  if (contends(prices) || run.first_step == 0) return std::nullopt;
  const std::size_t length = run.steps();
  for (std::size_t cycles = kFewestCycles; cycles * length <= run.unrolled.begins.size();
       cycles *= 2)
    if (const auto period = period_of(run.unrolled, run.times, length, cycles)) return period;
  return std::nullopt;
}

// Mean over the cycle of what `seconds_of` says of a variant. K-FAC's cycles are long and have few
// variants.
template <typename SecondsOf>
double mean_over_cycle(const doc::Plan& plan, SecondsOf seconds_of) {
  std::vector<std::size_t> steps(plan.variants.size());
  for (const std::int32_t v : plan.cycle) ++steps[to_index(v)];
  double sum = 0;
  for (std::size_t v = 0; v < steps.size(); ++v)
    if (steps[v] > 0)
      sum += static_cast<double>(steps[v]) * seconds_of(static_cast<std::int32_t>(v));
  return sum / static_cast<double>(plan.cycle.size());
}

// Mean over the cycle.
double steady_step_s(const doc::Plan& plan, Prices& prices, TaskTimes& times, Unrolled& unrolled) {
  if (reaches_next_step(plan))
    return steady_period(plan, prices, times, unrolled) / static_cast<double>(plan.cycle.size());
  return mean_over_cycle(
      plan, [&](std::int32_t variant) { return makespan(plan, variant, prices, times, unrolled); });
}

// Network time of one step, in seconds. It is that of the collectives of all ranks, and on top that
// of the rank with the most in parts.
template <typename Counts>
double communication_s(const doc::Plan& plan, std::int32_t variant, Prices& prices, Counts counts) {
  double together = 0;
  std::vector<double> of_rank(to_index(plan.ranks));
  const doc::TaskGraph& graph = plan.variants[to_index(variant)];
  for (const doc::Task& task : graph.tasks) {
    if (!doc::is_communication(task.kind) || !counts(graph, task)) continue;
    const auto& parts = plan.group_of(task).parts;
    if (parts.empty()) together += prices.seconds(task);
    for (const auto& part : parts)
      for (const std::int32_t rank : part)
        of_rank[to_index(rank)] += prices.seconds_of_part(task, static_cast<int>(part.size()));
  }
  return together + *std::max_element(of_rank.begin(), of_rank.end());
}

// Whether a collective is the job's own (OtherCollective), for which computation stands still.
bool is_waited_for(const doc::TaskGraph& graph, const doc::Task& task) {
  return task.subject == doc::Subject::payloads && task.first >= 0 &&
         graph.payloads[to_index(task.first)].content == doc::Content::other;
}

double network_s(const doc::Plan& plan, Prices& prices, bool waited_for) {
  const auto counts = [&](const doc::TaskGraph& graph, const doc::Task& task) {
    return is_waited_for(graph, task) == waited_for;
  };
  return mean_over_cycle(plan,
                         [&](std::int32_t v) { return communication_s(plan, v, prices, counts); });
}

// Simulates ranks that are alike, without contention. The order of tasks on a resource is the
// Plan's, and a task's duration does not depend on what runs elsewhere. So a task's times follow
// from tasks before it:
//   start = max(end of the resource's last task, ends of predecessors [+ start delay])
//   end   = start + duration
// and one pass over the tasks, in their order, is the simulation. It is the inner loop of every
// search, so it has no slots and no look-ups. fluid.cpp would give the same times.
//
// Steps are swept without joining their graphs. Durations and arriving edges depend on the variants
// alone, so they are found once for each variant, and once for each new pair of neighbours.

using doc::Task;

// When each resource of a rank is free again.
using Free = std::array<double, doc::kResourceNames.size()>;

// One step of ranks that are alike. The slot of a task is the task itself.
struct AlikeStep {
  const doc::TaskGraph& graph;
  const double* seconds;  // of each task
  // Edges out of the step before, by the task that they lead to, and one after the last.
  const doc::NextStepEdge* arriving;
  const double* before;  // ends of that step's tasks
  double* start;
  double* end;
};

constexpr doc::NextStepEdge kNoEdge{.from = 0, .to = ~0u, .variant = 0};

// Sweeps one step. `free` carries over from the step before, and so do the ends that `arriving`
// edges name; nothing else connects steps. Returns the end of the last task.
double sweep_step(const AlikeStep& step, const Prices& prices, Free& free) {
  double* const end = step.end;
  const doc::NextStepEdge* edge = step.arriving;
  const Task* const tasks = step.graph.tasks.data();
  const std::uint32_t* const preds = step.graph.preds.data();
  const std::uint32_t* const pred_begin = step.graph.pred_begin.data();
  const auto count = static_cast<std::uint32_t>(step.graph.tasks.size());
  double last = 0;
  for (std::uint32_t i = 0; i < count;) {
    const Task& task = tasks[i];
    double& resource = free[to_index(task.resource)];
    double ready = 0;
    for (std::uint32_t p = pred_begin[i], stop = pred_begin[i + 1]; p < stop; ++p)
      ready = std::max(ready, end[preds[p]]);
    for (; edge->to == i; ++edge) ready = std::max(ready, step.before[edge->from]);
    const bool sends = doc::is_communication(task.kind);
    if (sends) ready += prices.start_delay_s(task);
    const double start = std::max(resource, ready);
    double finish = start + step.seconds[i];
    step.start[i] = start;
    end[i] = finish;
    ++i;
    // Most computations follow the one before and wait for nothing else.
    if (!sends)
      for (; i < count && pred_begin[i] == pred_begin[i + 1] && edge->to != i &&
             tasks[i].resource == task.resource;
           ++i) {
        step.start[i] = finish;
        end[i] = finish += step.seconds[i];
      }
    resource = finish;
    last = std::max(last, finish);
  }
  return last;
}

// Whether every rank has every task. A plan with one group needs no look at its tasks.
bool is_whole(const doc::Plan& plan, const doc::TaskGraph& graph) {
  return plan.groups.size() == 1 ||
         std::ranges::all_of(graph.tasks, [](const Task& t) { return t.group == doc::kWhole; });
}

}  // namespace

NetworkTime network_time(const doc::Plan& plan, const cost::CostModel& model) {
  Prices prices(model, plan.ranks);
  Prices low(model, plan.ranks, Bound::low), high(model, plan.ranks, Bound::high);
  const auto bounded = [&](bool waited_for) {
    doc::Bounded s{network_s(plan, prices, waited_for)};
    if (prices.has_known_error())
      s.low = network_s(plan, low, waited_for), s.high = network_s(plan, high, waited_for);
    return s;
  };
  return {bounded(true), bounded(false)};
}

SimResult Simulator::simulate(const doc::Plan& plan, const cost::CostModel& model) {
  throw_if_stopped();
  Prices prices(model, plan.ranks);
  SimResult result;
  result.step_s = steady_step_s(plan, prices, times_, unrolled_);
  return finish(plan, prices, std::move(result));
}

// Exposed communication needs the times of tasks, which find_steady_cycle() has. If that run also
// shows the period, the step is read from it and nothing is simulated twice.
SimResult Simulator::simulate_exposure(const doc::Plan& plan, const cost::CostModel& model) {
  throw_if_stopped();
  Prices prices(model, plan.ranks);
  find_steady_cycle(plan, prices, cycle_);
  SimResult result;
  const bool one_step = cycle_.first_step == 0 && cycle_.steps() == 1;
  if (one_step)
    result.step_s = cycle_.end_s;
  else if (const auto cycle_s = settled_period(cycle_, prices))
    result.step_s = *cycle_s / static_cast<double>(cycle_.steps());
  else
    result.step_s = steady_step_s(plan, prices, times_, unrolled_);
  result.exposed_communication_s = exposed_communication_s(plan, cycle_);
  return finish(plan, prices, std::move(result));
}

/// Adds the network's time and the interval, if every collective priced has a known error. The low
/// end of a one-sided model is the step itself, so it need not be simulated.
SimResult Simulator::finish(const doc::Plan& plan, Prices& prices, SimResult result) {
  const auto all = [](const doc::TaskGraph&, const doc::Task&) { return true; };
  result.communication_s =
      mean_over_cycle(plan, [&](std::int32_t v) { return communication_s(plan, v, prices, all); });
  if (!prices.has_known_error()) return result;
  const auto bounded = [&](Bound bound) {
    Prices at(prices.model(), plan.ranks, bound);
    return steady_step_s(plan, at, times_, unrolled_);
  };
  const bool is_low_end = prices.model().is_one_sided() && !contends(prices);
  result.low_s = is_low_end ? result.step_s : bounded(Bound::low);
  result.high_s = bounded(Bound::high);
  return result;
}

double Simulator::step_s(const doc::Plan& plan, const cost::CostModel& model) {
  throw_if_stopped();
  Prices prices(model, plan.ranks);
  return steady_step_s(plan, prices, times_, unrolled_);
}

SimResult simulate(const doc::Plan& plan, const cost::CostModel& model) {
  validate(plan, "");
  return Simulator().simulate(plan, model);
}

double sweep(const Unrolled& steps, Prices& prices, TaskTimes& times) {
  const std::uint32_t tasks = steps.end(steps.begins.size() - 1);
  times.first.clear();
  if (times.end.size() < tasks) times.end.resize(tasks);
  if (times.start.size() < tasks) times.start.resize(tasks);
  Free free{};
  std::vector<std::vector<double>> price_of(steps.plan->variants.size());  // by variant, task
  std::vector<doc::NextStepEdge> arriving{kNoEdge};
  double last = 0;
  for (std::size_t s = 0; s < steps.begins.size(); ++s) {
    const doc::TaskGraph& graph = steps.variant(s);
    const std::int32_t variant = steps.variants[s];
    std::vector<double>& price = price_of[to_index(variant)];
    if (price.empty()) {
      price.reserve(graph.tasks.size());
      for (const Task& task : graph.tasks) price.push_back(prices.seconds(task));
    }
    // As before between two steps of the same variants as those.
    if (s > 0 && (s < 2 || steps.variants[s - 2] != steps.variants[s - 1] ||
                  steps.variants[s - 1] != variant)) {
      find_edges_into(variant, steps.variant(s - 1), arriving);
      arriving.push_back(kNoEdge);
    }
    double* const end = times.end.data();
    const AlikeStep step{graph,
                         price.data(),
                         arriving.data(),
                         s > 0 ? end + steps.begins[s - 1] : nullptr,
                         times.start.data() + steps.begins[s],
                         end + steps.begins[s]};
    last = std::max(last, sweep_step(step, prices, free));
  }
  return last;
}

bool are_alike(const Unrolled& steps, const doc::Cluster& cluster) {
  if (!cluster.rank_speeds.empty()) return false;
  for (std::size_t s = 0; s < steps.begins.size(); ++s) {
    const bool is_new = s == 0 || steps.variants[s] != steps.variants[s - 1];
    if (is_new && !is_whole(*steps.plan, steps.variant(s))) return false;
  }
  return true;
}

bool contends(const Prices& prices) { return prices.contention().any(); }

double run_steps(Unrolled& steps, Prices& prices, TaskTimes& times) {
  const doc::Cluster& cluster = prices.model().cluster();
  if (!contends(prices) && are_alike(steps, cluster)) return sweep(steps, prices, times);
  join(steps);
  return run_fluid(steps.graph(), prices, classes_of(*steps.plan, steps.graph(), cluster),
                   steps.begins, prices.contention(), times);
}

}  // namespace linerate::sim
