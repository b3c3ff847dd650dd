// Lays several steps of a Plan one after the other. A variant of K-FAC has thousands of tasks, and
// 8 cycles are laid out to find the steady one, so copying is worth avoiding. A sweep over ranks
// that are alike works on the variants themselves. Only classes and events need the joined graph.
#include <algorithm>
#include <iterator>
#include <limits>

#include "linerate/core/index.hpp"
#include "linerate/doc/scaling_factor.hpp"
#include "linerate/sim/simulator.hpp"

namespace linerate::sim {
namespace {

// Appends step `s`: its tasks, its own edges shifted by its first task, and the edges that arrive
// from the step before. Both kinds are ascending by the task that they lead to, so one pass merges
// them.
void join_step(std::size_t s, Unrolled& steps) {
  const doc::TaskGraph& step = steps.variant(s);
  doc::TaskGraph& graph = steps.joined;
  const std::uint32_t offset = steps.begins[s];
  const std::uint32_t before = s > 0 ? steps.begins[s - 1] : 0;
  std::vector<doc::NextStepEdge> arriving;
  if (s > 0) find_edges_into(steps.variants[s], steps.variant(s - 1), arriving);
  auto edge = arriving.begin();
  graph.tasks.insert(graph.tasks.end(), step.tasks.begin(), step.tasks.end());
  graph.pred_begin.resize(graph.tasks.size() + 1);
  graph.preds.reserve(graph.preds.size() + step.preds.size() + arriving.size());
  for (std::uint32_t i = 0; i < step.tasks.size(); ++i) {
    for (const std::uint32_t p : step.predecessors(i)) graph.preds.push_back(offset + p);
    for (; edge != arriving.end() && edge->to == i; ++edge)
      graph.preds.push_back(before + edge->from);
    graph.pred_begin[offset + i + 1] = static_cast<std::uint32_t>(graph.preds.size());
  }
}

// Simulates a Plan until its steps repeat and keeps the times of all tasks, which predicted
// Timelines and exposed communication read. The simulator (simulator.cpp) keeps the period alone.

constexpr int kMostRanksFollowed = 16;
constexpr std::size_t kCyclesToSettle = 8;

/// End of a class's last computation in a step, which it runs in order; 0 if it computes nothing.
double computed_until(const SteadyCycle& cycle, std::size_t step, std::int32_t rank_class) {
  const std::uint32_t begin = cycle.unrolled.begins[step];
  const std::vector<doc::Task>& tasks = cycle.unrolled.variant(step).tasks;
  for (std::uint32_t i = cycle.unrolled.end(step); i-- > begin;) {
    if (tasks[i - begin].resource != doc::Resource::compute) continue;
    const std::uint32_t slot = cycle.times.slot(i, rank_class);
    if (slot != kNoSlot) return cycle.times.end[slot];
  }
  return 0;
}

RankClasses one_class() {
  RankClasses classes;
  classes.classes.resize(1);
  return classes;
}

// A step begins on a class where the class's computation of the step before ended; the first step
// of all begins at 0. If computation ends at 10, 20 and 30 ms, step 2 lasts from 20 to 30 ms.
// Messages of step 1 may travel until 23 ms.
double begin_of(const SteadyCycle& cycle, std::size_t step, std::int32_t rank_class) {
  return step == 0 ? 0 : computed_until(cycle, step - 1, rank_class);
}

// Exposed communication is the time in which a rank communicates and does not compute. Both are
// unions of spans, and their difference is clipped to the steps of the cycle. Messages of a step
// before may reach into the cycle, so the events of all steps are gathered. An example: computation
// from 0 to 10 ms, an all-reduce from 8 to 13 ms and one from 13 to 15 ms. The spans of
// communication join into 8 to 15 ms, and 5 ms of them are exposed.

// Collects the spans of one kind in the order of the tasks. Tasks that follow one another without a
// gap join at once, as most computations do, so that a few spans are sorted instead of hundreds.
// Times are rounded to the nanosecond only after joining; otherwise rounding would open gaps.
class Spans {
 public:
  explicit Spans(const SteadyCycle& cycle) : cycle_(cycle) {}

  void add(double start_s, double end_s) {
    if (end_s <= start_s) return;
    if (start_s != end_s_) {
      close();
      start_s_ = start_s;
    }
    end_s_ = end_s;
  }
  SpanSet set() && {
    close();
    return union_of(std::move(spans_));
  }

 private:
  void close() {
    if (end_s_ > start_s_)
      spans_.push_back({cycle_.since_origin_ns(start_s_), cycle_.since_origin_ns(end_s_)});
  }

  const SteadyCycle& cycle_;
  std::vector<Span> spans_;
  double start_s_ = 0, end_s_ = 0;  // what is joined now
};

// Exposed communication of one rank of a class over the cycle, in seconds. Tasks that ended before
// the cycle begins count nowhere.
double of_class(const SteadyCycle& cycle, std::int32_t rank_class) {
  Spans communication(cycle), computation(cycle);
  const double begin_s = cycle.begin_s(rank_class);
  const Unrolled& steps = cycle.unrolled;
  for (std::size_t s = 0; s < steps.begins.size(); ++s) {
    std::uint32_t i = steps.begins[s];
    for (const doc::Task& task : steps.variant(s).tasks) {
      const std::uint32_t slot = cycle.times.slot(i++, rank_class);
      if (slot == kNoSlot || cycle.times.end[slot] <= begin_s) continue;
      const bool sends = doc::is_communication(task.kind);
      if (!sends && !doc::is_computation(task.kind)) continue;
      (sends ? communication : computation).add(cycle.times.start[slot], cycle.times.end[slot]);
    }
  }
  const SpanSet exposed =
      doc::exposed_communication(std::move(communication).set(), std::move(computation).set());
  double sum = 0;
  for (std::size_t s = 0; s < cycle.steps(); ++s)
    sum += seconds_of(clipped(exposed, cycle.step(s, rank_class)));
  return sum;
}

}  // namespace

std::int64_t first_of_cycle(const doc::Plan& plan) {
  return static_cast<std::int64_t>(plan.warm_up.size());
}

bool reaches_next_step(const doc::Plan& plan) {
  for (std::size_t s = 0; s < plan.cycle.size(); ++s) {
    const std::int32_t next = plan.cycle[(s + 1) % plan.cycle.size()];
    for (const auto& edge : plan.variants[to_index(plan.cycle[s])].next_step)
      if (edge.variant == next) return true;
  }
  return false;
}

void lay_out_steps(const doc::Plan& plan, std::int64_t first_step, int steps, Unrolled& out) {
  out.plan = &plan;
  out.begins.clear();
  out.variants.clear();
  out.joined.clear();
  std::uint32_t begin = 0;
  for (int s = 0; s < steps; ++s) {
    out.begins.push_back(begin);
    out.variants.push_back(plan.variant_index_of_step(first_step + s));
    begin = out.end(to_index(s));
  }
}

void join(Unrolled& steps) {
  if (steps.begins.size() == 1 || !steps.joined.tasks.empty()) return;
  for (std::size_t s = 0; s < steps.begins.size(); ++s) join_step(s, steps);
}

void unroll(const doc::Plan& plan, std::int64_t first_step, int steps, Unrolled& out) {
  lay_out_steps(plan, first_step, steps, out);
  join(out);
}

void find_edges_into(std::int32_t variant, const doc::TaskGraph& before,
                     std::vector<doc::NextStepEdge>& edges) {
  edges.clear();
  std::ranges::copy_if(before.next_step, std::back_inserter(edges),
                       [variant](const doc::NextStepEdge& e) { return e.variant == variant; });
  std::ranges::sort(edges, {}, &doc::NextStepEdge::to);
}

Span SteadyCycle::step(std::size_t index, std::int32_t rank_class) const {
  const double end = computed_until(*this, first_step + index, rank_class);
  if (end <= 0) return {};
  return {since_origin_ns(begin_of(*this, first_step + index, rank_class)), since_origin_ns(end)};
}

double SteadyCycle::begin_s(std::int32_t rank_class) const {
  return begin_of(*this, first_step, rank_class);
}

SteadyCycle steady_cycle(const doc::Plan& plan, const cost::CostModel& model) {
  SteadyCycle cycle;
  Prices prices(model, plan.ranks);
  find_steady_cycle(plan, prices, cycle);
  join(cycle.unrolled);
  return cycle;
}

// Eight cycles before the one that is shown are enough for overlapping steps to settle in practice.
// This fixed number keeps the result one run; simulator.cpp checks that the period repeats.
void find_steady_cycle(const doc::Plan& plan, Prices& prices, SteadyCycle& cycle) {
  const std::size_t length = plan.cycle.size();
  // If steps do not overlap, one cycle is like another.
  cycle.first_step = reaches_next_step(plan) ? kCyclesToSettle * length : 0;
  lay_out_steps(plan, first_of_cycle(plan), static_cast<int>(cycle.first_step + length),
                cycle.unrolled);
  cycle.end_s = run_steps(cycle.unrolled, prices, cycle.times);
  const doc::Cluster& cluster = prices.model().cluster();
  cycle.classes = are_alike(cycle.unrolled, cluster)
                      ? one_class()
                      : classes_of(plan, cycle.unrolled.graph(), cluster);
  cycle.origin_s = std::numeric_limits<double>::infinity();
  for (std::int32_t c = 0; c < cycle.classes.count(); ++c)
    cycle.origin_s = std::min(cycle.origin_s, cycle.begin_s(c));
}

std::vector<std::int32_t> shown_ranks(const doc::Plan& plan, const RankClasses& classes) {
  std::vector<std::int32_t> ranks;
  for (std::int32_t rank = 0; rank < plan.ranks; ++rank) {
    const auto c = to_index(classes.of_rank(rank));
    if (plan.ranks <= kMostRanksFollowed || classes.classes[c].first_rank == rank)
      ranks.push_back(rank);
  }
  return ranks;
}

double exposed_communication_s(const doc::Plan& plan, const cost::CostModel& model) {
  return exposed_communication_s(plan, steady_cycle(plan, model));
}

double exposed_communication_s(const doc::Plan& plan, const SteadyCycle& cycle) {
  std::vector<double> of_classes;
  for (std::int32_t c = 0; c < cycle.classes.count(); ++c) of_classes.push_back(of_class(cycle, c));
  double sum = 0;
  const std::vector<std::int32_t> ranks = shown_ranks(plan, cycle.classes);
  for (const std::int32_t rank : ranks) sum += of_classes[to_index(cycle.classes.of_rank(rank))];
  return sum / static_cast<double>(ranks.size() * cycle.steps());
}

}  // namespace linerate::sim
