// The JSON of a Timeline. A recording has hundreds of thousands of events, so an event is a list of
// its values, and "event_columns" names them once. Later columns may be absent in older documents.
// columns() is for events what fields() is for other structs.
#include "linerate/doc/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/fields.hpp"

namespace linerate::doc {
namespace {

constexpr DocumentKind kTimelineDocument{"timeline"};
constexpr std::int64_t kMostTime = 4'000'000'000'000'000'000;  // 126 years
/// With this bound, differences of two times fit as well.
constexpr Range kTime{-kMostTime, kMostTime};
/// A rank or a step of -1 is unknown: an imported trace need not name them.
constexpr Range kOrUnknown{-1, INT32_MAX};

struct IndexBelow {
  std::size_t size;
  std::int64_t read(const JsonReader& r) const {
    const std::int64_t i = r.integer();
    if (i < -1 || i >= static_cast<std::int64_t>(size))
      r.fail(fmt::format("expected -1 or an index below {}, found {}", size, i));
    return i;
  }
};

struct ParameterIndex {
  std::size_t parameters;
  std::int64_t read(const JsonReader& r) const {
    const std::int64_t i = IndexBelow{parameters}.read(r);
    if (i < 0) r.refuse("the index of a parameter");
    return i;
  }
};

// Events are the bulk of the document: one compact list each, in the order of this function.
void columns(auto& v, Is<Event> auto& e, const Timeline& t) {
  v.required("kind", e.kind, kTaskKindNames);
  v.required("resource", e.resource, kResourceNames);
  v.required("rank", e.rank, kOrUnknown);
  v.required("step", e.step, kOrUnknown);
  v.required("name", e.name, IndexBelow{t.names.size()});
  v.required("set", e.set, IndexBelow{t.parameter_sets.size()});
  v.required("ready_ns", e.ready_ns, kTime);
  v.required("start_ns", e.start_ns, kTime);
  v.required("end_ns", e.end_ns, kTime);
  v.required("bytes", e.bytes, Range{-1, INT64_MAX});
  v.optional("group", e.group, IndexBelow{t.groups.size()});  // older documents end before it
}

// Visitors of columns(): one reads a row, one writes it, and one collects the names.
struct RowReader {
  JsonReader row;
  std::size_t next = 0;

  void required(std::string_view /*column*/, auto& x, const auto&... how) {
    read_value(row.item(next++), x, how...);
  }
  void optional(std::string_view column, auto& x, const auto&... how) {
    if (next < row.size()) required(column, x, how...);
  }
};

struct RowWriter : MemberVisitor<RowWriter> {
  Json::array_t row;

  void required(std::string_view /*column*/, const auto& x, const auto&... how) {
    row.push_back(written_value(x, how...));
  }
};

struct ColumnNames {
  std::vector<std::string> all;
  std::size_t needed = 0;

  void required(std::string_view column, const auto&... rest) {
    optional(column, rest...);
    needed = all.size();
  }
  void optional(std::string_view column, const auto&...) { all.emplace_back(column); }
};

const ColumnNames& event_columns() {
  static const ColumnNames names = [] {
    ColumnNames v;
    const Event any;
    columns(v, any, Timeline{});
    return v;
  }();
  return names;
}

/// As a list of the values in their order.
struct EventRow {
  const Timeline& timeline;

  Event read(const JsonReader& r) const {
    const auto& [all, needed] = event_columns();
    if (r.size() < needed || r.size() > all.size())
      r.fail(fmt::format("expected {} values, found {}", all.size(), r.size()));
    Event e;
    RowReader row{r};
    columns(row, e, timeline);
    if (e.end_ns < e.start_ns) {
      const auto end = std::find(all.begin(), all.end(), "end_ns") - all.begin();
      refuse_end(r.item(to_index(end)), e);
    }
    return e;
  }
  Json write(const Event& e) const {
    RowWriter row;
    row.row.reserve(event_columns().all.size());
    columns(row, e, timeline);
    return std::move(row.row);
  }
  void check(FieldChecker& v, const Event& e) const {
    columns(v, e, timeline);
    if (e.end_ns < e.start_ns) refuse_end(FieldChecker::reader_of(nullptr), e);
  }

 private:
  [[noreturn]] static void refuse_end(const JsonReader& r, const Event& e) {
    r.refuse(fmt::format("an end no earlier than the event's start, {}", e.start_ns));
  }
};

struct SampleRow {
  CounterSample read(const JsonReader& r) const {
    if (r.size() != 2) r.refuse("[time_ns, value]");
    return {kTime.read(r.item(0)), r.item(1).number()};
  }
  Json write(const CounterSample& s) const { return Json::array({s.time_ns, s.value}); }
};

void check_step(const JsonReader& r, const Step& s) {
  if (s.end_ns < s.start_ns)
    r.at("end_ns").refuse(fmt::format("an end no earlier than the step's start, {}", s.start_ns));
}

/// Columns in another order would be misread.
void check_columns(const JsonReader& r, const std::vector<std::string>& found) {
  const auto& [all, needed] = event_columns();
  if (found.size() < needed || found.size() > all.size() ||
      !std::equal(found.begin(), found.end(), all.begin()))
    r.at("event_columns").refuse(join(all, ", "));
}

}  // namespace

void fields(auto& v, Is<RankGroup> auto& g) {
  v.required("name", g.name);
  v.required("ranks", g.ranks, Range{1, INT32_MAX});
}

void fields(auto& v, Is<Step> auto& s) {
  v.required("rank", s.rank, kOrUnknown);
  v.required("index", s.index, Range{0, INT32_MAX});
  v.required("start_ns", s.start_ns, kTime);
  v.required("end_ns", s.end_ns, kTime);
  v.optional("variant", s.variant);
  v.hold(check_step, s);
}

void fields(auto& v, Is<Counter> auto& c) {
  v.required("name", c.name);
  v.required("rank", c.rank, kOrUnknown);
  v.optional("period_s", c.period_s, seconds);
  v.required("samples", c.samples, SampleRow{});
}

void fields(auto& v, Is<Timeline> auto& t) {
  v.required("mode", t.mode);
  v.optional("source", t.source);
  v.optional("workload", t.workload);
  v.optional("strategy", t.strategy);
  v.optional("transport", t.transport);
  v.written_if(!t.device.empty(), "device", t.device);
  v.optional("origin_ns", t.origin_ns, kTime);
  v.optional("ranks", t.ranks, Range{1, INT32_MAX});
  v.optional("line_rate_bytes_per_s", t.line_rate_bytes_per_s, positive);
  v.optional("one_rank_step_s", t.one_rank_step_s, seconds);
  v.optional("noise_floor", t.noise_floor, at_least_zero);
  v.written_if(t.computation_slowed.has_value(), "computation_slowed", t.computation_slowed);
  v.optional("notes", t.notes);
  v.required("names", t.names);
  v.optional("groups", t.groups);
  v.required("parameter_names", t.parameter_names);
  v.required("parameter_sets", t.parameter_sets, ParameterIndex{t.parameter_names.size()});
  v.required("steps", t.steps);
  std::vector<std::string> columns = event_columns().all;
  v.optional("event_columns", columns);
  v.on_read(check_columns, columns);
  v.required("events", t.events, EventRow{t});
  v.optional("counters", t.counters);
  v.written_if(!t.recording.empty(), "recording", t.recording);
}

std::string to_json(const Timeline& t) {
  return written_document(kTimelineDocument, t, /*indent=*/-1);
}
Timeline timeline_from_json(const std::string& text, const std::string& place) {
  return read_document<Timeline>(kTimelineDocument, text, place);
}

Timeline load_timeline(const std::filesystem::path& path) {
  return timeline_from_json(read_file(path), path.string());
}
void validate(const Timeline& t, const std::string& place) {
  validate_document(kTimelineDocument, t, place.empty() ? "the Timeline" : place);
}
void save(const Timeline& t, const std::filesystem::path& path) {
  save_document(kTimelineDocument, t, path, /*indent=*/-1);
}

}  // namespace linerate::doc
