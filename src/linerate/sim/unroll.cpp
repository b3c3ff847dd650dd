// Lays several steps of a Plan one after the other. A variant of K-FAC has thousands of tasks, and
// 8 cycles are laid out to find the steady one, so copying is worth avoiding. A sweep over ranks
// that are alike works on the variants themselves. Only classes and events need the joined graph.
#include "linerate/sim/unroll.hpp"

#include <algorithm>
#include <iterator>

#include "linerate/core/index.hpp"

namespace linerate::sim {
namespace {

// Appends a step if the two steps before it are of the same variant. The last step's edges came
// from the step before it, at the same distance. So its tasks and edges are copied, and every
// predecessor moves on by `size` tasks.
void join_again(std::size_t last, std::size_t size, doc::TaskGraph& graph) {
  const std::size_t next = last + size;
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
}

bool repeats(const Unrolled& steps, std::size_t s) {
  return s >= 2 && steps.variants[s - 1] == steps.variants[s] &&
         steps.variants[s - 2] == steps.variants[s];
}

// Appends step `s`: its tasks, its own edges shifted by its first task, and the edges that arrive
// from the step before. Both kinds are ascending by the task that they lead to, so one pass merges
// them.
void join_step(std::size_t s, Unrolled& steps) {
  const doc::TaskGraph& step = steps.variant(s);
  if (repeats(steps, s)) return join_again(steps.begins[s - 1], step.tasks.size(), steps.joined);
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
  std::copy_if(before.next_step.begin(), before.next_step.end(), std::back_inserter(edges),
               [variant](const doc::NextStepEdge& e) { return e.variant == variant; });
  std::sort(edges.begin(), edges.end(), [](const auto& a, const auto& b) { return a.to < b.to; });
}

}  // namespace linerate::sim
