#include "linerate/sim/slot_graph.hpp"

namespace linerate::sim {
namespace {

template <typename Action>
void for_edges(const doc::TaskGraph& graph, const TaskTimes& times, Action action) {
  for (std::uint32_t i = 0; i < graph.tasks.size(); ++i)
    for (const std::uint32_t p : graph.predecessors(i)) times.for_shared(p, i, action);
}

}  // namespace

// Two passes over the edges fill the CSR arrays: the first one counts, the second one writes.
SlotGraph::SlotGraph(const doc::TaskGraph& graph, const TaskTimes& times)
    : waits(times.first.back(), 0), begin_(times.first.back() + 1, 0) {
  for_edges(graph, times, [this](std::uint32_t before, std::uint32_t after) {
    ++waits[after];
    ++begin_[before + 1];
  });
  for (std::size_t s = 0; s < waits.size(); ++s) begin_[s + 1] += begin_[s];
  successors_.resize(begin_.back());
  std::vector<std::uint32_t> next(begin_.begin(), begin_.end() - 1);
  for_edges(graph, times, [this, &next](std::uint32_t before, std::uint32_t after) {
    successors_[next[before]++] = after;
  });
}

}  // namespace linerate::sim
