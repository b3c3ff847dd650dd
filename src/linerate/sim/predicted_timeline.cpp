#include "linerate/sim/predicted_timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "linerate/sim/rank_classes.hpp"
#include "linerate/sim/run_graph.hpp"
#include "linerate/sim/unroll.hpp"

namespace linerate::sim {
namespace {

using doc::Event;
using doc::Task;
using doc::TaskKind;

constexpr int kMostRanks = 16;

std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

class Writer {
 public:
  Writer(const doc::Plan& plan, const doc::Workload& workload, doc::Timeline& out)
      : plan_(plan), workload_(workload), out_(out) {
    out_.parameter_names = plan.gradient_names;
  }

  void add(const Unrolled& unrolled, std::size_t step, int index, const RankClasses& classes,
           const TaskTimes& times, double origin, std::int32_t rank, std::int32_t rank_class) {
    const doc::TaskGraph& graph = unrolled.graph;
    const std::uint32_t stop = step + 1 < unrolled.begins.size()
                                   ? unrolled.begins[step + 1]
                                   : static_cast<std::uint32_t>(graph.tasks.size());
    variant_ = &plan_.variants[static_cast<std::size_t>(plan_.cycle[step % plan_.cycle.size()])];
    const std::size_t first_event = out_.events.size();
    double begin = -1, end = 0;
    for (std::uint32_t i = unrolled.begins[step]; i < stop; ++i) {
      const Task& task = graph.tasks[i];
      if (task.rank != doc::kEveryRank && classes.of_rank(task.rank) != rank_class) continue;
      const std::uint32_t slot = times.slot(i, rank_class);
      if (task.resource == doc::Resource::compute) {
        if (begin < 0) begin = times.start[slot];
        end = std::max(end, times.end[slot]);
      }
      if (times.end[slot] <= times.start[slot]) continue;
      Event event = event_of(task, rank, index);
      event.start_ns = nanoseconds(times.start[slot] - origin);
      event.end_ns = nanoseconds(times.end[slot] - origin);
      if (doc::is_communication(task.kind))
        event.ready_ns = nanoseconds(ready(graph, i, times, rank_class) - origin);
      if (!join_with_last(event, task, first_event)) out_.events.push_back(event);
    }
    out_.steps.push_back(
        {rank, index, nanoseconds(begin - origin), nanoseconds(end - origin), variant_->name});
  }

 private:
  // When the last predecessor of a task ended, in the rank's own class.
  static double ready(const doc::TaskGraph& graph, std::uint32_t i, const TaskTimes& times,
                      std::int32_t rank_class) {
    double at = 0;
    for (std::uint32_t p = graph.pred_begin[i]; p < graph.pred_begin[i + 1]; ++p)
      at = std::max(at, times.end[times.slot(graph.preds[p], rank_class)]);
    return at;
  }

  Event event_of(const Task& task, std::int32_t rank, int step) {
    Event event;
    event.kind = task.kind;
    event.resource = task.resource;
    event.rank = rank;
    event.step = step;
    if (task.bytes > 0) event.bytes = task.bytes;
    std::vector<std::int32_t> set;
    switch (task.kind) {
      case TaskKind::forward:
        if (task.first == task.last) {
          event.name = name(plan_.layer_names[static_cast<std::size_t>(task.first)]);
          set = parameters_of_layer(task.first);
        } else {
          set = everything();
        }
        break;
      case TaskKind::backward:
        for (std::int32_t p = task.first; p <= task.last; ++p) set.push_back(p);
        if (task.first == task.last) event.name = name(backward_name(task.first));
        break;
      case TaskKind::host:
      case TaskKind::compute:
      case TaskKind::copy:
        break;
      default:
        for (std::int32_t b = task.first; b <= task.last; ++b) append_bucket(b, set);
        if (task.first == task.last && task.last >= 0)
          event.name = name(fmt::format("bucket {}", task.first));
    }
    event.set = this->set(std::move(set));
    return event;
  }

  std::string backward_name(std::int32_t position) const {
    const int layer = layer_of(position);
    return layer < 0 ? plan_.gradient_names[static_cast<std::size_t>(position)]
                     : plan_.layer_names[static_cast<std::size_t>(layer)];
  }
  int layer_of(std::int32_t position) const {
    return workload_.gradients[static_cast<std::size_t>(position)].layer;
  }

  // The gradients of one layer get ready one after the other; training records the layer.
  bool join_with_last(const Event& event, const Task& task, std::size_t first_event) {
    if (event.kind != TaskKind::backward || task.first != task.last) return false;
    const int layer = layer_of(task.first);
    for (std::size_t i = out_.events.size(); i-- > first_event;) {
      Event& last = out_.events[i];
      if (last.resource != doc::Resource::compute) continue;
      if (layer < 0 || last.kind != TaskKind::backward || last.name != event.name) return false;
      last.end_ns = event.end_ns;
      std::vector<std::int32_t> both = out_.parameter_sets[static_cast<std::size_t>(last.set)];
      both.push_back(task.first);
      last.set = set(std::move(both));
      return true;
    }
    return false;
  }

  std::vector<std::int32_t> parameters_of_layer(std::int32_t layer) const {
    std::vector<std::int32_t> found;
    for (std::size_t p = 0; p < workload_.gradients.size(); ++p)
      if (workload_.gradients[p].layer == layer) found.push_back(static_cast<std::int32_t>(p));
    return found;
  }
  std::vector<std::int32_t> everything() const {
    std::vector<std::int32_t> all(plan_.gradient_names.size());
    for (std::size_t p = 0; p < all.size(); ++p) all[p] = static_cast<std::int32_t>(p);
    return all;
  }
  void append_bucket(std::int32_t b, std::vector<std::int32_t>& set) const {
    const doc::Bucket& bucket = variant_->buckets[static_cast<std::size_t>(b)];
    set.insert(set.end(), variant_->members.begin() + bucket.begin,
               variant_->members.begin() + bucket.end);
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
  const doc::Workload& workload_;
  doc::Timeline& out_;
  const doc::TaskGraph* variant_ = nullptr;
  std::map<std::string, std::int32_t> names_;
  std::map<std::vector<std::int32_t>, std::int32_t> sets_;
};

// Start of the step's first computation, of the class that begins first.
double first_computation(const Unrolled& unrolled, std::size_t step, const TaskTimes& times) {
  for (std::uint32_t i = unrolled.begins[step]; i < unrolled.graph.tasks.size(); ++i) {
    if (unrolled.graph.tasks[i].resource != doc::Resource::compute) continue;
    const std::uint32_t from = times.first.empty() ? i : times.first[i];
    const std::uint32_t to = times.first.empty() ? i + 1 : times.first[i + 1];
    return *std::min_element(times.start.begin() + from, times.start.begin() + to);
  }
  return 0;
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

  // Steps that overlap settle first; of closed steps one cycle is like another.
  const auto cycle = static_cast<int>(plan.cycle.size());
  const Cycle steps = cycle_of(plan);
  const int before = reaches_next_step(steps) ? 8 * cycle : 0;
  Unrolled unrolled;
  unroll(steps, before + cycle, unrolled);
  Prices prices(model, plan.ranks);
  TaskTimes times;
  run_graph(unrolled.graph, prices, unrolled.begins, times, true);
  const RankClasses classes = classes_of(unrolled.graph, model.cluster(), plan.ranks);
  const double origin = first_computation(unrolled, static_cast<std::size_t>(before), times);
  Writer writer(plan, workload, out);
  for (std::int32_t rank = 0; rank < plan.ranks; ++rank) {
    const std::int32_t c = classes.of_rank(rank);
    if (plan.ranks > kMostRanks && classes.classes[static_cast<std::size_t>(c)].first_rank != rank)
      continue;
    for (int s = 0; s < cycle; ++s)
      writer.add(unrolled, static_cast<std::size_t>(before + s), s, classes, times, origin, rank,
                 c);
  }
  return out;
}

}  // namespace linerate::sim
