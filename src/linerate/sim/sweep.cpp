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
#include <algorithm>
#include <array>

#include "linerate/core/index.hpp"
#include "linerate/sim/fluid.hpp"
#include "linerate/sim/simulator.hpp"

namespace linerate::sim {
namespace {

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

}  // namespace

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

namespace {

// Whether every rank has every task. A plan with one group needs no look at its tasks.
bool is_whole(const doc::Plan& plan, const doc::TaskGraph& graph) {
  return plan.groups.size() == 1 ||
         std::all_of(graph.tasks.begin(), graph.tasks.end(),
                     [](const Task& t) { return t.group == doc::kWhole; });
}

}  // namespace

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
