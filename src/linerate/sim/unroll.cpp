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

// The step appended last came after one of its own variant and the next one is of it, too: all
// edges are the same again, `size` tasks later.
void append_again(std::size_t size, Unrolled& out) {
  doc::TaskGraph& graph = out.joined;
  const std::size_t last = out.begins.back(), next = last + size;
  const std::size_t edges_begin = graph.pred_begin[last], edges_end = graph.pred_begin[next];
  const std::size_t edges = edges_end - edges_begin;
  graph.tasks.resize(next + size);
  std::copy_n(graph.tasks.begin() + static_cast<std::ptrdiff_t>(last), size,
              graph.tasks.begin() + static_cast<std::ptrdiff_t>(next));
  graph.preds.resize(edges_end + edges);
  std::uint32_t* const preds = graph.preds.data();
  for (std::size_t e = edges_begin; e < edges_end; ++e)
    preds[e + edges] = preds[e] + static_cast<std::uint32_t>(size);
  graph.pred_begin.resize(next + size + 1);
  std::uint32_t* const begins = graph.pred_begin.data();
  for (std::size_t i = last + 1; i <= next; ++i)
    begins[i + size] = begins[i] + static_cast<std::uint32_t>(edges);
  out.begins.push_back(static_cast<std::uint32_t>(next));
  out.variants.push_back(out.variants.back());
}

bool repeats(std::int32_t variant, const Unrolled& out) {
  const std::size_t steps = out.variants.size();
  return steps >= 2 && out.variants[steps - 1] == variant && out.variants[steps - 2] == variant;
}

void append_step(const doc::Plan& plan, std::int32_t variant, Unrolled& out) {
  const doc::TaskGraph& step = plan.variants[static_cast<std::size_t>(variant)];
  if (repeats(variant, out)) return append_again(step.tasks.size(), out);
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
