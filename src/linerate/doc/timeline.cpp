#include "linerate/doc/timeline.hpp"

#include <fmt/format.h>

#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/json.hpp"

namespace linerate::doc {
namespace {

// Events are the bulk of the document: one compact list each, in the order of this header.
constexpr const char* kEventColumns[] = {"kind",     "resource", "rank",   "step",  "name", "set",
                                         "ready_ns", "start_ns", "end_ns", "bytes", "group"};
constexpr std::size_t kColumnsWithoutGroup = std::size(kEventColumns) - 1;  // older documents

Json json_of_event(const Event& e) {
  return Json::array({name_of(e.kind), name_of(e.resource), e.rank, e.step, e.name, e.set,
                      e.ready_ns, e.start_ns, e.end_ns, e.bytes, e.group});
}

/// Lengths of what lies between two times fit as well.
std::int64_t time_ns(const JsonReader& r) {
  constexpr std::int64_t kMost = 4'000'000'000'000'000'000;  // 126 years
  return r.integer_in(-kMost, kMost);
}

std::int32_t index_below(const JsonReader& r, std::size_t size) {
  const std::int64_t i = r.integer();
  if (i < -1 || i >= static_cast<std::int64_t>(size))
    r.fail(fmt::format("expected -1 or an index below {}, found {}", size, i));
  return static_cast<std::int32_t>(i);
}

// A rank or a step of -1 is unknown: an imported trace need not name them.
Event read_event(const JsonReader& r, const Timeline& t) {
  const std::vector<JsonReader> v = r.items();
  if (v.size() != std::size(kEventColumns) && v.size() != kColumnsWithoutGroup)
    r.fail(fmt::format("expected {} values, found {}", std::size(kEventColumns), v.size()));
  Event e;
  try {
    e.kind = parse_task_kind(v[0].string());
    e.resource = parse_resource(v[1].string());
  } catch (const UsageError& error) {
    r.fail(error.what());
  }
  e.rank = static_cast<std::int32_t>(v[2].integer_in(-1, INT32_MAX));
  e.step = static_cast<std::int32_t>(v[3].integer_in(-1, INT32_MAX));
  e.name = index_below(v[4], t.names.size());
  e.set = index_below(v[5], t.parameter_sets.size());
  e.ready_ns = time_ns(v[6]);
  e.start_ns = time_ns(v[7]);
  e.end_ns = time_ns(v[8]);
  e.bytes = v[9].integer_in(-1, INT64_MAX);
  if (v.size() > kColumnsWithoutGroup) e.group = index_below(v[10], t.groups.size());
  if (e.end_ns < e.start_ns)
    v[8].refuse(fmt::format("an end behind the event's start, {}", e.start_ns));
  return e;
}

Counter read_counter(const JsonReader& r) {
  Counter c{r.string("name"),
            static_cast<std::int32_t>(r.integer_in("rank", -1, INT32_MAX)),
            r.seconds_or("period_s", 0),
            {}};
  for (const JsonReader& s : r.at("samples").items()) {
    const std::vector<JsonReader> pair = s.items();
    if (pair.size() != 2) s.refuse("[time_ns, value]");
    c.samples.push_back({time_ns(pair[0]), pair[1].number()});
  }
  return c;
}

Step read_step(const JsonReader& r) {
  Step s{static_cast<std::int32_t>(r.integer_in("rank", -1, INT32_MAX)),
         static_cast<std::int32_t>(r.integer_in("index", 0, INT32_MAX)), time_ns(r.at("start_ns")),
         time_ns(r.at("end_ns")), r.string_or("variant", "")};
  if (s.end_ns < s.start_ns)
    r.at("end_ns").refuse(fmt::format("an end behind the step's start, {}", s.start_ns));
  return s;
}

std::vector<std::string> read_texts(const JsonReader& list) {
  std::vector<std::string> texts;
  for (const JsonReader& s : list.items()) texts.push_back(s.string());
  return texts;
}

/// Of events in another order nothing would be what it says.
void check_columns(const JsonReader& r) {
  const std::vector<std::string> found = read_texts(r);
  const std::vector<std::string> known(std::begin(kEventColumns), std::end(kEventColumns));
  if (found.size() < kColumnsWithoutGroup || found.size() > known.size() ||
      !std::equal(found.begin(), found.end(), known.begin()))
    r.refuse(join(known, ", "));
}

Timeline read_timeline(const JsonReader& r) {
  Timeline t;
  if (r.has("event_columns")) check_columns(r.at("event_columns"));
  t.mode = r.string("mode");
  t.source = r.string_or("source", "");
  t.workload = r.string_or("workload", "");
  t.strategy = r.string_or("strategy", "");
  t.transport = r.string_or("transport", "");
  if (r.has("origin_ns")) t.origin_ns = time_ns(r.at("origin_ns"));
  if (r.has("ranks")) t.ranks = static_cast<int>(r.integer_in("ranks", 1, INT32_MAX));
  if (r.has("line_rate_bytes_per_s")) t.line_rate_bytes_per_s = r.positive("line_rate_bytes_per_s");
  t.one_rank_step_s = r.optional_seconds("one_rank_step_s");
  if (r.has("noise_floor")) t.noise_floor = r.at_least_zero("noise_floor");
  if (r.has("computation_slowed")) t.computation_slowed = r.at("computation_slowed").boolean();
  if (r.has("notes")) t.notes = read_texts(r.at("notes"));
  t.names = read_texts(r.at("names"));
  if (r.has("groups"))
    for (const JsonReader& g : r.at("groups").items())
      t.groups.push_back({g.string("name"), static_cast<int>(g.integer_in("ranks", 1, INT32_MAX))});
  t.parameter_names = read_texts(r.at("parameter_names"));
  for (const JsonReader& set : r.at("parameter_sets").items()) {
    t.parameter_sets.emplace_back();
    for (const JsonReader& i : set.items()) {
      const std::int32_t parameter = index_below(i, t.parameter_names.size());
      if (parameter < 0) i.refuse("the index of a parameter");
      t.parameter_sets.back().push_back(parameter);
    }
  }
  for (const JsonReader& s : r.at("steps").items()) t.steps.push_back(read_step(s));
  const std::vector<JsonReader> events = r.at("events").items();
  t.events.reserve(events.size());
  for (const JsonReader& e : events) t.events.push_back(read_event(e, t));
  if (r.has("counters"))
    for (const JsonReader& c : r.at("counters").items()) t.counters.push_back(read_counter(c));
  return t;
}

}  // namespace

std::string to_json(const Timeline& t) {
  Json json = new_document("timeline");
  json["mode"] = t.mode;
  json["source"] = t.source;
  json["workload"] = t.workload;
  json["strategy"] = t.strategy;
  json["transport"] = t.transport;
  json["origin_ns"] = t.origin_ns;
  json["ranks"] = t.ranks;
  json["line_rate_bytes_per_s"] = json_of(t.line_rate_bytes_per_s);
  json["one_rank_step_s"] = json_of(t.one_rank_step_s);
  json["noise_floor"] = json_of(t.noise_floor);
  if (t.computation_slowed) json["computation_slowed"] = *t.computation_slowed;
  json["notes"] = t.notes;
  json["names"] = t.names;
  json["groups"] = Json::array();
  for (const RankGroup& g : t.groups)
    json["groups"].push_back({{"name", g.name}, {"ranks", g.ranks}});
  json["parameter_names"] = t.parameter_names;
  json["parameter_sets"] = t.parameter_sets;
  json["steps"] = Json::array();
  for (const Step& s : t.steps)
    json["steps"].push_back({{"rank", s.rank},
                             {"index", s.index},
                             {"start_ns", s.start_ns},
                             {"end_ns", s.end_ns},
                             {"variant", s.variant}});
  json["event_columns"] = kEventColumns;
  json["events"] = Json::array();
  for (const Event& e : t.events) json["events"].push_back(json_of_event(e));
  json["counters"] = Json::array();
  for (const Counter& c : t.counters) {
    Json samples = Json::array();
    for (const CounterSample& s : c.samples) samples.push_back(Json::array({s.time_ns, s.value}));
    json["counters"].push_back({{"name", c.name},
                                {"rank", c.rank},
                                {"period_s", c.period_s},
                                {"samples", std::move(samples)}});
  }
  return json.dump() + "\n";
}

Timeline timeline_from_json(const std::string& text, const std::string& place) {
  return read_document(text, place, "timeline", read_timeline);
}

Timeline load_timeline(const std::filesystem::path& path) {
  return timeline_from_json(read_file(path), path.string());
}
void save(const Timeline& t, const std::filesystem::path& path) {
  write_file_atomically(path, to_json(t));
}

}  // namespace linerate::doc
