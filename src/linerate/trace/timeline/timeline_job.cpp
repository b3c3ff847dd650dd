// A Timeline has events and steps, a Job has the activity of each rank. An imported Timeline
// carries the recorded Job in full (timeline_job.hpp), and job_of() takes that. Other Timelines, of
// linerate's own runs and predictions, are translated event by event.
//
// Own runs know more than traces: which parameters a collective carries, when it was asked for, and
// which kind of task an event is. They know less about the host, so pauses come from gaps between
// tasks.
#include "linerate/trace/timeline/timeline_job.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"
#include "linerate/doc/fields.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/scaling_factor.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/trace/importer/importer.hpp"
#include "linerate/trace/job/by_start.hpp"
#include "linerate/trace/job/periods.hpp"

namespace linerate::trace {
namespace {

/// Documents know fewer kinds than traces: an imported "reduce" or "barrier" travels as broadcast
/// under its name. Those that both know have one name.
CommOp op_of(doc::TaskKind kind, std::string_view name) {
  if (kind == doc::TaskKind::all_gather_v) return CommOp::all_gather;
  const auto named =
      std::ranges::find(kCommOpNames, kind == doc::TaskKind::broadcast ? name : doc::name_of(kind));
  return named == kCommOpNames.end() ? CommOp::broadcast
                                     : static_cast<CommOp>(named - kCommOpNames.begin());
}

doc::TaskKind kind_of(CommOp op) {
  const auto named = std::ranges::find(doc::kTaskKindNames, name_of(op));
  return named == doc::kTaskKindNames.end()
             ? doc::TaskKind::broadcast
             : static_cast<doc::TaskKind>(named - doc::kTaskKindNames.begin());
}

/// Coding counts as backward, because gradients are coded while it goes on. K-FAC's work counts as
/// the optimizer's.
StepPhase phase_of(doc::TaskKind kind) {
  using enum doc::TaskKind;
  if (kind == forward) return StepPhase::forward;
  if (kind == backward || kind == encode || kind == decode) return StepPhase::backward;
  const bool updates = kind == factor || kind == inverse || kind == precondition || kind == update;
  return updates ? StepPhase::optimizer : StepPhase::unknown;
}

/// Sets the rank's phases from the kinds of its tasks, with the pauses between. They stay empty if
/// no task has a phase.
void add_phases(RankActivity& rank, std::vector<PhaseSpan> work) {
  const bool known =
      std::ranges::any_of(work, [](const PhaseSpan& p) { return p.phase != StepPhase::unknown; });
  if (!known) return;
  rank.phases = with_pauses(std::move(work), mapped(rank.steps, start_of));
}

/// A number that is equal for the same work in different steps. Coders on a lane of their own get
/// 0, which means unknown. They slow the computation that runs with them, so
/// contention/slowdown.hpp must not compare it.
std::uint64_t name_of_work(const doc::Timeline& t, const doc::Event& e) {
  if (e.resource == doc::Resource::codec) return 0;
  const std::uint64_t name = e.name >= 0 ? hash_bytes(t.names[to_index(e.name)]) : kHashStart;
  return hash_value(static_cast<std::uint64_t>(e.set),
                    hash_value(static_cast<std::uint64_t>(e.kind), name));
}

/// A list of distinct values in the order in which they came.
template <typename T>
struct Numbered {
  std::vector<T>& values;
  std::map<T, std::int32_t> numbers = {};

  std::int32_t number_of(const T& value) {
    const auto [at, fresh] = numbers.try_emplace(value, static_cast<std::int32_t>(values.size()));
    if (fresh) values.push_back(value);
    return at->second;
  }
};

/// The number of the step that a moment of the rank belongs to: up to the begin of the next one.
class StepOf {
 public:
  explicit StepOf(const RankActivity& r) : steps_(r.steps) {
    for (StepSpan& s : steps_) s.span = s.time();
    std::ranges::sort(steps_, {}, start_of);
  }
  std::int32_t time(std::int64_t ns) const {
    const StepSpan* step = last_begun(steps_, ns);
    return step == nullptr ? doc::kEarlierStep : static_cast<std::int32_t>(step->number);
  }

 private:
  std::vector<StepSpan> steps_;
};

std::vector<std::int32_t> range_of(GradientRange range) {
  std::vector<std::int32_t> all(to_index(range.last - range.first + 1));
  std::iota(all.begin(), all.end(), range.first);
  return all;
}

/// A layer's backward, up to when its last gradient was ready. Layers follow each other without
/// gaps: each begins when the last gradient of the one before was ready.
struct LayerSpan {
  int layer = 0;
  GradientRange gradients;
  Span span;
};

std::vector<LayerSpan> layer_spans(const BackwardPass& pass) {
  std::vector<LayerSpan> layers;
  std::int64_t begin = pass.span.start_ns;
  for (std::size_t g = 0; g < pass.gradients.size(); ++g) {
    const GradientRecord& gradient = pass.gradients[g];
    const auto at = static_cast<std::int32_t>(g);
    const std::int64_t ready = pass.span.start_ns + gradient.ready_ns;
    if (layers.empty() || layers.back().layer != gradient.layer)
      layers.push_back({gradient.layer, {at, at}, {begin, ready}});
    layers.back().gradients.last = at;
    layers.back().span.end_ns = ready;
    begin = ready;
  }
  return layers;
}

/// A predicted Timeline repeats, and its last collective may run into the next repetition. Each
/// collective counts once. One that begins after the last step is dropped. One that only ends after
/// it keeps its time, and its bytes become unknown.
void keep_cycle(RankActivity& rank) {
  if (rank.steps.empty()) return;
  const std::int64_t end_ns = rank.steps.back().span.end_ns;
  std::erase_if(rank.communications,
                [end_ns](const Communication& c) { return c.span.start_ns >= end_ns; });
  for (Communication& c : rank.communications)
    if (c.span.end_ns > end_ns) c.bytes = -1;
}

/// What a recorded training step says of its gradients: backward by layer, and the copy of each
/// gradient into its bucket, which has its size.
struct StepGradients {
  struct Copied {
    std::int64_t ready_ns = 0, bytes = 0;
    std::int32_t parameter = 0;
  };
  std::vector<Copied> copies;
  std::vector<std::pair<Span, std::int32_t>> layers;  // backward, set of parameters

  void add(const doc::Timeline& t, const doc::Event& e) {
    if (e.kind == doc::TaskKind::backward)
      layers.push_back({{e.start_ns, e.end_ns}, e.set});
    else if (e.kind == doc::TaskKind::copy && e.set >= 0 && e.bytes > 0 &&
             t.parameter_sets[to_index(e.set)].size() == 1)
      copies.push_back({e.ready_ns >= 0 ? e.ready_ns : e.start_ns, e.bytes,
                        t.parameter_sets[to_index(e.set)].front()});
  }

  /// The backward pass of a step. Its gradients are empty unless every parameter has a copy.
  /// Documents state no element type, so f32 is assumed.
  BackwardPass pass(const doc::Timeline& t, std::int32_t step) {
    BackwardPass pass{.step = step, .span = {}, .gradients = {}, .layers = {}};
    std::ranges::stable_sort(copies, {}, &Copied::ready_ns);
    std::ranges::sort(layers);
    if (layers.empty()) return pass;
    pass.span = {layers.front().first.start_ns, layers.back().first.end_ns};
    std::map<std::int32_t, int> layer_of;
    for (const auto& [span, set] : layers) {
      if (set < 0) continue;
      pass.layers.push_back({.kind = "", .backward_ns = span.length()});
      for (const std::int32_t p : t.parameter_sets[to_index(set)])
        layer_of.try_emplace(p, static_cast<int>(pass.layers.size()) - 1);
    }
    std::set<std::int32_t> seen;
    for (const Copied& c : copies) {
      const auto layer = layer_of.find(c.parameter);
      if (layer == layer_of.end() || !seen.insert(c.parameter).second) continue;
      pass.gradients.push_back({.elements = c.bytes / size_of(DType::f32),
                                .ready_ns = std::max<std::int64_t>(
                                    pass.gradients.empty() ? 0 : pass.gradients.back().ready_ns,
                                    c.ready_ns - pass.span.start_ns),
                                .layer = layer->second,
                                .rows = 0});
    }
    if (seen.size() != layer_of.size()) pass.gradients.clear();
    return pass;
  }
};

}  // namespace

/// Each event becomes a communication, a copy or computation of its rank. Steps are entered first,
/// so that events find their positions.
Job job_of(const doc::Timeline& t) {
  Job job = t.recording.empty() ? Job() : job_of_recording(t.recording);
  job.origin_ns = t.origin_ns;
  job.counters = t.counters;
  job.line_rate_bytes_per_s = t.line_rate_bytes_per_s;
  job.notes = t.notes;
  if (job.complete) return job;
  job.strategy = t.strategy;
  job.world_size = t.ranks;
  if (t.device != "cpu") job.device = t.device;
  job.cpu_device = t.mode != "imported" && job.device.empty();
  job.cycle = t.mode == "predicted";
  if (t.one_rank_step_s) job.one_rank = {{*t.one_rank_step_s}, "as the Timeline says"};
  // If collectives name the parameters that they are about, those without carry none.
  const bool names_parameters = std::ranges::any_of(
      t.events, [](const doc::Event& e) { return doc::is_communication(e.kind) && e.set >= 0; });
  std::map<std::int32_t, RankActivity> ranks;
  for (const doc::Step& s : t.steps)
    ranks[s.rank].steps.push_back({s.index, {s.start_ns, s.end_ns}});
  for (auto& [rank, activity] : ranks) std::ranges::sort(activity.steps, {}, &StepSpan::number);
  std::map<std::int32_t, std::vector<PhaseSpan>> work;
  std::map<std::pair<std::int32_t, std::int32_t>, StepGradients> gradients;  // by rank and step
  for (const doc::Event& e : t.events) {
    RankActivity& r = ranks[e.rank];
    const Span span{e.start_ns, e.end_ns};
    if (const std::int32_t step = position_of(r.steps, e.step); step >= 0)
      gradients[{e.rank, step}].add(t, e);
    if (doc::is_communication(e.kind)) {
      static const std::string kNone;
      const std::string& name = e.name >= 0 ? t.names[to_index(e.name)] : kNone;
      Communication c{
          .span = span, .op = op_of(e.kind, name), .group_size = t.ranks, .bytes = e.bytes};
      // What K-FAC broadcasts comes of gradients, by whatever it is called; buffers do not.
      const bool of_kfac = e.kind == doc::TaskKind::broadcast && t.mode != "imported" &&
                           name.find(doc::name_of(doc::Content::buffers)) == std::string::npos;
      c.gradients = e.set >= 0 || !names_parameters || of_kfac;
      if (e.ready_ns != -1) c.ready_ns = e.ready_ns;
      if (e.group >= 0) {
        const doc::RankGroup& group = t.groups[to_index(e.group)];
        c.group_size = group.ranks;
        if (!group.name.empty()) c.group = group_index(job, group.name);
      }
      c.step = position_of(r.steps, e.step);
      r.communications.push_back(c);
    } else if (e.kind == doc::TaskKind::copy) {
      r.copies.push_back(span);
    } else if (doc::is_computation(t, e)) {
      r.compute.push_back(span);
      r.compute_names.push_back(name_of_work(t, e));
      work[e.rank].push_back({span, phase_of(e.kind)});
    }
  }
  for (auto& [at, step] : gradients)
    if (BackwardPass pass = step.pass(t, at.second); !pass.gradients.empty())
      ranks[at.first].passes.push_back(std::move(pass));
  for (auto& [rank, activity] : ranks) {
    activity.rank = rank;
    activity.source = t.source;
    sort_by_start(activity.communications);
    add_phases(activity, std::move(work[rank]));
    if (job.cycle) keep_cycle(activity);
    job.ranks.push_back(std::move(activity));
  }
  return job;
}

/// Events are for people and for exporters; job_of() reads the recording instead. So a backward
/// pass is written as one forward event and one event for each layer, next to the kernels.
doc::Timeline timeline_of(const Job& job, const std::string& source) {
  doc::Timeline t;
  t.mode = "imported";
  t.source = source;
  t.device = job.device;
  t.origin_ns = job.origin_ns;
  t.ranks = std::max(job.world_size, static_cast<int>(job.ranks.size()));
  t.counters = job.counters;
  t.line_rate_bytes_per_s = job.line_rate_bytes_per_s;
  if (job.one_rank) t.one_rank_step_s = job.one_rank->step_s.value;
  t.notes = job.notes;
  t.recording = recording_of(job);
  Numbered<std::string> names{t.names};
  std::vector<std::pair<std::string, int>> distinct_groups;
  Numbered<std::pair<std::string, int>> groups{distinct_groups};
  Numbered<std::vector<std::int32_t>> sets{t.parameter_sets};
  for (std::size_t g = 0; g < job.gradients.size(); ++g)
    t.parameter_names.push_back(gradient_name(job, g));
  for (std::size_t i = 0; i < job.ranks.size(); ++i) {
    const RankActivity& r = job.ranks[i];
    const std::int32_t rank = r.rank >= 0 ? r.rank : static_cast<std::int32_t>(i);
    for (const StepSpan& s : r.steps) {
      const Span span = s.time();
      t.steps.push_back({.rank = rank,
                         .index = static_cast<std::int32_t>(s.number),
                         .start_ns = span.start_ns,
                         .end_ns = span.end_ns,
                         .variant = ""});
    }
    const auto add = [&](doc::TaskKind kind, doc::Resource resource, Span span) -> doc::Event& {
      t.events.push_back({.kind = kind,
                          .resource = resource,
                          .rank = rank,
                          .start_ns = span.start_ns,
                          .end_ns = span.end_ns});
      return t.events.back();
    };
    const StepOf step_of(r);
    for (const Span& s : r.compute)
      add(doc::TaskKind::compute, doc::Resource::compute, s).step = step_of.time(s.start_ns);
    for (const Span& s : r.copies)
      add(doc::TaskKind::copy, doc::Resource::compute, s).step = step_of.time(s.start_ns);
    for (const BackwardPass* pass : exchanging_passes(job, r)) {
      const StepSpan& step = r.steps[to_index(pass->step)];
      const auto at = static_cast<std::int32_t>(step.number);
      const std::int64_t begin = step.time().start_ns;
      doc::Event& forward = add(doc::TaskKind::forward, doc::Resource::compute,
                                {std::min(begin, pass->span.start_ns), pass->span.start_ns});
      forward.step = at;
      forward.set =
          sets.number_of(range_of({0, static_cast<std::int32_t>(job.gradients.size()) - 1}));
      for (const LayerSpan& layer : layer_spans(*pass)) {
        doc::Event& e = add(doc::TaskKind::backward, doc::Resource::compute, layer.span);
        e.step = at;
        e.name = names.number_of(layer_name(job, layer.layer));
        e.set = sets.number_of(range_of(layer.gradients));
      }
    }
    const std::vector<std::optional<GradientRange>> carried = gradients_of_exchanges(job, r);
    for (std::size_t k = 0; k < r.communications.size(); ++k) {
      const Communication& c = r.communications[k];
      doc::Event& e = add(kind_of(c.op), doc::Resource::network, c.span);
      if (carried[k]) e.set = sets.number_of(range_of(*carried[k]));
      if (carried[k]) e.ready_ns = c.span.start_ns;
      e.bytes = c.bytes;
      if (c.ready_ns != kNotReady) e.ready_ns = c.ready_ns;
      e.name = names.number_of(std::string(name_of(c.op)));
      if (c.group_size > 0 && c.group_size != t.ranks)
        e.group =
            groups.number_of({c.group >= 0 ? job.groups[to_index(c.group)] : "", c.group_size});
      if (c.step >= 0) e.step = static_cast<std::int32_t>(r.steps[to_index(c.step)].number);
    }
  }
  for (auto& [name, ranks] : distinct_groups) t.groups.push_back({std::move(name), ranks});
  return t;
}

// One fields() for each type describes its JSON, for reading and for writing (doc/fields.hpp).
// Spans are rows of two or three numbers, because most of a recording is spans. Indices are checked
// against the tables that they point into.

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

/// Steps come before communications, whose indices are checked against them.
void fields(auto& v, Is<RankActivity> auto& r, std::size_t groups) {
  v.required("rank", r.rank, kOrUnknown);
  v.required("source", r.source);
  v.required("stamp_ns", r.stamp_ns, kTime);
  v.required("steps", r.steps);
  std::vector<std::pair<std::int64_t, std::int64_t>> marks(r.marks_ns.begin(), r.marks_ns.end());
  v.required("marks", marks, [](auto& item, auto& mark) {
    item.required("number", mark.first, kTime);
    item.required("ns", mark.second, kTime);
  });
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(r)>>)
    for (const auto& [number, ns] : marks) r.marks_ns[number] = ns;
  for_each_spans(r, [&v](const char* key, auto& spans) {
    v.written_if(!spans.empty(), key, spans, SpanRow{});
  });
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

namespace {

/// The first keys of a document say what it is.
Head first_keys(const Head& head) { return Head(head.text().substr(0, 512)); }

bool is_timeline(const Head& head) {
  return is_document(head) && first_keys(head).contains("\"timeline\"");
}

}  // namespace

bool is_document(const Head& head) {
  const Head front = first_keys(head);
  return front.text().starts_with('{') && front.contains("\"document\"") &&
         front.contains("\"schema\"");
}

std::vector<Importer> timeline_importers() {
  return {
      {.name = "linerate Timeline",
       .matches = is_timeline,
       .read = [](PaddedText text, const std::string& file, const Progress&) -> std::any {
         return job_of(doc::timeline_from_json(std::string(text.view()), file));
       },
       .join = only_job},
      {.name = "linerate document",
       .matches = [](const Head& head) { return is_document(head) && !is_timeline(head); },
       .advice =
           "expected a trace or a linerate Timeline, found another linerate document, such as a "
           "Workload or a Cluster; give what a job recorded"}};
}

}  // namespace linerate::trace
