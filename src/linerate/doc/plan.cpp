// A Plan's hash and its rules. Ranks compare the hash before the first step. So it covers
// everything that decides what an executor does, and leaves out predicted seconds, which may differ
// in roundings. validate() is for what linerate planned itself. A violation is a bug, and stops the
// run before a task refers to something that is not there.
#include "linerate/doc/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"

namespace linerate::doc {
namespace {

std::uint64_t hash_number(std::int64_t value, std::uint64_t h) {
  return hash_value(static_cast<std::uint64_t>(value), h);
}
// The length goes first: otherwise "ab" + "c" and "a" + "bc" would hash alike.
std::uint64_t hash_text(std::string_view text, std::uint64_t h) {
  return hash_bytes(text, hash_value(text.size(), h));
}

std::uint64_t hash_task(const Task& t, std::uint64_t h) {
  for (const std::int64_t value :
       {std::int64_t(t.kind), std::int64_t(t.origin), std::int64_t(t.resource),
        std::int64_t(t.subject), std::int64_t(t.wire), std::int64_t(t.bound),
        std::int64_t(t.operation), std::int64_t(t.group), std::int64_t(t.root),
        std::int64_t(t.first), std::int64_t(t.last), t.bytes})
    h = hash_number(value, h);
  return h;
}

std::uint64_t hash_graph(const Plan& plan, const TaskGraph& g, std::uint64_t h) {
  h = hash_text(g.name, h);
  for (const Task& t : g.tasks) {
    h = hash_task(t, h);
    if (is_timer(plan, t)) h = hash_value(std::bit_cast<std::uint64_t>(t.seconds), h);
  }
  for (const std::uint32_t p : g.pred_begin) h = hash_value(p, h);
  for (const std::uint32_t p : g.preds) h = hash_value(p, h);
  for (const NextStepEdge& e : g.next_step)
    h = hash_number(e.variant, hash_value(e.to, hash_value(e.from, h)));
  for (const Payload& p : g.payloads)
    for (const std::int64_t v :
         {std::int64_t(p.content), std::int64_t(p.dtype), std::int64_t(p.begin),
          std::int64_t(p.end), std::int64_t(p.of), p.elements, p.flags, p.padded})
      h = hash_number(v, h);
  for (const std::int32_t m : g.members) h = hash_number(m, h);
  return h;
}

bool is_second_order(Content content) {
  return content == Content::factors || holds_inverses(content) || content == Content::directions;
}

// How many things the members of a payload choose from.
std::int64_t members_of(const Plan& plan, Content content) {
  if (!is_second_order(content)) return std::ssize(plan.gradient_names);
  return (content == Content::directions ? 1 : 2) * std::ssize(plan.blocks);
}

// The elements that a payload of factors, inverses or directions must have, by the shapes of its
// members' blocks.
std::int64_t elements_of(const Plan& plan, const TaskGraph& g, const Payload& p) {
  const auto of_factor = p.content == Content::eigen ? eigen_elements : packed_elements;
  const std::int64_t beside = holds_inverses(p.content)       ? kInverseStatus
                              : p.content == Content::factors ? kFactorCounts
                                                              : 0;
  std::int64_t elements = (p.end - p.begin) * beside;
  for (std::int32_t i = p.begin; i < p.end; ++i) {
    const std::int32_t member = g.members[to_index(i)];
    const bool whole = p.content == Content::directions;
    const Block& block = plan.blocks[to_index(whole ? member : block_of_factor(member))];
    elements += whole ? gradient_elements(block) : of_factor(block, side_of_factor(member));
  }
  return elements;
}

// Reduce-scatter and its kin cut their array into one block a rank.
bool cuts_into_blocks(const Task& t) {
  return t.subject == Subject::payloads && t.last >= t.first && !t.bound &&
         (t.kind == TaskKind::reduce_scatter || t.kind == TaskKind::all_gather ||
          t.kind == TaskKind::all_to_all);
}

// What tasks of a graph may refer to.
struct Ranges {
  std::int64_t operations, groups;
  std::array<std::int64_t, kSubjectNames.size()> subjects;  // how many there are of each
  std::vector<std::int32_t> least_ranks;                    // [groups] of its parts

  Ranges(const Plan& plan, const TaskGraph& g)
      : operations(std::ssize(plan.operations)),
        groups(std::ssize(plan.groups)),
        subjects{0,
                 std::ssize(plan.layer_names),
                 std::ssize(plan.gradient_names),
                 std::ssize(g.payloads),
                 2 * std::ssize(plan.blocks),
                 2 * std::ssize(plan.blocks)} {
    for (const Group& group : plan.groups) {
      std::int32_t least = group.size_of_part(0, plan.ranks);
      for (const auto& part : group.parts)
        least = std::min(least, static_cast<std::int32_t>(part.size()));
      least_ranks.push_back(least);
    }
  }
};

// Whether the payload can be cut into one block a rank, for every part of the task's group.
bool cuts_evenly(const Plan& plan, const TaskGraph& g, const Task& t) {
  const Group& group = plan.group_of(t);
  const auto parts = static_cast<std::int32_t>(std::max<std::size_t>(1, group.parts.size()));
  for (std::int32_t part = 0; part < parts; ++part)
    if (g.payloads[to_index(t.first)].padded % group.size_of_part(part, plan.ranks)) return false;
  return true;
}

void validate_task(const Plan& plan, const TaskGraph& g, const Ranges& ranges, std::size_t i) {
  const Task& t = g.tasks[i];
  const auto place = [&] { return fmt::format("{}: task {}", g.name, i); };
  LINERATE_CHECK(g.pred_begin[i] <= g.pred_begin[i + 1], place());
  for (const std::uint32_t p : g.predecessors(i))
    LINERATE_CHECK(p < i, fmt::format("{} waits for task {}", place(), p));
  LINERATE_CHECK(is_communication(t.kind) == (t.resource == Resource::network), place());
  LINERATE_CHECK(t.operation < ranges.operations, place());
  LINERATE_CHECK(t.group >= 0 && t.group < ranges.groups, place());
  LINERATE_CHECK(
      t.last < t.first || (t.first >= 0 && t.last < ranges.subjects[to_index(t.subject)]), place());
  LINERATE_CHECK(t.root < ranges.least_ranks[to_index(t.group)], place());
  if (cuts_into_blocks(t)) LINERATE_CHECK(cuts_evenly(plan, g, t), place());
}

void validate_graph(const Plan& plan, const TaskGraph& g) {
  LINERATE_CHECK(g.pred_begin.size() == g.tasks.size() + 1 && g.pred_begin.back() == g.preds.size(),
                 g.name);
  const Ranges ranges(plan, g);
  for (std::size_t i = 0; i < g.tasks.size(); ++i) validate_task(plan, g, ranges, i);
  for (const NextStepEdge& e : g.next_step) {
    LINERATE_CHECK(e.variant >= 0 && e.variant < std::ssize(plan.variants), g.name);
    LINERATE_CHECK(
        e.from < g.tasks.size() && e.to < plan.variants[to_index(e.variant)].tasks.size(), g.name);
  }
  for (const Payload& p : g.payloads) {
    LINERATE_CHECK(0 <= p.begin && p.begin <= p.end && p.end <= std::ssize(g.members), g.name);
    LINERATE_CHECK(0 <= p.flags && p.flags <= p.elements && p.elements <= p.padded, g.name);
    LINERATE_CHECK(p.of < std::ssize(g.payloads), g.name);
    const std::int64_t known = members_of(plan, p.content);
    for (std::int32_t i = p.begin; i < p.end; ++i) {
      const std::int32_t member = g.members[to_index(i)];
      LINERATE_CHECK(member >= 0 && member < known, g.name);
    }
    if (is_second_order(p.content))
      LINERATE_CHECK(p.begin < p.end && p.elements == elements_of(plan, g, p), g.name);
  }
}

bool is_inverse_with(const Plan& plan, const Task& task, std::string_view option,
                     std::string_view value) {
  if (task.kind != TaskKind::inverse || task.operation < 0) return false;
  const std::string* const found =
      plan.operations[static_cast<std::size_t>(task.operation)].find(option);
  return found && *found == value;
}

}  // namespace

std::string_view phase_of(std::string_view variant) {
  if (variant.ends_with(kWeighted)) variant.remove_suffix(kWeighted.size());
  for (const std::string_view end : {kFactorsOnly, kStale})
    if (variant.ends_with(end) && variant.size() > end.size() &&
        variant[variant.size() - end.size() - 1] == '.')
      variant.remove_suffix(end.size() + 1);
  return variant;
}

std::span<const Payload> TaskGraph::buckets() const {
  std::size_t count = 0;
  while (count < payloads.size() && payloads[count].content == Content::gradients) ++count;
  return {payloads.data(), count};
}

void TaskGraph::clear() {
  name.clear();
  tasks.clear();
  pred_begin.assign(1, 0);
  preds.clear();
  next_step.clear();
  payloads.clear();
  members.clear();
}

std::int32_t Group::part_of(std::int32_t rank) const {
  if (parts.empty()) return 0;
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (std::find(parts[i].begin(), parts[i].end(), rank) != parts[i].end())
      return static_cast<std::int32_t>(i);
  return -1;
}

std::int32_t Plan::variant_index_of_step(std::int64_t step) const {
  const auto warm = static_cast<std::int64_t>(warm_up.size());
  if (step < warm) return warm_up[to_index(step)];
  return cycle[to_index((step - warm) % static_cast<std::int64_t>(cycle.size()))];
}

std::int32_t Plan::variant_index(std::string_view name) const {
  for (std::size_t i = 0; i < variants.size(); ++i)
    if (variants[i].name == name) return static_cast<std::int32_t>(i);
  return -1;
}

std::int16_t Plan::operation(const Component& operation) {
  const auto at = std::find(operations.begin(), operations.end(), operation);
  const auto index = static_cast<std::int16_t>(at - operations.begin());
  if (at == operations.end()) operations.push_back(operation);
  return index;
}

std::int32_t Plan::group(const Group& group) {
  const auto at = std::find_if(groups.begin(), groups.end(),
                               [&](const Group& g) { return g.name == group.name; });
  const auto index = static_cast<std::int32_t>(at - groups.begin());
  if (at == groups.end()) groups.push_back(group);
  return index;
}

bool is_coding(const Plan& plan, const Task& task) {
  return (task.kind == TaskKind::encode || task.kind == TaskKind::decode) &&
         plan.operation_name(task) != kCast;
}

bool is_timer(const Plan& plan, const Task& task) {
  return task.kind == TaskKind::host && plan.operation_name(task) == "timer";
}

Component inverse_operation(bool eigen) {
  return eigen ? Component{"inverse", {{"by", "eigen"}}} : Component{"inverse", {}};
}

Component inverse_with_next_operation() { return {"inverse", {{"with", "next"}}}; }

bool is_eigendecomposition(const Plan& plan, const Task& task) {
  return is_inverse_with(plan, task, "by", "eigen");
}

bool is_inverted_with_next(const Plan& plan, const Task& task) {
  return is_inverse_with(plan, task, "with", "next");
}

std::uint64_t Plan::hash() const {
  std::uint64_t h = hash_text(strategy, kHashStart);
  h = hash_number(ranks, h);
  for (const Component& o : operations) h = hash_text(to_text(o), h);
  for (const GradientShape& s : gradient_shapes)
    h = hash_number(s.rows, hash_number(s.elements, h));
  for (const Group& g : groups) {
    h = hash_text(g.name, h);
    for (const auto& part : g.parts) {
      h = hash_value(part.size(), h);
      for (const std::int32_t rank : part) h = hash_number(rank, h);
    }
  }
  for (const TaskGraph& g : variants) h = hash_graph(*this, g, h);
  for (const std::int32_t v : warm_up) h = hash_number(v, h);
  h = hash_value(~0ull, h);
  for (const std::int32_t v : cycle) h = hash_number(v, h);
  for (const std::string& name : gradient_names) h = hash_text(name, h);
  for (const Block& b : blocks)
    for (const std::int64_t value :
         {std::int64_t(b.layer), std::int64_t(b.kind), b.a, b.g, std::int64_t(b.groups)})
      h = hash_number(value, h);
  return h;
}

void validate(const Plan& plan) {
  LINERATE_CHECK(!plan.variants.empty() && !plan.cycle.empty(), plan.strategy);
  LINERATE_CHECK(!plan.groups.empty() && plan.groups.front().parts.empty(), plan.strategy);
  LINERATE_CHECK(
      (plan.gradient_layer.empty() || plan.gradient_layer.size() == plan.gradient_names.size()) &&
          (plan.gradient_shapes.empty() ||
           plan.gradient_shapes.size() == plan.gradient_names.size()),
      plan.strategy);
  for (const Block& b : plan.blocks)
    LINERATE_CHECK(b.layer >= 0 && b.layer < std::ssize(plan.layer_names), plan.strategy);
  const auto known = [&plan](std::int32_t v) { return v >= 0 && v < std::ssize(plan.variants); };
  for (const std::int32_t v : plan.warm_up) LINERATE_CHECK(known(v), plan.strategy);
  for (const std::int32_t v : plan.cycle) LINERATE_CHECK(known(v), plan.strategy);
  for (const Group& group : plan.groups)
    for (const auto& part : group.parts)
      for (const std::int32_t rank : part)
        LINERATE_CHECK(rank >= 0 && rank < plan.ranks, group.name);
  for (const TaskGraph& g : plan.variants) validate_graph(plan, g);
}

Collective collective_of(TaskKind kind) {
  constexpr std::pair<TaskKind, Collective> kCollectives[] = {
      {TaskKind::all_reduce, Collective::all_reduce},
      {TaskKind::reduce_scatter, Collective::reduce_scatter},
      {TaskKind::all_gather, Collective::all_gather},
      {TaskKind::all_gather_v, Collective::all_gather},
      {TaskKind::all_to_all, Collective::all_to_all},
      {TaskKind::broadcast, Collective::broadcast}};
  for (const auto& [task, collective] : kCollectives)
    if (task == kind) return collective;
  throw InternalError(std::string("not a collective: ") + std::string(name_of(kind)));
}

}  // namespace linerate::doc
