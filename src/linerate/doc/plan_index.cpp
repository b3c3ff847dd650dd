// Everything about a Plan that more than one interpreter derives: who waits for whom, and what a
// task is called. As the names come from here alone, a predicted and a recorded Timeline use the
// same ones, and a comparison joins them.
#include "linerate/doc/plan_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "linerate/core/index.hpp"

namespace linerate::doc {
namespace {

// The payload whose members say which gradients are meant: an encoded one leads to the bucket that
// it stands for.
const Payload& dense(const TaskGraph& graph, std::int32_t payload) {
  const Payload* p = &graph.payloads[to_index(payload)];
  while (p->of >= 0) p = &graph.payloads[to_index(p->of)];
  return *p;
}

// Whether it packs or unpacks only the flags that ride with a bucket.
bool is_copy_of_flags(const TaskGraph& graph, const Task& task) {
  return task.kind == TaskKind::copy && task.subject == Subject::payloads &&
         task.last >= task.first && graph.payloads[to_index(task.first)].flags > 0;
}

// "conv1" of a block, "conv1.A" of a factor.
std::string block_name(const Plan& plan, std::int32_t block) {
  const int layer = plan.blocks[to_index(block)].layer;
  return plan.layer_names[to_index(layer)];
}
std::string factor_name(const Plan& plan, std::int32_t factor) {
  return fmt::format("{}.{}", block_name(plan, block_of_factor(factor)),
                     name_of(side_of_factor(factor)));
}

// "conv1 to conv4", or the one name.
std::string range(const std::string& first, const std::string& last) {
  return first == last ? first : fmt::format("{} to {}", first, last);
}

// "conv1" if both factors of one layer are meant, else "conv1.A to conv3.G".
std::string factors_name(const Plan& plan, std::int32_t first, std::int32_t last) {
  const std::int32_t block = block_of_factor(first);
  return first != last && block == block_of_factor(last)
             ? block_name(plan, block)
             : range(factor_name(plan, first), factor_name(plan, last));
}

// A bucket is named by its index among the payloads, also when the task sends its encoded form.
std::string payload_name(const Plan& plan, const TaskGraph& graph, std::int32_t payload) {
  const Payload& p = dense(graph, payload);
  const auto member = [&](std::int32_t i) { return graph.members[to_index(i)]; };
  switch (p.content) {
    case Content::gradients:
      return fmt::format("bucket {}", &p - graph.payloads.data());
    case Content::factors:
    case Content::inverse:
    case Content::eigen:
      return fmt::format("{} {}", name_of(p.content),
                         factors_name(plan, member(p.begin), member(p.end - 1)));
    case Content::directions:
      return fmt::format(
          "{} {}", name_of(p.content),
          range(block_name(plan, member(p.begin)), block_name(plan, member(p.end - 1))));
    default:
      return std::string(name_of(p.content));
  }
}

/// Whether a rank has each task.
std::vector<bool> tasks_of(const Plan& plan, const TaskGraph& graph, std::int32_t rank) {
  std::vector<bool> holds, has;
  for (const Group& group : plan.groups) holds.push_back(rank < 0 || group.holds(rank));
  for (const Task& task : graph.tasks) has.push_back(holds[to_index(task.group)]);
  return has;
}

}  // namespace

// A rank without a predecessor does not wait for it.
VariantIndex::VariantIndex(const TaskGraph& graph, std::vector<bool> of_rank)
    : Waits(graph.tasks.size(),
            [&](const auto& action) {
              for (std::uint32_t i = 0; i < graph.tasks.size(); ++i)
                for (const std::uint32_t p : graph.predecessors(i))
                  if (of_rank[i] && of_rank[p]) action(p, i);
            }),
      has(std::move(of_rank)) {
  for (std::uint32_t i = 0; i < graph.tasks.size(); ++i)
    if (has[i]) lanes[to_index(graph.tasks[i].resource)].push_back(i);
}

VariantIndex::VariantIndex(const Plan& plan, const TaskGraph& graph, std::int32_t rank)
    : VariantIndex(graph, tasks_of(plan, graph, rank)) {}

// The gradients that a task is about, ascending. Comparisons join tasks of two Timelines by them,
// as two Plans may cut buckets alike and number them differently.
std::vector<std::int32_t> gradients_of(const Plan& plan, const TaskGraph& graph, const Task& task) {
  std::vector<std::int32_t> positions;
  if (is_copy_of_flags(graph, task)) return positions;
  const auto all = static_cast<std::int32_t>(plan.gradient_names.size());
  switch (task.subject) {
    case Subject::none:
      break;
    case Subject::gradients:
      for (std::int32_t p = task.first; p <= task.last; ++p) positions.push_back(p);
      break;
    case Subject::payloads:
      for (std::int32_t b = task.first; b <= task.last; ++b) {
        const Payload& payload = dense(graph, b);
        if (payload.content != Content::gradients) continue;
        positions.insert(positions.end(), graph.members.begin() + payload.begin,
                         graph.members.begin() + payload.end);
      }
      break;
    case Subject::factors:  // tasks of factors are joined by their names
    case Subject::inverses:
      break;
    default:
      for (std::int32_t p = 0; p < all; ++p) {
        const std::int32_t layer =
            plan.gradient_layer.empty() ? -1 : plan.gradient_layer[to_index(p)];
        if (layer >= task.first && layer <= task.last) positions.push_back(p);
      }
  }
  std::sort(positions.begin(), positions.end());
  return positions;
}

// One thing by its name, several by their numbers: "conv1.weight", "gradients 3-7".
std::string subject_of(const Plan& plan, const TaskGraph& graph, const Task& task) {
  if (task.last < task.first) return "";
  if (is_copy_of_flags(graph, task)) return std::string(name_of(Content::flags));
  const bool one = task.first == task.last;
  switch (task.subject) {
    case Subject::none:
      return "";
    case Subject::gradients:
      if (one) return plan.gradient_names[to_index(task.first)];
      return fmt::format("gradients {}-{}", task.first, task.last);
    case Subject::payloads:
      if (one) return payload_name(plan, graph, task.first);
      return fmt::format("buckets {}-{}", task.first, task.last);
    case Subject::layers:
      if (one) return plan.layer_names[to_index(task.first)];
      return fmt::format("layers {}-{}", task.first, task.last);
    default:
      return factors_name(plan, task.first, task.last);
  }
}

std::string title_of(const Plan& plan, const TaskGraph& graph, const Task& task) {
  const std::string subject = subject_of(plan, graph, task);
  return subject.empty() ? std::string(name_of(task.kind))
                         : fmt::format("{} {}", name_of(task.kind), subject);
}

// Tasks that are observed are LibTorch's: they bear the layer's name, as a trace shows it. An
// update or a pass over many gradients has none.
std::string event_name_of(const Plan& plan, const TaskGraph& graph, const Task& task) {
  if (task.origin == Origin::executed || task.kind == TaskKind::precondition)
    return title_of(plan, graph, task);
  if (task.first != task.last || task.kind == TaskKind::update) return "";
  const std::int32_t layer = layer_of(plan, task);
  return layer < 0 ? subject_of(plan, graph, task) : plan.layer_names[to_index(layer)];
}

std::int32_t layer_of(const Plan& plan, const Task& task) {
  if (task.subject != Subject::gradients || task.first != task.last || plan.gradient_layer.empty())
    return -1;
  return plan.gradient_layer[to_index(task.first)];
}

}  // namespace linerate::doc
