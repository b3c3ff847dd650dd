// One fields() for each type describes its JSON, for reading and for writing (doc/fields.hpp).
// Spans are rows of two or three numbers, because most of a recording is spans. Indices are checked
// against the tables that they point into.
#include "linerate/trace/timeline/recording.hpp"

#include <bit>
#include <optional>
#include <utility>

#include "linerate/doc/fields.hpp"

namespace linerate::trace {
namespace {

using doc::Is;
using doc::Json;
using doc::JsonReader;
using doc::Range;

constexpr std::int64_t kMostTime = 4'000'000'000'000'000'000;  // lengths between two of them fit
constexpr Range kTime{-kMostTime, kMostTime};
constexpr Range kCount{0, INT32_MAX}, kOrUnknown{-1, INT32_MAX}, kBytes{-1, INT64_MAX};

Range index_below(std::size_t size) { return {-1, static_cast<std::int64_t>(size) - 1}; }

/// [start, end].
struct SpanRow {
  static Span read(const JsonReader& r) {
    const Span span{kTime.read(r.item(0)), kTime.read(r.item(1))};
    if (span.end_ns < span.start_ns) r.refuse("[start, end], the end no earlier than the start");
    return span;
  }
  static Json write(const Span& s) { return Json::array({s.start_ns, s.end_ns}); }
};

/// [start, end, phase].
struct PhaseRow {
  static PhaseSpan read(const JsonReader& r) {
    const std::int64_t phase = r.item(2).integer_in(0, kPhases - 1);
    return {SpanRow::read(r), static_cast<StepPhase>(phase)};
  }
  static Json write(const PhaseSpan& p) {
    return Json::array({p.span.start_ns, p.span.end_ns, static_cast<int>(p.phase)});
  }
};

/// A hash: its bits as those of a whole number.
struct Bits {
  static std::uint64_t read(const JsonReader& r) {
    return std::bit_cast<std::uint64_t>(r.integer());
  }
  static Json write(std::uint64_t bits) { return std::bit_cast<std::int64_t>(bits); }
};

/// ready_ns may be unknown.
struct Ready {
  static std::int64_t read(const JsonReader& r) { return r.is_null() ? kNotReady : kTime.read(r); }
  static Json write(std::int64_t ns) { return ns == kNotReady ? Json(nullptr) : Json(ns); }
};

void check_names(const JsonReader& r, const RankActivity& rank) {
  for (const auto& [key, list] : {std::pair("compute_names", &rank.compute_names),
                                  std::pair("launch_sizes", &rank.launch_sizes)})
    if (!list->empty() && list->size() != rank.compute.size())
      r.at(key).refuse("none, or one of each in compute");
}

void check_layers(const JsonReader& r, const std::vector<GradientRecord>& gradients,
                  const std::vector<LayerRecord>& layers) {
  for (const GradientRecord& g : gradients)
    if (to_index(g.layer) >= layers.size()) r.at("gradients").refuse("layers that are there");
}

}  // namespace

void fields(auto& v, Is<StepSpan> auto& s) {
  v.required("number", s.number, Range{0, INT32_MAX});
  v.required("span", s.span, SpanRow{});
  v.written_if(s.on_device.has_value(), "on_device", s.on_device, SpanRow{});
  v.written_if(s.updates, "updates", s.updates);
  v.written_if(s.cut, "cut", s.cut);
  v.written_if(s.partial, "partial", s.partial);
  v.written_if(s.nothing_ran, "nothing_ran", s.nothing_ran);
  v.written_if(!s.marks.empty(), "marks", s.marks);
}

void fields(auto& v, Is<Communication> auto& c, std::size_t steps, std::size_t groups) {
  v.required("span", c.span, SpanRow{});
  v.required("op", c.op, kCommOpNames);
  v.written_if(c.group >= 0, "group", c.group, index_below(groups));
  v.written_if(c.group_size >= 0, "group_size", c.group_size, kOrUnknown);
  v.written_if(c.bytes >= 0, "bytes", c.bytes, kBytes);
  v.written_if(!c.gradients, "gradients", c.gradients);
  v.written_if(c.deduced, "deduced", c.deduced);
  v.written_if(c.sequence >= 0, "sequence", c.sequence, kBytes);
  v.written_if(c.comms_id != 0, "comms_id", c.comms_id, Bits{});
  v.written_if(c.bus_bytes >= 0, "bus_bytes", c.bus_bytes, kBytes);
  v.written_if(c.step >= 0, "step", c.step, index_below(steps));
  v.written_if(c.turn != 0, "turn", c.turn, kCount);
  v.written_if(c.issued >= 0, "issued", c.issued, kBytes);
  v.written_if(c.dtype.has_value(), "dtype", c.dtype, kDTypeNames);
  v.written_if(c.ready_ns != kNotReady, "ready_ns", c.ready_ns, Ready{});
}

void fields(auto& v, Is<Announced> auto& a, std::size_t steps) {
  v.required("step", a.step, index_below(steps));
  v.required("op", a.op, kCommOpNames);
  v.required("bytes", a.bytes, kBytes);
  v.written_if(a.dtype.has_value(), "dtype", a.dtype, kDTypeNames);
}

void fields(auto& v, Is<GradientRecord> auto& g) {
  v.required("elements", g.elements, Range{0, INT64_MAX});
  v.required("dtype", g.dtype, kDTypeNames);
  v.required("ready_ns", g.ready_ns, kTime);
  v.required("layer", g.layer, kCount);
  v.required("rows", g.rows, Range{0, INT64_MAX});
  v.written_if(g.turn != 0, "turn", g.turn, kCount);
}

void fields(auto& v, Is<LayerRecord> auto& l) {
  v.required("kind", l.kind);
  v.required("backward_ns", l.backward_ns, kTime);
  v.written_if(l.block.has_value(), "block", l.block, [](auto& item, auto& b) {
    item.required("kind", b.kind, doc::kBlockKindNames);
    item.required("a", b.a, kBytes);
    item.required("g", b.g, kBytes);
    item.required("groups", b.groups, kCount);
    item.required("rows_a", b.rows_a, kBytes);
    item.required("rows_g", b.rows_g, kBytes);
  });
}

void fields(auto& v, Is<BackwardPass> auto& p, std::size_t steps) {
  v.required("step", p.step, index_below(steps));
  v.required("span", p.span, SpanRow{});
  v.required("gradients", p.gradients);
  v.required("layers", p.layers);
  v.hold(check_layers, p.gradients, p.layers);
}

/// Of each mark.
struct MarkTime {
  std::int64_t number = 0, ns = 0;
};
void fields(auto& v, Is<MarkTime> auto& m) {
  v.required("number", m.number, kTime);
  v.required("ns", m.ns, kTime);
}

/// Steps come before communications, whose indices are checked against them.
void fields(auto& v, Is<RankActivity> auto& r, std::size_t groups) {
  v.required("rank", r.rank, kOrUnknown);
  v.required("source", r.source);
  v.required("stamp_ns", r.stamp_ns, kTime);
  v.required("steps", r.steps);
  std::vector<MarkTime> marks;
  for (const auto& [number, ns] : r.marks_ns) marks.push_back({number, ns});
  v.required("marks", marks);
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(r)>>)
    for (const MarkTime& m : marks) r.marks_ns[m.number] = m.ns;
  for (const auto& [key, spans] :
       {std::pair("compute", &r.compute), std::pair("may_communicate", &r.may_communicate),
        std::pair("copies", &r.copies), std::pair("host", &r.host), std::pair("calls", &r.calls),
        std::pair("exchange_work", &r.exchange_work),
        std::pair("exchange_calls", &r.exchange_calls)})
    v.written_if(!spans->empty(), key, *spans, SpanRow{});
  v.written_if(!r.compute_names.empty(), "compute_names", r.compute_names, Bits{});
  v.written_if(!r.launch_sizes.empty(), "launch_sizes", r.launch_sizes, Bits{});
  v.written_if(r.pauses.has_value(), "pauses", r.pauses, PhaseRow{});
  v.written_if(!r.phases.empty(), "phases", r.phases, PhaseRow{});
  const std::size_t steps = r.steps.size();
  const auto in_rank = [steps](auto& item, auto& x) { fields(item, x, steps); };
  v.required("communications", r.communications,
             [steps, groups](auto& item, auto& c) { fields(item, c, steps, groups); });
  v.written_if(!r.announced.empty(), "announced", r.announced, in_rank);
  v.written_if(!r.passes.empty(), "passes", r.passes, in_rank);
  v.hold(check_names, r);
}

void fields(auto& v, Is<OneRankTime> auto& t) {
  v.required("step_s", t.step_s.value, doc::seconds);
  v.required("low_s", t.step_s.low, doc::seconds);
  v.required("high_s", t.step_s.high, doc::seconds);
  v.required("origin", t.origin);
}

void fields(auto& v, Is<Job> auto& job) {
  v.required("world_size", job.world_size, kOrUnknown);
  v.required("groups", job.groups);
  v.written_if(!job.has_durations, "has_durations", job.has_durations);
  v.written_if(job.computation_unknown, "computation_unknown", job.computation_unknown);
  v.written_if(job.communication_unknown, "communication_unknown", job.communication_unknown);
  v.written_if(!job.may_communicate.empty(), "may_communicate", job.may_communicate);
  v.required("cpu_device", job.cpu_device);
  v.written_if(!job.device.empty(), "device", job.device);
  v.written_if(!job.strategy.empty(), "strategy", job.strategy);
  v.written_if(job.runs_graphs, "runs_graphs", job.runs_graphs);
  v.written_if(job.cycle, "cycle", job.cycle);
  v.written_if(job.updates != 1, "updates", job.updates, Range{1, INT32_MAX});
  v.required("gradients", job.gradients);
  v.required("layers", job.layers);
  v.hold(check_layers, job.gradients, job.layers);
  v.written_if(job.accumulation.passes != 1, "passes", job.accumulation.passes,
               Range{1, INT32_MAX});
  v.written_if(job.accumulation.marks != 1, "marks", job.accumulation.marks, Range{1, INT32_MAX});
  v.required("one_rank", job.one_rank);
  v.written_if(!job.sharding_names.empty(), "sharding_names", job.sharding_names);
  v.written_if(!job.sharding.empty(), "sharding", job.sharding);
  const std::size_t groups = job.groups.size();
  v.required("of_ranks", job.ranks, [groups](auto& item, auto& r) { fields(item, r, groups); });
}

std::string recording_of(const Job& job) {
  return doc::written_value(job).dump(-1, ' ', false, Json::error_handler_t::replace);
}

Job job_of_recording(const std::string& text) {
  static const std::string kPlace = "the Timeline's recording";
  const Json json = doc::parse_json(text, kPlace);
  Job job;
  doc::read_fields(JsonReader(json, kPlace), job, doc::kItsFields);
  job.complete = true;
  return job;
}

}  // namespace linerate::trace
