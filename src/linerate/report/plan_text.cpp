// A Plan as tables: its schedule, then for each variant the payloads, the tasks in plan order, and
// the edges into the next step. Numbers of payloads and tasks are those of the document, so a row
// can be found there again.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"
#include "linerate/core/text_table.hpp"
#include "linerate/doc/plan_index.hpp"
#include "linerate/report/texts.hpp"

namespace linerate::report {
namespace {

constexpr const char* kNothing = "-";

constexpr const char* kIndent = "  ";

// "gradients", or "encoded, of 3" of what stands for payload 3. "gradients, 47 flags" ends with
// what ranks tell each other.
std::string content_of(const doc::Payload& p) {
  std::string content{name_of(p.content)};
  if (p.of >= 0) content += fmt::format(", of {}", p.of);
  if (p.flags > 0) content += fmt::format(", {} flags", p.flags);
  return content;
}

std::string payloads_of(const doc::TaskGraph& graph) {
  TextRows rows;
  for (std::size_t i = 0; i < graph.payloads.size(); ++i) {
    const doc::Payload& p = graph.payloads[i];
    rows.push_back({std::to_string(i), content_of(p), std::string(name_of(p.dtype)),
                    std::to_string(p.elements), std::to_string(p.padded), std::to_string(p.bytes()),
                    p.end > p.begin ? std::to_string(p.end - p.begin) : kNothing});
  }
  return text_table({">payload", "content", "dtype", ">elements", ">padded", ">bytes", ">members"},
                    rows, kIndent);
}

// "<= 4096" where the size is a bound: a compressor decides at run time how much of it is sent.
std::string bytes_of(const doc::Task& task) {
  if (task.bytes == 0) return kNothing;
  return fmt::format("{}{}", task.bound ? "<= " : "", task.bytes);
}

// "whole", or "whole, root 2" of a broadcast or a reduction to one rank.
std::string group_text(const doc::Plan& plan, const doc::Task& task) {
  const std::string& name = plan.group_of(task).name;
  return task.root < 0 ? name : fmt::format("{}, root {}", name, task.root);
}

std::string or_nothing(std::string text) { return text.empty() ? kNothing : text; }

// The operation by its parameters, as the Plan holds it.
std::string operation_of(const doc::Plan& plan, const doc::Task& task) {
  if (task.operation < 0) return kNothing;
  return doc::to_text(plan.operations[to_index(task.operation)]);
}

// A line a task. Its time is the prediction's if there is one, else the Plan's own. A collective
// has none of its own.
std::string tasks_of(const doc::Plan& plan, const doc::TaskGraph& graph,
                     const SecondsOf& seconds_of) {
  TextRows rows;
  for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
    const doc::Task& t = graph.tasks[i];
    const double seconds = seconds_of ? seconds_of(t) : t.seconds;
    rows.push_back({std::to_string(i), std::string(name_of(t.kind)),
                    or_nothing(doc::subject_of(plan, graph, t)), operation_of(plan, t),
                    std::string(name_of(t.resource)), group_text(plan, t),
                    t.origin == doc::Origin::executed ? "executed" : "observed", bytes_of(t),
                    seconds > 0 ? format_time(seconds) : kNothing,
                    or_nothing(fmt::format("{}", fmt::join(graph.predecessors(i), " ")))});
  }
  return text_table({">task", "kind", "subject", "operation", "lane", "group", "origin", ">bytes",
                     ">time", "after"},
                    rows, kIndent);
}

// An edge into the next step leads to a task of the variant that runs then, which may be another
// one.
std::string next_step_of(const doc::Plan& plan, const doc::TaskGraph& graph) {
  std::string out;
  for (const doc::NextStepEdge& e : graph.next_step)
    out += fmt::format("  task {} of the next step, where it is {}, waits for task {}\n", e.to,
                       plan.variants[to_index(e.variant)].name, e.from);
  return out;
}

// "0 1 | 2 3": ranks that exchange among themselves, part by part.
std::string parts_of(const doc::Group& group) {
  if (group.parts.empty()) return "every rank";
  std::vector<std::string> parts;
  for (const auto& part : group.parts) parts.push_back(fmt::format("{}", fmt::join(part, " ")));
  return join(parts, " | ");
}

// Steps of one variant that follow each other. An example: the schedule A A A B A A A B has the
// runs A 3, B 1, A 3, B 1. Neighbours are never of one variant.
struct Run {
  std::int32_t variant = 0;
  std::size_t steps = 0;
  bool operator==(const Run&) const = default;
};

std::vector<Run> runs_of(const std::vector<std::int32_t>& schedule) {
  std::vector<Run> runs;
  for (const std::int32_t variant : schedule) {
    if (runs.empty() || runs.back().variant != variant) runs.push_back({variant, 0});
    ++runs.back().steps;
  }
  return runs;
}

// Runs that come `times` times, one after the other. The example's runs are one pattern: A 3, B 1,
// which comes twice.
struct Pattern {
  std::span<const Run> runs;
  std::size_t times = 1;

  std::size_t steps() const {
    std::size_t sum = 0;
    for (const Run& run : runs) sum += run.steps;
    return times * sum;
  }
};

// Greedy from the left: the shortest pattern that begins with the first run and comes again at
// once, else that run alone. Then comes what follows it. Of A B A B C: A B twice, then C. A pattern
// that repeats has at least two runs, as neighbours differ. Each length is tried in turn: of A B C
// A B C, length 2 fails at C, and length 3 comes twice.
std::vector<Pattern> patterns_of(std::span<const Run> runs) {
  std::vector<Pattern> patterns;
  while (!runs.empty()) {
    Pattern pattern{runs.first(1)};
    for (std::size_t length = 2; pattern.times == 1 && 2 * length <= runs.size(); ++length) {
      std::size_t times = 1;
      while (length * (times + 1) <= runs.size() &&
             std::ranges::equal(runs.first(length), runs.subspan(length * times, length)))
        ++times;
      if (times > 1) pattern = {runs.first(length), times};
    }
    patterns.push_back(pattern);
    runs = runs.subspan(pattern.runs.size() * pattern.times);
  }
  return patterns;
}

// "2 times (A 3 times, B)". A pattern that comes once has one run and is named alone: "A 3 times".
std::string name_of_pattern(const doc::Plan& plan, const Pattern& pattern, bool says_steps) {
  std::vector<std::string> names;
  for (const Run& run : pattern.runs)
    names.push_back(plan.variants[to_index(run.variant)].name +
                    (says_steps && run.steps > 1 ? fmt::format(" {} times", run.steps) : ""));
  return pattern.times == 1 ? names.front()
                            : fmt::format("{} times ({})", pattern.times, join(names, ", "));
}

// A summary of `blocks` in one line. A symmetric factor is packed: one triangle of it is sent. The
// directions are what preconditioning gives, as many elements as the gradients.
std::string blocks_of(const doc::Plan& plan) {
  std::int64_t factors = 0, elements = 0, directions = 0;
  for (const doc::Block& b : plan.blocks) {
    for (const doc::FactorSide side : {doc::FactorSide::a, doc::FactorSide::g}) {
      const std::int64_t packed = packed_elements(b, side);
      factors += packed > 0;
      elements += packed;
    }
    directions += gradient_elements(b);
  }
  return fmt::format("blocks: {} layers, {} factors of {} elements, packed, directions of {}\n",
                     plan.blocks.size(), factors, elements, directions);
}

// Variants outside the schedule: a runner chooses them.
std::string chosen_at_run_time(const doc::Plan& plan) {
  std::vector<std::string> names;
  for (std::size_t v = 0; v < plan.variants.size(); ++v) {
    const auto runs = [v](const std::vector<std::int32_t>& steps) {
      return std::ranges::count(steps, static_cast<std::int32_t>(v)) > 0;
    };
    if (!runs(plan.warm_up) && !runs(plan.cycle)) names.push_back(plan.variants[v].name);
  }
  return join(names, ", ");
}

// A Plan as a graph. Frames are variants, and in them the lanes of a rank, from left to right as
// the step goes.

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

// The warm-up is said by step numbers, the cycle by counts alone, as it goes on for ever. "step 0:
// first-step, then: A 4 times, B, in turn" is a cycle of five steps.
std::string schedule_of(const doc::Plan& plan) {
  std::string out;
  std::size_t step = 0;
  const std::vector<Run> warm_up = runs_of(plan.warm_up), cycle = runs_of(plan.cycle);
  for (const Pattern& pattern : patterns_of(warm_up)) {
    const std::size_t steps = pattern.steps();
    out += steps == 1 ? fmt::format("step {}: ", step)
                      : fmt::format("steps {} to {}: ", step, step + steps - 1);
    out += name_of_pattern(plan, pattern, pattern.times > 1) + ", ";
    step += steps;
  }
  out += out.empty() ? "every step: " : "then: ";
  std::vector<std::string> names;
  for (const Pattern& pattern : patterns_of(cycle))
    names.push_back(name_of_pattern(plan, pattern, cycle.size() > 1));
  return out + join(names, ", ") + (cycle.size() > 1 ? ", in turn" : "");
}

// The hash is of all that decides what ranks exchange: two ranks that print the same one can run
// together.
std::string text_of(const doc::Plan& plan, const SecondsOf& seconds_of) {
  std::string out = fmt::format("{}: {} on {} rank{}, hash {:016x}\n",
                                plan.workload.empty() ? "workload" : plan.workload, plan.strategy,
                                plan.ranks, plan.ranks == 1 ? "" : "s", plan.hash());
  out += fmt::format("schedule: {}\n", schedule_of(plan));
  if (const std::string chosen = chosen_at_run_time(plan); !chosen.empty())
    out += fmt::format("chosen at run time: {}\n", chosen);
  for (const doc::Group& group : plan.groups)
    out += fmt::format("group {}: {}\n", group.name, parts_of(group));
  if (!plan.blocks.empty()) out += blocks_of(plan);
  for (const doc::TaskGraph& graph : plan.variants)
    out += fmt::format("\n{}\n{}\n{}{}", graph.name, payloads_of(graph),
                       tasks_of(plan, graph, seconds_of), next_step_of(plan, graph));
  return out +
         "\nlane: a rank's queue of such tasks; origin: linerate executes the task, or observes "
         "that "
         "it is over;\nafter: the tasks that it waits for; members: the gradients or factors of a "
         "payload\n";
}

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
