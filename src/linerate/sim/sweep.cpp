// Simulates without contention. The order of tasks on a resource is the Plan's, and a task's
// duration does not depend on what runs elsewhere. So a task's times follow from tasks before it:
//   start = max(end of the resource's last task, ends of predecessors [+ start delay])
//   end   = start + duration
// and one pass over the tasks, in their order, is the simulation. A collective of several classes
// has one more rule: it starts on each class as above, and ends on all of them together.
//
// An example with three ranks. Rank 0 comes to a bucket's all-reduce at 1 ms, rank 1 at 3 ms and
// rank 2 at 2 ms. Its price is 4 ms. The starts are 1, 3 and 2 ms, and the end is 3 + 4 = 7 ms on
// all three. If another group keeps the network of rank 0 busy until 5 ms, the starts are 5, 3 and
// 2 ms. The end is then 9 ms.
//
// There are two versions of the pass, for ranks that are alike and for classes of ranks. The first
// is the inner loop of every search, so it has no slots and no look-ups.
#include "linerate/sim/simulator.hpp"

#include <algorithm>
#include <array>

#include "linerate/core/index.hpp"

namespace linerate::sim {
namespace {

using doc::Task;

// When each resource of a rank is free again.
using Free = std::array<double, doc::kResourceNames.size()>;

// One step of ranks that are alike. The slot of a task is the task itself.
struct AlikeStep {
  const doc::TaskGraph& graph;
  // Edges out of the step before, by the task that they lead to, and one after the last.
  const doc::NextStepEdge* arriving;
  const double* before;  // ends of that step's tasks
  double* start;
  double* end;
};

constexpr doc::NextStepEdge kNoEdge{.from = 0, .to = ~0u, .variant = 0};

// Sweeps one step. `free` carries over from the step before, and so do the ends that `arriving`
// edges name; nothing else connects steps. Returns the end of the last task.
template <bool kStarts, typename PriceOf>
double sweep_alike(const AlikeStep& step, const Prices& prices, PriceOf price_of, Free& free) {
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
    double finish = start + (sends ? price_of(i, task) : task.seconds);
    if constexpr (kStarts) step.start[i] = start;
    end[i] = finish;
    ++i;
    // Most computations follow the one before and wait for nothing else.
    if (!sends)
      for (; i < count && pred_begin[i] == pred_begin[i + 1] && edge->to != i &&
             tasks[i].resource == task.resource;
           ++i) {
        if constexpr (kStarts) step.start[i] = finish;
        end[i] = finish += tasks[i].seconds;
      }
    resource = finish;
    last = std::max(last, finish);
  }
  return last;
}

// Sweeps several steps without joining their graphs. Prices and arriving edges depend on the
// variants alone, so they are found once for each variant, and once for each new pair of
// neighbours.
template <bool kStarts>
double sweep_steps(const Unrolled& steps, Prices& prices, TaskTimes& times) {
  Free free{};
  std::vector<std::vector<double>> price_of(steps.plan->variants.size());  // by variant, task
  std::vector<doc::NextStepEdge> arriving{kNoEdge};
  double last = 0;
  for (std::size_t s = 0; s < steps.begins.size(); ++s) {
    const doc::TaskGraph& graph = steps.variant(s);
    const std::int32_t variant = steps.variants[s];
    std::vector<double>& price = price_of[to_index(variant)];
    if (price.empty()) {
      price.resize(graph.tasks.size());
      for (std::size_t i = 0; i < graph.tasks.size(); ++i)
        if (doc::is_communication(graph.tasks[i].kind)) price[i] = prices.seconds(graph.tasks[i]);
    }
    // As before between two steps of the same variants as those.
    if (s > 0 && (s < 2 || steps.variants[s - 2] != steps.variants[s - 1] ||
                  steps.variants[s - 1] != variant)) {
      find_edges_into(variant, steps.variant(s - 1), arriving);
      arriving.push_back(kNoEdge);
    }
    double* const end = times.end.data();
    const AlikeStep step{graph, arriving.data(), s > 0 ? end + steps.begins[s - 1] : nullptr,
                         kStarts ? times.start.data() + steps.begins[s] : nullptr,
                         end + steps.begins[s]};
    const double step_end = sweep_alike<kStarts>(
        step, prices, [&price](std::uint32_t i, const Task&) { return price[i]; }, free);
    last = std::max(last, step_end);
  }
  return last;
}

template <bool kStarts>
double sweep_graph(const doc::TaskGraph& graph, Prices& prices, TaskTimes& times) {
  Free free{};
  return sweep_alike<kStarts>(
      {graph, &kNoEdge, nullptr, times.start.data(), times.end.data()}, prices,
      [&prices](std::uint32_t, const Task& task) { return prices.seconds(task); }, free);
}

// Makes room for so many tasks. The memory of a larger graph stays.
void hold(std::size_t tasks, bool starts, TaskTimes& times) {
  times.first.clear();
  if (times.end.size() < tasks) times.end.resize(tasks);
  if (starts && times.start.size() < tasks) times.start.resize(tasks);
}

// The state of one sweep over several classes. Each class has a slot of every task that it has
// (TaskTimes), and resources of its own.
class ClassSweep {
 public:
  ClassSweep(const doc::TaskGraph& graph, Prices& prices, const RankClasses& classes,
             TaskTimes& times)
      : graph_(graph),
        prices_(prices),
        classes_(classes),
        times_(times),
        free_(classes.classes.size()) {}

  double run(std::span<const std::uint32_t> step_begins) {
    std::size_t step = 0;
    for (std::uint32_t i = 0; i < graph_.tasks.size(); ++i) {
      for (; step < step_begins.size() && step_begins[step] == i; ++step) begin_step();
      const Task& task = graph_.tasks[i];
      start(i, task);
      if (task.kind == doc::TaskKind::broadcast)
        run_broadcast(i, task);
      else if (doc::is_communication(task.kind))
        run_collective(i, task);
      else
        run_apart(i, task);
    }
    return last_;
  }

 private:
  void begin_step() {
    for (std::size_t c = 0; c < free_.size(); ++c)
      free_[c][to_index(doc::Resource::compute)] += classes_.classes[c].delay_s;
  }

  double& free(std::int32_t c, doc::Resource resource) {
    return free_[to_index(c)][to_index(resource)];
  }

  // Each class starts once its resource is free and its own predecessors are done. A collective
  // starts the Cluster's delay after its predecessors, even if its resource was free all the time.
  void start(std::uint32_t i, const Task& task) {
    const std::uint32_t first = times_.first[i];
    const auto classes = classes_.members.classes_in(task.group);
    std::fill_n(times_.start.begin() + first, classes.size(), 0.0);
    for (const std::uint32_t p : graph_.predecessors(i))
      times_.for_shared(p, i, [this](std::uint32_t before, std::uint32_t after) {
        times_.start[after] = std::max(times_.start[after], times_.end[before]);
      });
    for (const Membership::Part& part : classes_.members.parts_of(task.group))
      for (std::uint32_t k = part.begin; k < part.end; ++k)
        times_.start[first + k] =
            std::max(times_.start[first + k] + prices_.start_delay_s(task, part.ranks),
                     free(classes[k], task.resource));
  }

  // A task that every class does by itself, at its own speed.
  void run_apart(std::uint32_t i, const Task& task) {
    std::uint32_t slot = times_.first[i];
    for (const std::int32_t c : classes_.members.classes_in(task.group)) {
      const double factor = slowness(task, classes_.classes[to_index(c)]);
      finish(slot, c, task, times_.start[slot] + factor * task.seconds);
      ++slot;
    }
  }

  // A collective ends on all classes of a part at once: its price after the last of them started.
  void run_collective(std::uint32_t i, const Task& task) {
    const auto classes = classes_.members.classes_in(task.group);
    const std::uint32_t first = times_.first[i];
    for (const Membership::Part& part : classes_.members.parts_of(task.group)) {
      double end = 0;
      for (std::uint32_t k = part.begin; k < part.end; ++k)
        end = std::max(end, times_.start[first + k]);
      end += prices_.seconds_of_part(task, part.ranks);
      for (std::uint32_t k = part.begin; k < part.end; ++k)
        finish(first + k, classes[k], task, end);
    }
  }

  // A broadcast ends on each class by itself (BroadcastTime): once the class has carried it, and
  // once it has come from the root.
  void run_broadcast(std::uint32_t i, const Task& task) {
    const auto classes = classes_.members.classes_in(task.group);
    const Rooted& rooted = classes_.seen_by(task);
    const std::uint32_t first = times_.first[i];
    auto root = rooted.root.begin();
    for (const Membership::Part& part : classes_.members.parts_of(task.group)) {
      const BroadcastTime time = prices_.broadcast_of_part(task, part.ranks);
      const double left_s = times_.start[first + *root++];
      for (std::uint32_t k = part.begin; k < part.end; ++k)
        finish(first + k, classes[k], task,
               std::max(times_.start[first + k] + time.own_s,
                        left_s + time.reaches_s(rooted.share[k])));
    }
  }

  void finish(std::uint32_t slot, std::int32_t c, const Task& task, double end) {
    times_.end[slot] = free(c, task.resource) = end;
    last_ = std::max(last_, end);
  }

  const doc::TaskGraph& graph_;
  Prices& prices_;
  const RankClasses& classes_;
  TaskTimes& times_;
  std::vector<Free> free_;
  double last_ = 0;
};

}  // namespace

double slowness(const Task& task, const RankClass& rank_class) {
  return task.resource == doc::Resource::compute || task.resource == doc::Resource::codec
             ? rank_class.compute_factor
             : 1;
}

double sweep(const doc::TaskGraph& graph, Prices& prices, TaskTimes& times, bool starts) {
  hold(graph.tasks.size(), starts, times);
  return starts ? sweep_graph<true>(graph, prices, times)
                : sweep_graph<false>(graph, prices, times);
}

double sweep(const Unrolled& steps, Prices& prices, TaskTimes& times, bool starts) {
  hold(steps.end(steps.begins.size() - 1), starts, times);
  return starts ? sweep_steps<true>(steps, prices, times)
                : sweep_steps<false>(steps, prices, times);
}

void lay_out_slots(const doc::TaskGraph& graph, const RankClasses& classes, TaskTimes& times) {
  times.members = classes.members;
  times.first.resize(graph.tasks.size() + 1);
  times.group.resize(graph.tasks.size());
  std::uint32_t next = 0;
  for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
    times.first[i] = next;
    times.group[i] = graph.tasks[i].group;
    next += classes.members.count(graph.tasks[i].group);
  }
  times.first.back() = next;
  if (times.end.size() < next) times.end.resize(next);
  if (times.start.size() < next) times.start.resize(next);
}

double sweep(const doc::TaskGraph& graph, Prices& prices, const RankClasses& classes,
             std::span<const std::uint32_t> step_begins, TaskTimes& times) {
  lay_out_slots(graph, classes, times);
  return ClassSweep(graph, prices, classes, times).run(step_begins);
}

}  // namespace linerate::sim
