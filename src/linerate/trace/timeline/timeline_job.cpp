#include "linerate/trace/timeline/timeline_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "linerate/doc/exposed_communication.hpp"

namespace linerate::trace {
namespace {

CommOp op_of(doc::TaskKind kind, const std::string& name) {
  switch (kind) {
    case doc::TaskKind::all_reduce:
      return CommOp::all_reduce;
    case doc::TaskKind::reduce_scatter:
      return CommOp::reduce_scatter;
    case doc::TaskKind::all_gather:
    case doc::TaskKind::all_gather_v:
      return CommOp::all_gather;
    case doc::TaskKind::all_to_all:
      return CommOp::all_to_all;
    default:
      break;
  }
  // Documents know fewer kinds than traces: an imported "reduce" or "barrier" travels as broadcast
  // under its name.
  const std::string_view plain = std::string_view(name).substr(0, name.find(" of "));
  for (std::size_t i = 0; i < kCommOpNames.size(); ++i)
    if (plain == kCommOpNames[i]) return static_cast<CommOp>(i);
  return CommOp::broadcast;
}

/// Documents know no groups either: "all-reduce of 2 ranks in tp (ranks 0, 1)" keeps them. The
/// whole job's need no mention.
std::string name_of_event(const Communication& c, const Job& job, int ranks) {
  std::string name(name_of(c.op));
  if (c.group_size > 0 && c.group_size != ranks) {
    name += fmt::format(" of {} ranks", c.group_size);
    if (c.group >= 0) name += " in " + job.groups[static_cast<std::size_t>(c.group)];
  }
  return name;
}

/// The other way: group size and group of a communication that is not of the whole job.
void read_group(const std::string& name, Job& job, Communication& c) {
  const std::size_t of = name.find(" of ");
  if (of == std::string::npos) return;
  int size = 0;
  const auto [end, status] = std::from_chars(name.data() + of + 4, name.data() + name.size(), size);
  if (status != std::errc{} || size < 1 ||
      !std::string_view(end, name.data() + name.size()).starts_with(" ranks"))
    return;
  c.group_size = size;
  const std::size_t in = name.find(" in ", of);
  if (in == std::string::npos) return;
  const std::string group = name.substr(in + 4);
  c.group = group_index(job, group);
}

doc::TaskKind kind_of(CommOp op) {
  switch (op) {
    case CommOp::all_reduce:
      return doc::TaskKind::all_reduce;
    case CommOp::reduce_scatter:
      return doc::TaskKind::reduce_scatter;
    case CommOp::all_gather:
      return doc::TaskKind::all_gather;
    case CommOp::all_to_all:
      return doc::TaskKind::all_to_all;
    default:
      return doc::TaskKind::broadcast;
  }
}

std::int32_t position_of(const std::vector<StepSpan>& steps, std::int64_t number) {
  const auto found = std::find_if(steps.begin(), steps.end(),
                                  [number](const StepSpan& s) { return s.number == number; });
  return found == steps.end() ? -1 : static_cast<std::int32_t>(found - steps.begin());
}

}  // namespace

namespace {

/// Of a cycle that repeats every collective counts once: where it ends.
void keep_cycle(RankActivity& rank) {
  if (rank.steps.empty()) return;
  const std::int64_t end_ns = rank.steps.back().span.end_ns;
  std::erase_if(rank.communications,
                [end_ns](const Communication& c) { return c.span.start_ns >= end_ns; });
  for (Communication& c : rank.communications)
    if (c.span.end_ns > end_ns) c.bytes = -1;
}

}  // namespace

Job job_of(const doc::Timeline& t) {
  Job job;
  job.world_size = t.ranks;
  job.origin_ns = t.origin_ns;
  job.cpu_device = t.mode != "imported";
  job.cycle = t.mode == "predicted";
  job.counters = t.counters;
  job.line_rate_bytes_per_s = t.line_rate_bytes_per_s;
  job.one_rank_step_s = t.one_rank_step_s;
  job.notes = t.notes;
  // Where collectives name the parameters that they are about, those without carry none.
  const bool names_parameters =
      std::any_of(t.events.begin(), t.events.end(),
                  [](const doc::Event& e) { return doc::is_communication(e.kind) && e.set >= 0; });
  std::map<std::int32_t, RankActivity> ranks;
  for (const doc::Step& s : t.steps)
    ranks[s.rank].steps.push_back({s.index, {s.start_ns, s.end_ns}});
  for (auto& [rank, activity] : ranks)
    std::sort(activity.steps.begin(), activity.steps.end(),
              [](const StepSpan& a, const StepSpan& b) { return a.number < b.number; });
  for (const doc::Event& e : t.events) {
    RankActivity& r = ranks[e.rank];
    const Span span{e.start_ns, e.end_ns};
    if (doc::is_communication(e.kind)) {
      static const std::string kNone;
      const std::string& name = e.name >= 0 ? t.names[static_cast<std::size_t>(e.name)] : kNone;
      Communication c{
          .span = span, .op = op_of(e.kind, name), .group_size = t.ranks, .bytes = e.bytes};
      c.gradients = e.set >= 0 || !names_parameters;
      read_group(name, job, c);
      c.step = position_of(r.steps, e.step);
      r.communications.push_back(c);
    } else if (e.kind == doc::TaskKind::copy) {
      r.copies.push_back(span);
    } else if (doc::is_computation(e.kind)) {
      r.compute.push_back(span);
    }
  }
  for (auto& [rank, activity] : ranks) {
    activity.rank = rank;
    activity.source = t.source;
    sort_by_start(activity.communications);
    if (job.cycle) keep_cycle(activity);
    job.ranks.push_back(std::move(activity));
  }
  return job;
}

doc::Timeline timeline_of(const Job& job, const std::string& source) {
  doc::Timeline t;
  t.mode = "imported";
  t.source = source;
  t.origin_ns = job.origin_ns;
  t.ranks = std::max(job.world_size, static_cast<int>(job.ranks.size()));
  t.counters = job.counters;
  t.line_rate_bytes_per_s = job.line_rate_bytes_per_s;
  t.one_rank_step_s = job.one_rank_step_s;
  t.notes = job.notes;
  std::map<std::string, std::int32_t> names;
  for (std::size_t i = 0; i < job.ranks.size(); ++i) {
    const RankActivity& r = job.ranks[i];
    const std::int32_t rank = r.rank >= 0 ? r.rank : static_cast<std::int32_t>(i);
    for (const StepSpan& s : r.steps)
      t.steps.push_back({.rank = rank,
                         .index = static_cast<std::int32_t>(s.number),
                         .start_ns = s.span.start_ns,
                         .end_ns = s.span.end_ns,
                         .variant = ""});
    const auto add = [&](doc::TaskKind kind, doc::Resource resource, Span span) -> doc::Event& {
      t.events.push_back({.kind = kind,
                          .resource = resource,
                          .rank = rank,
                          .start_ns = span.start_ns,
                          .end_ns = span.end_ns});
      return t.events.back();
    };
    for (const Span& s : r.compute) add(doc::TaskKind::compute, doc::Resource::compute, s);
    for (const Span& s : r.copies) add(doc::TaskKind::copy, doc::Resource::compute, s);
    for (const Communication& c : r.communications) {
      doc::Event& e = add(kind_of(c.op), doc::Resource::network, c.span);
      e.bytes = c.bytes;
      const auto [name, fresh] = names.try_emplace(name_of_event(c, job, t.ranks),
                                                   static_cast<std::int32_t>(t.names.size()));
      if (fresh) t.names.push_back(name->first);
      e.name = name->second;
      if (c.step >= 0)
        e.step = static_cast<std::int32_t>(r.steps[static_cast<std::size_t>(c.step)].number);
    }
  }
  return t;
}

}  // namespace linerate::trace
