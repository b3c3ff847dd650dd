// Puts the interval of a predicted step together. Four things are not known exactly: the price of
// collectives, the time of one rank alone (T_1), the speed of codecs, and how the processors that
// compute and carry messages fare in another run. The simulator gives the first, and the others are
// added here. They are independent, so their squares add up.
//
// An example: a step of 100 ms with 97 to 103 ms by its collectives. T_1 was measured to within 4
// ms. The step is then 95 to 105 ms, since hypot(3, 4) = 5.
#include "linerate/sim/simulator.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "linerate/core/index.hpp"
#include "linerate/doc/plan_index.hpp"
#include "linerate/doc/validate.hpp"

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

/// Of a step, on average over a cycle.
double computing_s(const doc::Plan& plan) {
  double all_s = 0;
  for (const std::int32_t v : plan.cycle)
    for (const doc::Task& task : plan.variants[to_index(v)].tasks)
      if (task.resource == doc::Resource::compute) all_s += task.seconds;
  return all_s / static_cast<double>(plan.cycle.size());
}

/// Where processors compute and carry messages, computing differs between runs as the probe's
/// rounds did (noise_floor). Where ranks share cores, a rank may also wait for a core instead of
/// communicating, so that nothing overlaps.
doc::Bounded with_interval_of_processors(doc::Bounded step_s, const doc::Plan& plan,
                                         const cost::CostModel& model, double communication_s) {
  const doc::Cluster& cluster = model.cluster();
  if (!step_s.has_interval() || !cluster.contention || model.has_spread()) return step_s;
  const double noise = cluster.noise_floor.value_or(0), alone_s = computing_s(plan);
  step_s = widened(step_s, alone_s * noise / (1 + noise), alone_s * noise);
  if (plan.ranks > 1 && ranks_per_core(cluster, plan.ranks) > 1)
    step_s.high = std::max(*step_s.high, (1 + noise) * (alone_s + communication_s));
  return step_s;
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

// Writes a simulated cycle as the Timeline that training would record, so that `compare` and
// `report` read both in one way. Three things differ between a simulation and a recording. A
// simulation has tasks without duration, which are left out. It has a backward task for each
// gradient, and training records one event a layer; join_with_last() joins them. And it has classes
// of ranks, and a Timeline has ranks; every shown rank gets the times of its class.

using doc::Event;
using doc::Task;
using doc::TaskKind;

class Writer {
 public:
  Writer(const doc::Plan& plan, const SteadyCycle& cycle, doc::Timeline& out)
      : plan_(plan), cycle_(cycle), out_(out) {
    out_.parameter_names = plan.gradient_names;
  }

  /// Adds events of steps before the cycle that still run on this rank while the cycle does. A step
  /// of dear, for example, leaves its all-gathers to the next step.
  void add_earlier(std::int32_t rank) {
    const std::int32_t rank_class = cycle_.classes.of_rank(rank);
    const std::int64_t begin_ns = cycle_.step(0, rank_class).start_ns;
    for (std::size_t step = 0; step < cycle_.first_step; ++step)
      add_events(step, rank, doc::kEarlierStep, begin_ns);
  }

  void add(std::int32_t rank, int index) {
    const std::int32_t rank_class = cycle_.classes.of_rank(rank);
    add_events(cycle_.first_step + to_index(index), rank, index,
               std::numeric_limits<std::int64_t>::min());
    const Span step = cycle_.step(to_index(index), rank_class);
    // A rank without computation has no step of its own.
    if (step.length() > 0)
      out_.steps.push_back({rank, index, step.start_ns, step.end_ns, variant_->name});
  }

 private:
  // Adds those that end after `after_ns`, as events of step `index`.
  void add_events(std::size_t step, std::int32_t rank, int index, std::int64_t after_ns) {
    const std::int32_t rank_class = cycle_.classes.of_rank(rank);
    variant_ = &plan_.variants[to_index(cycle_.unrolled.variants[step])];
    const std::size_t first_event = out_.events.size();
    for (std::uint32_t i = cycle_.unrolled.begins[step]; i < cycle_.unrolled.end(step); ++i) {
      const std::optional<Span> span = cycle_.span(i, rank_class);
      if (!span || span->end_ns <= after_ns) continue;
      const Task& task = cycle_.unrolled.graph().tasks[i];
      Event event = event_of(task, rank, index);
      event.start_ns = span->start_ns;
      event.end_ns = span->end_ns;
      if (doc::is_communication(task.kind)) event.ready_ns = ready_ns(i, rank_class);
      if (!join_with_last(event, task, first_event)) out_.events.push_back(event);
    }
  }

  // When the last predecessor of a task ended, in the rank's own class; the cycle's begin if the
  // task has none. The difference to the event's start is the time that the task waited for its
  // resource.
  std::int64_t ready_ns(std::uint32_t i, std::int32_t rank_class) const {
    double at = cycle_.origin_s;
    for (const std::uint32_t p : cycle_.unrolled.graph().predecessors(i)) {
      const std::uint32_t slot = cycle_.times.slot(p, rank_class);
      if (slot != kNoSlot) at = std::max(at, cycle_.times.end[slot]);
    }
    return cycle_.since_origin_ns(at);
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

  // The gradients of one layer get ready one after the other, and training records the layer. The
  // backward event before this one on the compute resource takes this gradient in if it has the
  // same layer's name. Events of other resources in between do not separate the two.
  bool join_with_last(const Event& event, const Task& task, std::size_t first_event) {
    if (event.kind != TaskKind::backward || doc::layer_of(plan_, task) < 0) return false;
    for (std::size_t i = out_.events.size(); i-- > first_event;) {
      Event& last = out_.events[i];
      if (last.resource != doc::Resource::compute) continue;
      if (last.kind != TaskKind::backward || last.name != event.name) return false;
      last.end_ns = event.end_ns;
      std::vector<std::int32_t> both = out_.parameter_sets[to_index(last.set)];
      both.push_back(task.first);
      last.set = set(std::move(both));
      return true;
    }
    return false;
  }

  // Indices into Timeline::names and Timeline::parameter_sets; equal texts and sets share one.
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
  const SteadyCycle& cycle_;
  doc::Timeline& out_;
  const doc::TaskGraph* variant_ = nullptr;
  std::map<std::string, std::int32_t> names_;
  std::map<std::vector<std::int32_t>, std::int32_t> sets_;
};

}  // namespace

bool has_coding(const doc::Plan& plan) {
  const std::vector<doc::Task>& tasks = plan.variants.back().tasks;
  return std::any_of(tasks.begin(), tasks.end(), takes_coding_time);
}

PredictedStep predicted_step(const SimResult& result, const doc::Plan& plan,
                             const doc::Workload& workload, const cost::CostModel& model,
                             Simulator& simulator, double coding_spread) {
  const auto of_run = [&](const SimResult& r) {
    return with_interval_of_processors(with_interval_of_t1(r.step(), workload, model), plan, model,
                                       r.communication_s);
  };
  PredictedStep predicted{
      with_interval_of_coding(of_run(result), plan, model, simulator, coding_spread), {}};
  // Every rank codes at about the same time, each on the one thread that it was measured on.
  const double times = ranks_per_core(model.cluster(), plan.ranks);
  if (times <= 1 || !has_coding(plan)) return predicted;
  const SimResult crowded = simulator.simulate(with_slower_coding(plan, times), model);
  predicted.crowded_s = crowded.step_s;
  predicted.step_s.high =
      std::max(predicted.step_s.high_or_value(), of_run(crowded).high_or_value());
  return predicted;
}

doc::Timeline predicted_timeline(const doc::Plan& plan, const doc::Workload& workload,
                                 const cost::CostModel& model) {
  validate(plan, "");
  validate(workload);
  doc::Timeline out;
  out.mode = "predicted";
  out.source = "simulated";
  out.workload = plan.workload;
  out.strategy = plan.strategy;
  out.ranks = plan.ranks;
  if (const double line = model.line_bytes_per_s(); line > 0) out.line_rate_bytes_per_s = line;
  out.one_rank_step_s = workload.one_rank_step_s();
  out.computation_slowed = contends(Prices(model, plan.ranks));

  const SteadyCycle cycle = steady_cycle(plan, model);
  Writer writer(plan, cycle, out);
  for (const std::int32_t rank : shown_ranks(plan, cycle.classes)) {
    writer.add_earlier(rank);
    for (int s = 0; s < static_cast<int>(plan.cycle.size()); ++s) writer.add(rank, s);
  }
  return out;
}

}  // namespace linerate::sim
