// Simulates a Plan until its steps repeat and keeps the times of all tasks, which predicted
// Timelines and exposed communication read. The simulator (simulator.cpp) keeps the period alone.
#include "linerate/sim/steady_cycle.hpp"

#include <algorithm>
#include <limits>

#include "linerate/core/index.hpp"
#include "linerate/sim/run_graph.hpp"

namespace linerate::sim {
namespace {

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

}  // namespace

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
  cycle.end_s = run_steps(cycle.unrolled, prices, cycle.times, true);
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

}  // namespace linerate::sim
