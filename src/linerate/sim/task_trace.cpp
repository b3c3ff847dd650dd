#include "linerate/sim/task_trace.hpp"

#include "linerate/sim/rank_classes.hpp"
#include "linerate/sim/run_graph.hpp"
#include "linerate/sim/unroll.hpp"

namespace linerate::sim {

std::vector<TracedTask> trace_tasks(const doc::Plan& plan, const cost::CostModel& model,
                                    int steps) {
  Unrolled unrolled;
  unroll(plan, 0, steps, unrolled);
  Prices prices(model, plan.ranks);
  TaskTimes times;
  run_graph(plan, unrolled.graph, prices, unrolled.begins, times, true);
  const RankClasses classes = classes_of(plan, unrolled.graph, model.cluster());
  std::vector<TracedTask> trace;
  for (std::int32_t rank = 0; rank < plan.ranks; ++rank)
    for (std::size_t step = 0; step < unrolled.begins.size(); ++step)
      for (std::uint32_t i = unrolled.begins[step]; i < unrolled.end(step); ++i) {
        const std::uint32_t slot = times.slot(i, classes.of_rank(rank));
        if (slot == kNoSlot) continue;
        trace.push_back({rank, static_cast<std::int64_t>(step), i - unrolled.begins[step],
                         times.start[slot], times.end[slot]});
      }
  return trace;
}

}  // namespace linerate::sim
