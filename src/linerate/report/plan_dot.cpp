// A Plan as a graph. Frames are variants, and in them the lanes of a rank, from left to right as
// the step goes.
#include "linerate/report/plan_dot.hpp"

#include <fmt/format.h>

#include "linerate/core/index.hpp"
#include "linerate/doc/plan_index.hpp"

namespace linerate::report {
namespace {

// A string of the DOT language; a label reads a backslash as the begin of an escape. A name of a
// layer may hold either.
std::string dot_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c == '\n' || c == '\r' ? ' ' : c;
  }
  return out + "\"";
}

// "v0t12": task 12 of the first variant. Indices are those of the Plan.
std::string node(std::size_t variant, std::size_t task) {
  return fmt::format("v{}t{}", variant, task);
}

std::string label_of(const doc::Plan& plan, const doc::TaskGraph& graph, const doc::Task& task) {
  std::string label = title_of(plan, graph, task);
  if (const std::string_view operation = plan.operation_name(task); !operation.empty())
    label += fmt::format(" ({})", operation);
  return label;
}

// Lanes that no task takes have no frame.
std::string lanes_of(const doc::Plan& plan, std::size_t variant) {
  const doc::TaskGraph& graph = plan.variants[variant];
  const doc::VariantIndex index(plan, graph);
  std::string out;
  for (std::size_t lane = 0; lane < index.lanes.size(); ++lane) {
    if (index.lanes[lane].empty()) continue;
    out += fmt::format("    subgraph cluster_{}_{} {{\n      label={};\n", variant, lane,
                       dot_string(doc::kResourceNames[lane]));
    for (const std::uint32_t i : index.lanes[lane]) {
      const doc::Task& task = graph.tasks[i];
      out += fmt::format("      {} [label={}{}];\n", node(variant, i),
                         dot_string(label_of(plan, graph, task)),
                         task.origin == doc::Origin::observed ? ", style=rounded" : "");
    }
    out += "    }\n";
  }
  return out;
}

std::string edges_of(const doc::TaskGraph& graph, std::size_t variant) {
  std::string out;
  for (std::size_t i = 0; i < graph.tasks.size(); ++i)
    for (const std::uint32_t p : graph.predecessors(i))
      out += fmt::format("  {} -> {};\n", node(variant, p), node(variant, i));
  // They point back to the head of a step and must not move it.
  for (const doc::NextStepEdge& e : graph.next_step)
    out += fmt::format("  {} -> {} [style=dashed, constraint=false];\n", node(variant, e.from),
                       node(to_index(e.variant), e.to));
  return out;
}

}  // namespace

std::string to_dot(const doc::Plan& plan) {
  std::string out = fmt::format(
      "digraph plan {{\n  label={};\n  rankdir=LR;\n  node [shape=box];\n",
      dot_string(fmt::format("{}: {} on {} ranks", plan.workload, plan.strategy, plan.ranks)));
  for (std::size_t v = 0; v < plan.variants.size(); ++v)
    out += fmt::format("  subgraph cluster_{} {{\n    label={};\n{}  }}\n", v,
                       dot_string(plan.variants[v].name), lanes_of(plan, v));
  for (std::size_t v = 0; v < plan.variants.size(); ++v) out += edges_of(plan.variants[v], v);
  return out + "}\n";
}

}  // namespace linerate::report
