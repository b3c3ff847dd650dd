#include "linerate/sim/predicted_timeline.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "linerate/doc/plan_index.hpp"
#include "linerate/sim/rank_classes.hpp"
#include "linerate/sim/run_graph.hpp"
#include "linerate/sim/unroll.hpp"

namespace linerate::sim {
namespace {

using doc::Event;
using doc::Task;
using doc::TaskKind;

constexpr int kMostRanks = 16;

// What was simulated, and which of its steps is step 0 of the Timeline.
struct Run {
  Unrolled unrolled;
  TaskTimes times;
  RankClasses classes;
  std::size_t first_step = 0;
  double origin = 0;  // time 0 of the Timeline

  // End of the step's last computation on a rank of this class.
  double computed_until(std::size_t step, std::int32_t rank_class) const {
    double end = 0;
    for (std::uint32_t i = unrolled.begins[step]; i < unrolled.end(step); ++i) {
      const std::uint32_t slot = times.slot(i, rank_class);
      if (slot != kNoSlot && unrolled.graph.tasks[i].resource == doc::Resource::compute)
        end = std::max(end, times.end[slot]);
    }
    return end;
  }
};

class Writer {
 public:
  Writer(const doc::Plan& plan, const Run& run, doc::Timeline& out)
      : plan_(plan), run_(run), out_(out) {
    out_.parameter_names = plan.gradient_names;
  }

  void add(std::int32_t rank, int index) {
    const std::size_t step = run_.first_step + static_cast<std::size_t>(index);
    const std::int32_t rank_class = run_.classes.of_rank(rank);
    variant_ = &plan_.variants[static_cast<std::size_t>(run_.unrolled.variants[step])];
    const std::size_t first_event = out_.events.size();
    double begin = std::numeric_limits<double>::infinity(), end = 0;
    for (std::uint32_t i = run_.unrolled.begins[step]; i < run_.unrolled.end(step); ++i) {
      const Task& task = run_.unrolled.graph.tasks[i];
      const std::uint32_t slot = run_.times.slot(i, rank_class);
      if (slot == kNoSlot) continue;
      if (task.resource == doc::Resource::compute) {
        begin = std::min(begin, run_.times.start[slot]);
        end = std::max(end, run_.times.end[slot]);
      }
      if (run_.times.end[slot] <= run_.times.start[slot]) continue;
      Event event = event_of(task, rank, index);
      event.start_ns = since_origin(run_.times.start[slot]);
      event.end_ns = since_origin(run_.times.end[slot]);
      if (doc::is_communication(task.kind)) event.ready_ns = since_origin(ready(i, rank_class));
      if (!join_with_last(event, task, first_event)) out_.events.push_back(event);
    }
    // A rank without computation has no step of its own.
    if (begin > end) return;
    // Where steps overlap, what the first computation waited for is part of its step.
    if (step > 0) begin = run_.computed_until(step - 1, rank_class);
    out_.steps.push_back({rank, index, since_origin(begin), since_origin(end), variant_->name});
  }

 private:
  std::int64_t since_origin(double at) const { return doc::nanoseconds(at - run_.origin); }

  // When the last predecessor of a task ended, in the rank's own class.
  double ready(std::uint32_t i, std::int32_t rank_class) const {
    double at = 0;
    for (const std::uint32_t p : run_.unrolled.graph.predecessors(i)) {
      const std::uint32_t slot = run_.times.slot(p, rank_class);
      if (slot != kNoSlot) at = std::max(at, run_.times.end[slot]);
    }
    return at;
  }

  Event event_of(const Task& task, std::int32_t rank, int step) {
    Event event;
    event.kind = task.kind;
    event.resource = task.resource;
    event.rank = rank;
    event.step = step;
    if (task.bytes > 0) event.bytes = task.bytes;
    if (const std::string known = doc::event_name_of(plan_, *variant_, task); !known.empty())
      event.name = name(known);
    event.set = set(doc::gradients_of(plan_, *variant_, task));
    return event;
  }

  // The gradients of one layer get ready one after the other; training records the layer.
  bool join_with_last(const Event& event, const Task& task, std::size_t first_event) {
    if (event.kind != TaskKind::backward || doc::layer_of(plan_, task) < 0) return false;
    for (std::size_t i = out_.events.size(); i-- > first_event;) {
      Event& last = out_.events[i];
      if (last.resource != doc::Resource::compute) continue;
      if (last.kind != TaskKind::backward || last.name != event.name) return false;
      last.end_ns = event.end_ns;
      std::vector<std::int32_t> both = out_.parameter_sets[static_cast<std::size_t>(last.set)];
      both.push_back(task.first);
      last.set = set(std::move(both));
      return true;
    }
    return false;
  }

  std::int32_t name(const std::string& text) {
    const auto [entry, is_new] =
        names_.try_emplace(text, static_cast<std::int32_t>(out_.names.size()));
    if (is_new) out_.names.push_back(text);
    return entry->second;
  }
  std::int32_t set(std::vector<std::int32_t> members) {
    if (members.empty()) return -1;
    std::sort(members.begin(), members.end());
    const auto [entry, is_new] =
        sets_.try_emplace(members, static_cast<std::int32_t>(out_.parameter_sets.size()));
    if (is_new) out_.parameter_sets.push_back(std::move(members));
    return entry->second;
  }

  const doc::Plan& plan_;
  const Run& run_;
  doc::Timeline& out_;
  const doc::TaskGraph* variant_ = nullptr;
  std::map<std::string, std::int32_t> names_;
  std::map<std::vector<std::int32_t>, std::int32_t> sets_;
};

// Start of the step's first computation, of the class that begins first.
double first_computation(const Unrolled& unrolled, std::size_t step, const TaskTimes& times) {
  double first = std::numeric_limits<double>::infinity();
  for (std::uint32_t i = unrolled.begins[step]; i < unrolled.end(step); ++i) {
    if (unrolled.graph.tasks[i].resource != doc::Resource::compute) continue;
    for (std::uint32_t s = times.slots_begin(i); s < times.slots_end(i); ++s)
      first = std::min(first, times.start[s]);
  }
  return std::isinf(first) ? 0 : first;
}

// Steps that overlap settle first; of closed steps one cycle is like another.
Run simulate_cycle(const doc::Plan& plan, const cost::CostModel& model) {
  Run run;
  const std::size_t cycle = plan.cycle.size();
  run.first_step = reaches_next_step(plan) ? 8 * cycle : 0;
  unroll(plan, first_of_cycle(plan), static_cast<int>(run.first_step + cycle), run.unrolled);
  Prices prices(model, plan.ranks);
  run_graph(plan, run.unrolled.graph, prices, run.unrolled.begins, run.times, true);
  run.classes = classes_of(plan, run.unrolled.graph, model.cluster());
  run.origin = run.first_step > 0 ? run.computed_until(run.first_step - 1, 0)
                                  : first_computation(run.unrolled, run.first_step, run.times);
  return run;
}

}  // namespace

doc::Timeline predicted_timeline(const doc::Plan& plan, const doc::Workload& workload,
                                 const cost::CostModel& model) {
  doc::Timeline out;
  out.mode = "predicted";
  out.source = "simulated";
  out.workload = plan.workload;
  out.strategy = plan.strategy;
  out.ranks = plan.ranks;
  if (const double line = model.network_bytes_per_s(); line > 0) out.line_rate_bytes_per_s = line;
  out.one_rank_step_s = workload.one_rank_step_s();
  out.computation_slowed = contends(model.cluster());

  const Run run = simulate_cycle(plan, model);
  Writer writer(plan, run, out);
  for (std::int32_t rank = 0; rank < plan.ranks; ++rank) {
    const auto c = static_cast<std::size_t>(run.classes.of_rank(rank));
    if (plan.ranks > kMostRanks && run.classes.classes[c].first_rank != rank) continue;
    for (int s = 0; s < static_cast<int>(plan.cycle.size()); ++s) writer.add(rank, s);
  }
  return out;
}

}  // namespace linerate::sim
