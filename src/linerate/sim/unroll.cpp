#include "linerate/sim/unroll.hpp"

#include <algorithm>
#include <iterator>

namespace linerate::sim {
namespace {

// Edges out of the step appended last into one of this variant, by the task that they lead to.
std::vector<doc::NextStepEdge> edges_into(const doc::Plan& plan, std::int32_t variant,
                                          const Unrolled& out) {
  std::vector<doc::NextStepEdge> edges;
  if (out.variants.empty()) return edges;
  const doc::TaskGraph& before = plan.variants[static_cast<std::size_t>(out.variants.back())];
  std::copy_if(before.next_step.begin(), before.next_step.end(), std::back_inserter(edges),
               [variant](const doc::NextStepEdge& e) { return e.variant == variant; });
  std::sort(edges.begin(), edges.end(), [](const auto& a, const auto& b) { return a.to < b.to; });
  return edges;
}

void append_step(const doc::Plan& plan, std::int32_t variant, Unrolled& out) {
  const doc::TaskGraph& step = plan.variants[static_cast<std::size_t>(variant)];
  doc::TaskGraph& graph = out.joined;
  const auto offset = static_cast<std::uint32_t>(graph.tasks.size());
  const std::uint32_t before = out.begins.empty() ? 0 : out.begins.back();
  const std::vector<doc::NextStepEdge> arriving = edges_into(plan, variant, out);
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
  out.begins.push_back(offset);
  out.variants.push_back(variant);
}

}  // namespace

std::int64_t first_of_cycle(const doc::Plan& plan) {
  return static_cast<std::int64_t>(plan.warm_up.size());
}

bool reaches_next_step(const doc::Plan& plan) {
  for (std::size_t s = 0; s < plan.cycle.size(); ++s) {
    const std::int32_t next = plan.cycle[(s + 1) % plan.cycle.size()];
    for (const auto& edge : plan.variants[static_cast<std::size_t>(plan.cycle[s])].next_step)
      if (edge.variant == next) return true;
  }
  return false;
}

void unroll(const doc::Plan& plan, std::int64_t first_step, int steps, Unrolled& out) {
  out.begins.clear();
  out.variants.clear();
  if (steps == 1) {
    const std::int32_t variant = plan.variant_index_of_step(first_step);
    out.single = &plan.variants[static_cast<std::size_t>(variant)];
    out.begins.push_back(0);
    out.variants.push_back(variant);
    return;
  }
  out.single = nullptr;
  out.joined.clear();
  for (int s = 0; s < steps; ++s)
    append_step(plan, plan.variant_index_of_step(first_step + s), out);
}

}  // namespace linerate::sim
