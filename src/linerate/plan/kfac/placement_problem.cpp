// Plays a placement through: arrivals, inverses in their order, then messages and directions. The
// searches call this thousands of times, so it follows the clocks of ranks and of the channel and
// no single task.
#include "linerate/plan/kfac/placement_problem.hpp"

#include <algorithm>
#include <numeric>

#include "linerate/core/index.hpp"

namespace linerate::plan {
namespace {

/// The last transfer that brings a factor; negative if all are there. Gradients may follow it.
std::int32_t last_arrival(const PlacementProblem& problem) {
  return problem.after.empty() ? -1 : *std::max_element(problem.after.begin(), problem.after.end());
}

/// For each layer, the number of its inverses that come by a message.
std::vector<int> messages_missing(const PlacementProblem& problem, const Placement& placement) {
  std::vector<int> missing(problem.layer_s.size());
  if (problem.layer.empty()) return missing;
  for (std::size_t i = 0; i < placement.owner.size(); ++i)
    if (placement.owner[i] != kEverywhere) ++missing[to_index(problem.layer[i])];
  return missing;
}

/// Layers in the order in which their gradients arrive, the last layer first.
std::vector<std::int32_t> layers_by_arrival(const PlacementProblem& problem) {
  std::vector<std::int32_t> order(problem.layer_s.size());
  std::iota(order.rbegin(), order.rend(), 0);
  if (!problem.gradient_after.empty())
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t x, std::int32_t y) {
      return problem.gradient_after[to_index(x)] < problem.gradient_after[to_index(y)];
    });
  return order;
}

void precondition_what_misses_nothing(const PlacementProblem& problem, const Placement& placement,
                                      Arrivals& arrivals, Timetable& table) {
  const std::vector<int> missing = messages_missing(problem, placement);
  for (const std::int32_t l : layers_by_arrival(problem)) {
    if (missing[to_index(l)] > 0) continue;
    const std::int32_t gradient =
        problem.gradient_after.empty() ? -1 : problem.gradient_after[to_index(l)];
    if (arrivals.brings(gradient))
      table.computed_s = std::max(table.computed_s, arrivals.through_s(gradient, table.computed_s));
    table.computed_s += problem.layer_s[to_index(l)];
  }
}

}  // namespace

Timetable timetable_of(const PlacementProblem& problem, const Placement& placement) {
  Timetable table;
  table.done_s.resize(problem.inverse_s.size());
  Arrivals arrivals(problem);
  Clocks clocks(problem);
  if (placement.behind_arrivals)
    clocks.wait_until(arrivals.through_s(last_arrival(problem), clocks.latest_s()));
  for (const std::int32_t i : placement.order) {
    if (const std::int32_t arrival = arrival_of(problem, i); arrivals.brings(arrival))
      clocks.wait_until(arrivals.through_s(arrival, clocks.latest_s()));
    table.done_s[to_index(i)] =
        clocks.work(placement.owner[to_index(i)], problem.inverse_s[to_index(i)]);
  }
  table.computed_s = clocks.latest_s();
  precondition_what_misses_nothing(problem, placement, arrivals, table);
  table.free_s = arrivals.last_s(table.computed_s);
  return table;
}

double ends_after_s(const PlacementProblem& problem, const Timetable& table,
                    const Placement& placement) {
  double left_s = 0;
  if (problem.columns == 1 && !problem.layer.empty()) {
    const std::vector<int> missing = messages_missing(problem, placement);
    for (std::size_t l = 0; l < missing.size(); ++l)
      if (missing[l] > 0) left_s += problem.layer_s[l];
  }
  return std::max(table.computed_s, table.free_s) + left_s;
}

// Follows the messages in their order, each column on a channel of its own. A message leaves once
// its last inverse is made. A layer is finished after the message that brings its last inverse.
double end_of_layers(const PlacementProblem& problem, const Timetable& table,
                     const Placement& placement) {
  std::vector<int> missing = messages_missing(problem, placement);
  const auto layer_of = [&](std::int32_t i) { return to_index(problem.layer[to_index(i)]); };
  const Channel channel{table.computed_s, problem.communication_slowdown};
  // A rank is in one column.
  std::vector<double> free_s(to_index(problem.columns), table.free_s),
      ends_s(free_s.size(), std::max(table.computed_s, table.free_s));
  auto member = placement.sent.begin();
  for (const std::int32_t end : placement.ends) {
    const auto behind = placement.sent.begin() + end;
    const auto column = to_index(placement.owner[to_index(*member)] % problem.columns);
    double done_s = free_s[column];
    std::int64_t elements = 0;
    for (auto m = member; m != behind; ++m) {
      done_s = std::max(done_s, table.done_s[to_index(*m)]);
      elements += problem.elements.empty() ? 0 : problem.elements[to_index(*m)];
    }
    const double seconds = problem.seconds_of ? problem.seconds_of(elements, behind - member)
                                              : problem.broadcast_s[to_index(*member)];
    free_s[column] = channel.end_of(done_s, seconds);
    ends_s[column] = std::max(ends_s[column], free_s[column]);
    for (; member != behind; ++member)
      if (!problem.layer.empty() && --missing[layer_of(*member)] == 0)
        ends_s[column] += problem.layer_s[layer_of(*member)];
  }
  return *std::max_element(ends_s.begin(), ends_s.end());
}

}  // namespace linerate::plan
