// The JSON form of a Plan.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/doc/json.hpp"
#include "linerate/doc/plan.hpp"

namespace linerate::doc {
namespace {

constexpr int kSchema = 2;
constexpr const char* kOlder =
    "schema 1 named neither operations nor groups nor payloads, so nothing could run it; make the "
    "Plan again from its Workload";

Content parse_content(std::string_view name) {
  const auto at = std::find(kContentNames.begin(), kContentNames.end(), name);
  if (at == kContentNames.end())
    throw UsageError(fmt::format("unknown content \"{}\" of a payload", name));
  return static_cast<Content>(at - kContentNames.begin());
}

Json json_of_task(const Plan& plan, const TaskGraph& g, std::size_t i) {
  const Task& t = g.tasks[i];
  Json json = {
      {"kind", name_of(t.kind)},
      {"operation", t.operation < 0
                        ? Json(nullptr)
                        : Json(to_text(plan.operations[static_cast<std::size_t>(t.operation)]))},
      {"origin", t.origin == Origin::executed ? "executed" : "observed"},
      {"resource", name_of(t.resource)},
      {"group", plan.group_of(t).name},
      {"subject", name_of(t.subject)},
      {"first", t.first},
      {"last", t.last},
      {"bytes", t.bytes}};
  if (t.bound) json["bound"] = true;
  if (t.expected > 0) json["expected"] = t.expected;
  if (t.root >= 0) json["root"] = t.root;
  if (is_communication(t.kind) || t.wire != DType::f32) json["wire"] = name_of(t.wire);
  json["seconds"] = t.seconds;
  json["after"] = g.predecessors(i);
  return json;
}

Json json_of_payload(const Payload& p) {
  Json json = {{"content", name_of(p.content)},
               {"dtype", name_of(p.dtype)},
               {"elements", p.elements},
               {"padded", p.padded},
               {"begin", p.begin},
               {"end", p.end}};
  if (p.of >= 0) json["of"] = p.of;
  if (p.flags > 0) json["flags"] = p.flags;
  return json;
}

Json json_of_graph(const Plan& plan, const TaskGraph& g) {
  Json json = {{"name", g.name},
               {"tasks", Json::array()},
               {"next_step", Json::array()},
               {"payloads", Json::array()},
               {"members", g.members}};
  for (std::size_t i = 0; i < g.tasks.size(); ++i)
    json["tasks"].push_back(json_of_task(plan, g, i));
  for (const NextStepEdge& e : g.next_step)
    json["next_step"].push_back({{"from", e.from}, {"to", e.to}, {"variant", e.variant}});
  for (const Payload& p : g.payloads) json["payloads"].push_back(json_of_payload(p));
  return json;
}

Json json_of_plan_block(const Block& b) {
  return {
      {"layer", b.layer}, {"kind", name_of(b.kind)}, {"a", b.a}, {"g", b.g}, {"groups", b.groups}};
}

Task read_task(const Plan& plan, const JsonReader& r) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  Task t;
  t.kind = r.at("kind").parsed(parse_task_kind);
  if (r.has("operation")) {
    const Component wanted =
        r.at("operation").parsed([](const std::string& text) { return parse_component(text); });
    const auto at = std::find(plan.operations.begin(), plan.operations.end(), wanted);
    if (at == plan.operations.end())
      r.at("operation").fail("expected one of /operations, found \"" + to_text(wanted) + "\"");
    t.operation = static_cast<std::int16_t>(at - plan.operations.begin());
  }
  t.origin = r.string("origin") == "observed" ? Origin::observed : Origin::executed;
  t.resource = r.at("resource").parsed(parse_resource);
  const std::string group = r.string("group");
  const auto at = std::find_if(plan.groups.begin(), plan.groups.end(),
                               [&](const Group& g) { return g.name == group; });
  if (at == plan.groups.end())
    r.at("group").fail("expected the name of one of /groups, found \"" + group + "\"");
  t.group = static_cast<std::int32_t>(at - plan.groups.begin());
  t.subject = r.at("subject").parsed(parse_subject);
  t.first = static_cast<std::int32_t>(r.integer_in("first", 0, kMost));
  t.last = static_cast<std::int32_t>(r.integer_in("last", -1, kMost));
  t.bytes = r.integer_in("bytes", 0, std::numeric_limits<std::int64_t>::max());
  t.bound = r.has("bound") && r.at("bound").boolean();
  if (r.has("expected")) t.expected = r.integer_in("expected", 1, t.bytes);
  if (r.has("root")) t.root = static_cast<std::int32_t>(r.integer_in("root", 0, kMost));
  if (r.has("wire")) t.wire = r.at("wire").parsed(parse_dtype);
  t.seconds = r.seconds("seconds");
  return t;
}

Payload read_payload(const TaskGraph& g, const JsonReader& r) {
  const auto members = static_cast<std::int64_t>(g.members.size());
  Payload p;
  p.content = r.at("content").parsed(parse_content);
  p.dtype = r.at("dtype").parsed(parse_dtype);
  p.elements = r.integer_in("elements", 0, std::numeric_limits<std::int64_t>::max() / 16);
  p.padded = r.integer_in("padded", p.elements, std::numeric_limits<std::int64_t>::max() / 16);
  if (r.has("flags")) p.flags = r.integer_in("flags", 0, p.elements);
  p.begin = static_cast<std::int32_t>(r.integer_in("begin", 0, members));
  p.end = static_cast<std::int32_t>(r.integer_in("end", p.begin, members));
  if (r.has("of")) p.of = static_cast<std::int32_t>(r.integer_in("of", 0, INT32_MAX));
  return p;
}

TaskGraph read_graph(const Plan& plan, const JsonReader& r) {
  TaskGraph g;
  g.name = r.string("name");
  const std::size_t most = std::max(plan.gradient_names.size(), 2 * plan.blocks.size());
  for (const JsonReader& m : r.at("members").items())
    g.members.push_back(
        static_cast<std::int32_t>(m.integer_in(0, static_cast<std::int64_t>(most) - 1)));
  for (const JsonReader& p : r.at("payloads").items()) g.payloads.push_back(read_payload(g, p));
  for (const JsonReader& task : r.at("tasks").items()) {
    const std::size_t index = g.tasks.size();
    g.add(read_task(plan, task));
    for (const JsonReader& after : task.at("after").items()) {
      const std::int64_t p = after.integer();
      if (p < 0 || p >= static_cast<std::int64_t>(index))
        after.refuse("the index of an earlier task");
      g.add_predecessor_to_last(static_cast<std::uint32_t>(p));
    }
  }
  for (const JsonReader& e : r.at("next_step").items())
    g.next_step.push_back({static_cast<std::uint32_t>(e.integer_in("from", 0, UINT32_MAX)),
                           static_cast<std::uint32_t>(e.integer_in("to", 0, UINT32_MAX)),
                           static_cast<std::int32_t>(e.integer_in("variant", 0, INT32_MAX))});
  return g;
}

std::vector<Group> read_groups(const JsonReader& list, int ranks) {
  std::vector<Group> groups;
  for (const JsonReader& g : list.items()) {
    Group& group = groups.emplace_back(Group{g.string("name"), {}});
    for (const JsonReader& part : g.at("parts").items()) {
      auto& members = group.parts.emplace_back();
      for (const JsonReader& rank : part.items())
        members.push_back(static_cast<std::int32_t>(rank.integer_in(0, ranks - 1)));
    }
  }
  if (groups.empty() || !groups.front().parts.empty())
    list.refuse("the whole job first: {\"name\": \"whole\", \"parts\": []}");
  return groups;
}

GradientShape read_shape(const JsonReader& r) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 16;
  GradientShape shape{r.integer_in("elements", 0, kMost)};
  if (r.has("rows")) shape.rows = r.integer_in("rows", 1, kMost);
  if (shape.elements % shape.rows != 0)
    r.at("rows").fail(
        fmt::format("expected a divisor of {} elements, found {}", shape.elements, shape.rows));
  return shape;
}

Block read_plan_block(const JsonReader& r) {
  constexpr std::int64_t kMost = 10'000'000;
  constexpr double kMostElements = 1e12;  // then sums stay below 2^63
  Block b;
  b.layer = static_cast<int>(r.integer_in("layer", 0, INT32_MAX));
  b.kind = r.at("kind").parsed(parse_block_kind);
  b.a = r.integer_in("a", 0, kMost);
  b.g = r.integer_in("g", 1, kMost);
  b.groups = static_cast<int>(r.integer_in("groups", 1, 100'000));
  const auto elements = {
      static_cast<double>(packed_elements(b, FactorSide::a)),
      static_cast<double>(packed_elements(b, FactorSide::g)),
      static_cast<double>(b.groups) * static_cast<double>(b.a) * static_cast<double>(b.g)};
  if (std::max(elements) > kMostElements)
    r.fail(fmt::format("expected at most {:.0e} elements of each factor", kMostElements));
  return b;
}

Plan read_plan(const JsonReader& r) {
  Plan plan;
  r.leave("hash");
  plan.strategy = r.string("strategy");
  plan.workload = r.string_or("workload", "");
  plan.ranks = static_cast<int>(r.integer_in("ranks", 1, INT32_MAX));
  for (const JsonReader& o : r.at("operations").items())
    plan.operations.push_back(
        o.parsed([](const std::string& text) { return parse_component(text); }));
  plan.groups = read_groups(r.at("groups"), plan.ranks);
  for (const JsonReader& g : r.at("gradients").items()) {
    plan.gradient_names.push_back(g.string("name"));
    plan.gradient_layer.push_back(static_cast<std::int32_t>(g.integer_in("layer", -1, INT32_MAX)));
    if (g.has("elements")) plan.gradient_shapes.push_back(read_shape(g));
  }
  for (const JsonReader& s : r.at("layer_names").items()) plan.layer_names.push_back(s.string());
  if (r.has("blocks"))
    for (const JsonReader& b : r.at("blocks").items()) plan.blocks.push_back(read_plan_block(b));
  for (const JsonReader& g : r.at("variants").items()) plan.variants.push_back(read_graph(plan, g));
  if (plan.variants.empty()) r.at("variants").refuse("at least one variant");
  const auto schedule = [&](const JsonReader& list) {
    std::vector<std::int32_t> out;
    for (const JsonReader& v : list.items())
      out.push_back(static_cast<std::int32_t>(
          v.integer_in(0, static_cast<std::int64_t>(plan.variants.size()) - 1)));
    return out;
  };
  plan.warm_up = schedule(r.at("warm_up"));
  plan.cycle = schedule(r.at("cycle"));
  if (plan.cycle.empty()) r.at("cycle").refuse("at least one variant index");
  try {
    validate(plan);
  } catch (const InternalError& e) {  // here it is the file that is wrong, not linerate
    const std::string_view said = e.what();
    r.fail(fmt::format("expected a Plan whose tasks, edges and payloads fit together, found: {}",
                       said.substr(0, said.rfind("; this is a bug"))));
  }
  return plan;
}

}  // namespace

std::string to_json(const Plan& plan) {
  Json json = new_document("plan", kSchema);
  json["strategy"] = plan.strategy;
  json["workload"] = plan.workload;
  json["ranks"] = plan.ranks;
  json["hash"] = fmt::format("{:016x}", plan.hash());
  json["warm_up"] = plan.warm_up;
  json["cycle"] = plan.cycle;
  json["operations"] = Json::array();
  for (const Component& o : plan.operations) json["operations"].push_back(to_text(o));
  json["groups"] = Json::array();
  for (const Group& g : plan.groups)
    json["groups"].push_back({{"name", g.name}, {"parts", g.parts}});
  json["gradients"] = Json::array();
  for (std::size_t i = 0; i < plan.gradient_names.size(); ++i) {
    Json gradient = {{"name", plan.gradient_names[i]},
                     {"layer", plan.gradient_layer.empty() ? -1 : plan.gradient_layer[i]}};
    if (!plan.gradient_shapes.empty()) {
      gradient["elements"] = plan.gradient_shapes[i].elements;
      if (plan.gradient_shapes[i].rows > 1) gradient["rows"] = plan.gradient_shapes[i].rows;
    }
    json["gradients"].push_back(std::move(gradient));
  }
  json["layer_names"] = plan.layer_names;
  if (!plan.blocks.empty()) json["blocks"] = Json::array();
  for (const Block& b : plan.blocks) json["blocks"].push_back(json_of_plan_block(b));
  json["variants"] = Json::array();
  for (const TaskGraph& g : plan.variants) json["variants"].push_back(json_of_graph(plan, g));
  return json.dump(1) + "\n";
}

Plan plan_from_json(const std::string& text, const std::string& place) {
  return read_document(text, place, "plan", read_plan, kSchema, kOlder);
}

Plan load_plan(const std::filesystem::path& path) {
  return plan_from_json(read_file(path), path.string());
}
void save(const Plan& plan, const std::filesystem::path& path) {
  write_file_atomically(path, to_json(plan));
}

}  // namespace linerate::doc
