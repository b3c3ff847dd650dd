// The JSON form of a Plan. It differs from the structs in three ways, so that people can read it. A
// task lists its predecessors itself ("after"); the struct has them in one array for all.
// Operations and groups stand by their texts and names; tasks have indices. The lists over
// gradients are one list with an entry for each gradient.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/fields.hpp"
#include "linerate/doc/plan.hpp"

namespace linerate::doc {
namespace {

constexpr DocumentKind kPlanDocument{
    "plan", 2, 2,
    "schema 1, from before the first release, named neither operations nor groups nor payloads, so "
    "nothing can run it; make the Plan again from its Workload"};
constexpr std::array<std::string_view, 2> kOrigins = {"executed", "observed"};
constexpr Range kIndex{0, INT32_MAX};
constexpr Range kElements{0, INT64_MAX / 16};

Component parse_operation(std::string_view text) { return parse_component(text); }

/// Index of one of Plan::operations, written as its text.
struct OperationText {
  const Plan& plan;

  std::ptrdiff_t read(const JsonReader& r) const {
    const Component wanted = r.parsed(parse_operation);
    const auto at = std::find(plan.operations.begin(), plan.operations.end(), wanted);
    if (at == plan.operations.end())
      r.fail("expected one of /operations, found \"" + to_text(wanted) + "\"");
    return at - plan.operations.begin();
  }
  Json write(std::int16_t operation) const {
    if (operation < 0) return nullptr;
    return to_text(plan.operations[to_index(operation)]);
  }
  void check(FieldChecker&, std::int16_t) const {}  // validate(plan) has done it
};

/// Index of one of Plan::groups, written as its name.
struct GroupName {
  const Plan& plan;

  std::ptrdiff_t read(const JsonReader& r) const {
    const auto at = std::find_if(plan.groups.begin(), plan.groups.end(),
                                 [&](const Group& g) { return g.name == r.string(); });
    if (at == plan.groups.end())
      r.fail("expected the name of one of /groups, found \"" + r.string() + "\"");
    return at - plan.groups.begin();
  }
  Json write(std::int32_t group) const { return plan.groups[to_index(group)].name; }
  void check(FieldChecker&, std::int32_t) const {}  // validate(plan) has done it
};

// The index of a task before this one. Tasks stand in topological order.
struct EarlierTask {
  std::size_t task;
  std::int64_t read(const JsonReader& r) const {
    const std::int64_t p = r.integer();
    if (p < 0 || p >= static_cast<std::int64_t>(task)) r.refuse("the index of an earlier task");
    return p;
  }
};

// A task as its JSON has it, with the tasks that it waits for.
struct TaskEntry {
  Task task;
  std::vector<std::uint32_t> after;
};

std::vector<TaskEntry> entries_of_tasks(const TaskGraph& g) {
  std::vector<TaskEntry> all;
  for (std::size_t i = 0; i < g.tasks.size(); ++i) {
    const auto after = g.predecessors(i);
    all.push_back({g.tasks[i], {after.begin(), after.end()}});
  }
  return all;
}

void take_tasks(const JsonReader&, TaskGraph& g, const std::vector<TaskEntry>& entries) {
  for (const auto& [task, after] : entries) {
    g.add(task);
    for (const std::uint32_t p : after) g.add_predecessor_to_last(p);
  }
}

/// One position of the lists over gradients that a Plan holds.
struct GradientEntry {
  std::string name;
  std::int32_t layer = -1;
  std::optional<std::int64_t> elements;  // absent: nothing compresses it
  std::int64_t rows = 1;
};

std::vector<GradientEntry> entries_of_gradients(const Plan& plan) {
  std::vector<GradientEntry> all;
  for (std::size_t i = 0; i < plan.gradient_names.size(); ++i) {
    GradientEntry& entry = all.emplace_back();
    entry.name = plan.gradient_names[i];
    if (!plan.gradient_layer.empty()) entry.layer = plan.gradient_layer[i];
    if (plan.gradient_shapes.empty()) continue;
    entry.elements = plan.gradient_shapes[i].elements;
    entry.rows = plan.gradient_shapes[i].rows;
  }
  return all;
}

void take_gradients(const JsonReader&, Plan& plan, const std::vector<GradientEntry>& entries) {
  for (const GradientEntry& entry : entries) {
    plan.gradient_names.push_back(entry.name);
    plan.gradient_layer.push_back(entry.layer);
    if (entry.elements) plan.gradient_shapes.push_back({*entry.elements, entry.rows});
  }
}

void check_matrix(const JsonReader& r, const GradientEntry& entry) {
  if (*entry.elements % entry.rows != 0)
    r.at("rows").fail(
        fmt::format("expected a divisor of {} elements, found {}", *entry.elements, entry.rows));
}

void check_groups(const JsonReader& r, const Plan& plan) {
  if (plan.groups.empty() || !plan.groups.front().parts.empty())
    r.at("groups").refuse("the whole job first: {\"name\": \"whole\", \"parts\": []}");
}

void check_elements(const JsonReader& r, const Block& b) {
  constexpr double kMostElements = 1e12;  // then sums stay below 2^63
  const auto elements = {
      static_cast<double>(packed_elements(b, FactorSide::a)),
      static_cast<double>(packed_elements(b, FactorSide::g)),
      static_cast<double>(b.groups) * static_cast<double>(b.a) * static_cast<double>(b.g)};
  if (std::max(elements) > kMostElements)
    r.fail(fmt::format("expected at most {:.0e} elements of each factor", kMostElements));
}

/// Holds a Plan to validate(plan). A violation is a mistake of the file or the program, so it is no
/// InternalError here.
void check_fit(const Plan& plan, const auto& fail) {
  try {
    validate(plan);
  } catch (const InternalError& e) {
    const std::string_view said = e.what();
    fail(fmt::format("expected a Plan whose tasks, edges and payloads fit together, found: {}",
                     said.substr(0, said.rfind("; this is a bug"))));
  }
}

void check_plan(const JsonReader& r, const Plan& plan) {
  if (plan.variants.empty()) r.at("variants").refuse("at least one variant");
  if (plan.cycle.empty()) r.at("cycle").refuse("at least one variant index");
  check_fit(plan, [&r](const std::string& message) { r.fail(message); });
}

void fields_of_task(auto& v, auto& t, const Plan& plan) {
  v.required("kind", t.kind, kTaskKindNames);
  v.optional("operation", t.operation, OperationText{plan});
  v.required("origin", t.origin, kOrigins);
  v.required("resource", t.resource, kResourceNames);
  v.required("group", t.group, GroupName{plan});
  v.required("subject", t.subject, kSubjectNames);
  v.required("first", t.first, kIndex);
  v.required("last", t.last, Range{-1, INT32_MAX});
  v.required("bytes", t.bytes, Range{0, INT64_MAX});
  v.written_if(t.bound, "bound", t.bound);
  v.written_if(t.expected != 0, "expected", t.expected, Range{1, t.bytes});
  v.written_if(t.root != -1, "root", t.root, kIndex);
  v.written_if(is_communication(t.kind) || t.wire != DType::f32, "wire", t.wire, parse_dtype);
  v.required("seconds", t.seconds, seconds);
}

void fields(auto& v, Is<TaskEntry> auto& entry, const Plan& plan, std::size_t index) {
  fields_of_task(v, entry.task, plan);
  v.required("after", entry.after, EarlierTask{index});
}

void fields(auto& v, Is<Payload> auto& p, std::size_t members) {
  const auto most = static_cast<std::int64_t>(members);
  v.required("content", p.content, kContentNames);
  v.required("dtype", p.dtype, parse_dtype);
  v.required("elements", p.elements, kElements);
  v.required("padded", p.padded, Range{p.elements, kElements.high});
  v.required("begin", p.begin, Range{0, most});
  v.required("end", p.end, Range{p.begin, most});
  v.written_if(p.of != -1, "of", p.of, kIndex);
  v.written_if(p.flags != 0, "flags", p.flags, Range{0, p.elements});
}

// FieldChecker takes the tasks as they are: making entries of them would cost more than the check.
void fields(auto& v, Is<TaskGraph> auto& g, const Plan& plan) {
  v.required("name", g.name);
  if constexpr (std::same_as<std::remove_cvref_t<decltype(v)>, FieldChecker>) {
    for (const Task& t : g.tasks)
      fields_of_task(v, t, plan);  // edges: validate(plan) has done them
  } else {
    std::vector<TaskEntry> tasks = entries_of_tasks(g);
    v.required("tasks", tasks,
               [&](auto& item, auto& entry) { fields(item, entry, plan, tasks.size()); });
    v.on_read(take_tasks, g, tasks);
  }
  v.required("next_step", g.next_step);
  const std::size_t members = v.size_of("members", g.members);
  v.required("payloads", g.payloads, [members](auto& item, auto& p) { fields(item, p, members); });
  const std::size_t subjects = std::max(plan.gradient_names.size(), 2 * plan.blocks.size());
  v.required("members", g.members, Range{0, static_cast<std::int64_t>(subjects) - 1});
}

void fields(auto& v, Is<Group> auto& g, int ranks) {
  v.required("name", g.name);
  v.required("parts", g.parts, Range{0, ranks - 1});
}

void fields(auto& v, Is<GradientEntry> auto& entry) {
  v.required("name", entry.name);
  v.required("layer", entry.layer, Range{-1, INT32_MAX});
  v.written_if(entry.elements.has_value(), "elements", entry.elements, kElements);
  if (!entry.elements) return;
  v.written_if(entry.rows != 1, "rows", entry.rows, Range{1, kElements.high});
  v.hold(check_matrix, entry);
}

void block_outline(auto& v, Is<Block> auto& b) {
  v.required("layer", b.layer, kIndex);
  v.required("kind", b.kind, parse_block_kind);
  v.required("a", b.a, Range{0, 10'000'000});
  v.required("g", b.g, Range{1, 10'000'000});
  v.required("groups", b.groups, Range{1, 100'000});
  v.hold(check_elements, b);
}

}  // namespace

void fields(auto& v, Is<NextStepEdge> auto& e) {
  v.required("from", e.from, Range{0, UINT32_MAX});
  v.required("to", e.to, Range{0, UINT32_MAX});
  v.required("variant", e.variant, kIndex);
}

void fields(auto& v, Is<Plan> auto& plan) {
  v.required("strategy", plan.strategy);
  v.optional("workload", plan.workload);
  v.required("ranks", plan.ranks, Range{1, INT32_MAX});
  v.derived("hash", [&] { return fmt::format("{:016x}", plan.hash()); });
  const auto variants = static_cast<std::int64_t>(v.size_of("variants", plan.variants));
  const Range variant{0, variants > 0 ? variants - 1 : INT32_MAX};
  v.required("warm_up", plan.warm_up, variant);
  v.required("cycle", plan.cycle, variant);
  v.required("operations", plan.operations, parse_operation);
  v.required("groups", plan.groups, [&](auto& item, auto& g) { fields(item, g, plan.ranks); });
  v.hold(check_groups, plan);
  std::vector<GradientEntry> gradients = entries_of_gradients(plan);
  v.required("gradients", gradients);
  v.on_read(take_gradients, plan, gradients);
  v.required("layer_names", plan.layer_names);
  v.written_if(!plan.blocks.empty(), "blocks", plan.blocks,
               [](auto& item, auto& b) { block_outline(item, b); });
  v.required("variants", plan.variants,
             [&](auto& item, auto& g) { fields(item, g, std::as_const(plan)); });
  v.on_read(check_plan, plan);
}

std::string to_json(const Plan& plan) { return written_document(kPlanDocument, plan); }
Plan plan_from_json(const std::string& text, const std::string& place) {
  return read_document<Plan>(kPlanDocument, text, place);
}

Plan load_plan(const std::filesystem::path& path) {
  return plan_from_json(read_file(path), path.string());
}
void validate(const Plan& plan, const std::string& place) {
  const std::string own = plan.strategy.empty() ? "the Plan" : "the Plan of " + plan.strategy;
  const std::string& here = place.empty() ? own : place;
  // First: an index that is out of range has no JSON.
  check_fit(plan, [&here](const std::string& message) { throw InputError(here, message); });
  validate_document(kPlanDocument, plan, here);
}
void save(const Plan& plan, const std::filesystem::path& path) {
  save_document(kPlanDocument, plan, path);
}

}  // namespace linerate::doc
