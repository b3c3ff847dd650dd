#include "linerate/doc/plan.hpp"

#include <fmt/format.h>

#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/core/hash.hpp"
#include "linerate/doc/json.hpp"

namespace linerate::doc {
namespace {

std::uint64_t hash_task(const Task& t, std::uint64_t h) {
  for (const std::int64_t value :
       {std::int64_t(t.kind), std::int64_t(t.origin), std::int64_t(t.resource),
        std::int64_t(t.wire), std::int64_t(t.rank), std::int64_t(t.first), std::int64_t(t.last),
        t.bytes})
    h = hash_value(static_cast<std::uint64_t>(value), h);
  return h;
}

std::uint64_t hash_graph(const TaskGraph& g, std::uint64_t h) {
  h = hash_bytes(g.name, h);
  for (const Task& t : g.tasks) h = hash_task(t, h);
  for (const std::uint32_t p : g.pred_begin) h = hash_value(p, h);
  for (const std::uint32_t p : g.preds) h = hash_value(p, h);
  for (const NextStepEdge& e : g.next_step) h = hash_value(e.to, hash_value(e.from, h));
  for (const Bucket& b : g.buckets)
    for (const std::int64_t v :
         {std::int64_t(b.begin), std::int64_t(b.end), std::int64_t(b.dtype), b.elements})
      h = hash_value(static_cast<std::uint64_t>(v), h);
  for (const std::int32_t m : g.members) h = hash_value(static_cast<std::uint64_t>(m), h);
  return h;
}

void validate_graph(const TaskGraph& g) {
  LINERATE_CHECK(g.pred_begin.size() == g.tasks.size() + 1 && g.pred_begin.back() == g.preds.size(),
                 g.name);
  for (std::size_t i = 0; i < g.tasks.size(); ++i) {
    LINERATE_CHECK(g.pred_begin[i] <= g.pred_begin[i + 1], g.name);
    for (std::uint32_t p = g.pred_begin[i]; p < g.pred_begin[i + 1]; ++p)
      LINERATE_CHECK(g.preds[p] < i,
                     fmt::format("{}: task {} waits for task {}", g.name, i, g.preds[p]));
  }
  for (const NextStepEdge& e : g.next_step)
    LINERATE_CHECK(e.from < g.tasks.size() && e.to < g.tasks.size(), g.name);
  for (const Bucket& b : g.buckets)
    LINERATE_CHECK(
        0 <= b.begin && b.begin <= b.end && b.end <= static_cast<std::int32_t>(g.members.size()),
        g.name);
}

Json json_of_task(const Task& t) {
  return {{"kind", name_of(t.kind)},
          {"origin", t.origin == Origin::executed ? "executed" : "observed"},
          {"resource", name_of(t.resource)},
          {"wire", name_of(t.wire)},
          {"rank", t.rank},
          {"first", t.first},
          {"last", t.last},
          {"cost_key", t.cost_key},
          {"bytes", t.bytes},
          {"seconds", t.seconds}};
}

Json json_of_graph(const TaskGraph& g) {
  Json json = {{"name", g.name},
               {"tasks", Json::array()},
               {"next_step", Json::array()},
               {"buckets", Json::array()},
               {"members", g.members}};
  for (std::size_t i = 0; i < g.tasks.size(); ++i) {
    Json task = json_of_task(g.tasks[i]);
    task["after"] = std::vector<std::uint32_t>(g.preds.begin() + g.pred_begin[i],
                                               g.preds.begin() + g.pred_begin[i + 1]);
    json["tasks"].push_back(std::move(task));
  }
  for (const NextStepEdge& e : g.next_step)
    json["next_step"].push_back({{"from", e.from}, {"to", e.to}});
  for (const Bucket& b : g.buckets)
    json["buckets"].push_back({{"begin", b.begin},
                               {"end", b.end},
                               {"dtype", name_of(b.dtype)},
                               {"elements", b.elements}});
  return json;
}

Task read_task(const JsonReader& r) {
  Task t;
  t.kind = r.at("kind").parsed(parse_task_kind);
  t.origin = r.string("origin") == "observed" ? Origin::observed : Origin::executed;
  t.resource = r.at("resource").parsed(parse_resource);
  t.wire = r.at("wire").parsed(parse_dtype);
  t.rank = static_cast<std::int32_t>(r.integer("rank"));
  t.first = static_cast<std::int32_t>(r.integer("first"));
  t.last = static_cast<std::int32_t>(r.integer("last"));
  t.cost_key = static_cast<std::int32_t>(r.integer("cost_key"));
  t.bytes = r.integer("bytes");
  t.seconds = r.number("seconds");
  return t;
}

TaskGraph read_graph(const JsonReader& r) {
  TaskGraph g;
  g.name = r.string("name");
  for (const JsonReader& task : r.at("tasks").items()) {
    const std::size_t index = g.tasks.size();
    g.add(read_task(task));
    for (const JsonReader& after : task.at("after").items()) {
      const std::int64_t p = after.integer();
      if (p < 0 || p >= static_cast<std::int64_t>(index))
        after.fail("expected the index of an earlier task");
      g.add_predecessor_to_last(static_cast<std::uint32_t>(p));
    }
  }
  const auto task_index = [&g](const JsonReader& at) {
    const std::int64_t i = at.integer();
    if (i < 0 || i >= static_cast<std::int64_t>(g.tasks.size()))
      at.fail("expected the index of a task");
    return static_cast<std::uint32_t>(i);
  };
  for (const JsonReader& e : r.at("next_step").items())
    g.next_step.push_back({task_index(e.at("from")), task_index(e.at("to"))});
  for (const JsonReader& m : r.at("members").items())
    g.members.push_back(static_cast<std::int32_t>(m.integer()));
  for (const JsonReader& b : r.at("buckets").items()) {
    Bucket bucket{static_cast<std::int32_t>(b.integer("begin")),
                  static_cast<std::int32_t>(b.integer("end")), b.at("dtype").parsed(parse_dtype),
                  b.integer("elements")};
    if (bucket.begin < 0 || bucket.end < bucket.begin ||
        bucket.end > static_cast<std::int32_t>(g.members.size()))
      b.fail(fmt::format("expected 0 <= begin <= end <= {}", g.members.size()));
    g.buckets.push_back(bucket);
  }
  return g;
}

Plan read_plan(const JsonReader& r) {
  Plan plan;
  plan.strategy = r.string("strategy");
  plan.workload = r.string_or("workload", "");
  plan.ranks = static_cast<int>(r.integer_in("ranks", 1, INT32_MAX));
  for (const JsonReader& g : r.at("variants").items()) plan.variants.push_back(read_graph(g));
  if (plan.variants.empty()) r.at("variants").fail("expected at least one variant");
  const auto schedule = [&](const JsonReader& list) {
    std::vector<std::int32_t> out;
    for (const JsonReader& v : list.items()) {
      if (v.integer() < 0 || v.integer() >= static_cast<std::int64_t>(plan.variants.size()))
        v.fail(fmt::format("expected a variant index below {}", plan.variants.size()));
      out.push_back(static_cast<std::int32_t>(v.integer()));
    }
    return out;
  };
  plan.warm_up = schedule(r.at("warm_up"));
  plan.cycle = schedule(r.at("cycle"));
  if (plan.cycle.empty()) r.at("cycle").fail("expected at least one variant index");
  for (const JsonReader& s : r.at("cost_keys").items()) plan.cost_keys.push_back(s.string());
  for (const JsonReader& s : r.at("gradient_names").items())
    plan.gradient_names.push_back(s.string());
  for (const JsonReader& s : r.at("layer_names").items()) plan.layer_names.push_back(s.string());
  return plan;
}

}  // namespace

void TaskGraph::clear() {
  name.clear();
  tasks.clear();
  pred_begin.assign(1, 0);
  preds.clear();
  next_step.clear();
  buckets.clear();
  members.clear();
}

const TaskGraph& Plan::variant_of_step(std::int64_t step) const {
  const auto warm = static_cast<std::int64_t>(warm_up.size());
  const std::int32_t index = step < warm
                                 ? warm_up[static_cast<std::size_t>(step)]
                                 : cycle[static_cast<std::size_t>(
                                       (step - warm) % static_cast<std::int64_t>(cycle.size()))];
  return variants[static_cast<std::size_t>(index)];
}

std::uint64_t Plan::hash() const {
  std::uint64_t h = hash_bytes(strategy);
  h = hash_value(static_cast<std::uint64_t>(ranks), h);
  for (const TaskGraph& g : variants) h = hash_graph(g, h);
  for (const std::int32_t v : warm_up) h = hash_value(static_cast<std::uint64_t>(v), h);
  h = hash_value(~0ull, h);
  for (const std::int32_t v : cycle) h = hash_value(static_cast<std::uint64_t>(v), h);
  for (const std::string& name : gradient_names) h = hash_bytes(name, hash_value(name.size(), h));
  return h;
}

void validate(const Plan& plan) {
  LINERATE_CHECK(!plan.variants.empty() && !plan.cycle.empty(), plan.strategy);
  const auto known = [&plan](std::int32_t v) {
    return v >= 0 && v < static_cast<std::int32_t>(plan.variants.size());
  };
  for (const std::int32_t v : plan.warm_up) LINERATE_CHECK(known(v), plan.strategy);
  for (const std::int32_t v : plan.cycle) LINERATE_CHECK(known(v), plan.strategy);
  for (const TaskGraph& g : plan.variants) validate_graph(g);
}

std::string to_json(const Plan& plan) {
  Json json = new_document("plan");
  json["strategy"] = plan.strategy;
  json["workload"] = plan.workload;
  json["ranks"] = plan.ranks;
  json["warm_up"] = plan.warm_up;
  json["cycle"] = plan.cycle;
  json["cost_keys"] = plan.cost_keys;
  json["gradient_names"] = plan.gradient_names;
  json["layer_names"] = plan.layer_names;
  json["variants"] = Json::array();
  for (const TaskGraph& g : plan.variants) json["variants"].push_back(json_of_graph(g));
  return json.dump(1) + "\n";
}

Plan plan_from_json(const std::string& text, const std::string& place) {
  return read_document(text, place, "plan", read_plan);
}

Plan load_plan(const std::filesystem::path& path) {
  return plan_from_json(read_file(path), path.string());
}
void save(const Plan& plan, const std::filesystem::path& path) {
  write_file_atomically(path, to_json(plan));
}

}  // namespace linerate::doc
