#include "linerate/sim/unroll.hpp"

#include <algorithm>

namespace linerate::sim {
namespace {

// Appends a step; `before` is the step in front of it and where its tasks begin.
void append_step(const doc::TaskGraph& step, const doc::TaskGraph* before,
                 std::uint32_t before_begin, Unrolled& out) {
  doc::TaskGraph& graph = out.graph;
  const auto offset = static_cast<std::uint32_t>(graph.tasks.size());
  std::vector<doc::NextStepEdge> arriving;
  if (before) arriving = before->next_step;
  std::sort(arriving.begin(), arriving.end(),
            [](const auto& a, const auto& b) { return a.to < b.to; });
  auto edge = arriving.begin();
  for (std::uint32_t i = 0; i < step.tasks.size(); ++i) {
    graph.tasks.push_back(step.tasks[i]);
    for (std::uint32_t p = step.pred_begin[i]; p < step.pred_begin[i + 1]; ++p)
      graph.preds.push_back(offset + step.preds[p]);
    for (; edge != arriving.end() && edge->to == i; ++edge)
      graph.preds.push_back(before_begin + edge->from);
    graph.pred_begin.push_back(static_cast<std::uint32_t>(graph.preds.size()));
  }
  out.begins.push_back(offset);
}

}  // namespace

Cycle cycle_of(const doc::Plan& plan) {
  Cycle cycle;
  for (const std::int32_t v : plan.cycle)
    cycle.push_back(&plan.variants[static_cast<std::size_t>(v)]);
  return cycle;
}

bool reaches_next_step(const Cycle& cycle) {
  return std::any_of(cycle.begin(), cycle.end(),
                     [](const doc::TaskGraph* graph) { return !graph->next_step.empty(); });
}

void unroll(const Cycle& cycle, int steps, Unrolled& out) {
  out.graph.clear();
  out.begins.clear();
  const doc::TaskGraph* before = nullptr;
  for (int s = 0; s < steps; ++s) {
    const doc::TaskGraph* graph = cycle[static_cast<std::size_t>(s) % cycle.size()];
    append_step(*graph, before, before ? out.begins.back() : 0, out);
    before = graph;
  }
}

}  // namespace linerate::sim
