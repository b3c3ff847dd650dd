// Phases come from the host. Some records name theirs: a loader's annotation, an optimizer's, a
// node of autograd. Most operators name none. An operator is of the forward pass if a backward pass
// follows it within the step, and otherwise of the phase that was going on.
//
// Example. Loader 0 to 2 ms, conv 3 ms, relu 4 ms, node of autograd 5 ms, optimizer 8 ms, add 8.1
// ms. conv and relu are forward, because 5 ms follows them. add is outermost on another thread; no
// backward pass follows it, so it is the optimizer's.
//
// The device's work takes the phase of its launch. Idle time of the device takes the phase that the
// host was in at that time, since a device idles for its host.
#include "linerate/trace/kineto/phases.hpp"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "linerate/trace/kineto/host_work.hpp"

namespace linerate::trace {
namespace {

/// A thing that the host did. Without a phase it is an operator, whose phase resolved() finds.
struct Item {
  Span span;
  std::optional<StepPhase> phase;
};

std::optional<StepPhase> phase_of(NameKind kind) {
  switch (kind) {
    case NameKind::loading:
      return StepPhase::data_loading;
    case NameKind::optimizer:
      return StepPhase::optimizer;
    case NameKind::evaluate:
      return StepPhase::backward;
    case NameKind::ddp:
      return StepPhase::forward;
    default:
      return std::nullopt;
  }
}

/// The outermost operators and annotations of each thread, by start: an operator inside another one
/// has its phase.
std::vector<Item> outermost_items(const KinetoTrace& t) {
  const InsideCommunications inside(t);
  std::vector<const CpuOp*> ops;
  for (const CpuOp& op : t.ops)  // communication may be in any phase
    if (t.names[op.name].kind != NameKind::c10d && !inside.contains(op)) ops.push_back(&op);
  std::sort(ops.begin(), ops.end(), [](const CpuOp* a, const CpuOp* b) {
    return a->span.start_ns != b->span.start_ns ? a->span.start_ns < b->span.start_ns
                                                : a->span.end_ns > b->span.end_ns;
  });
  std::vector<Item> items;
  std::unordered_map<std::int64_t, std::int64_t> busy_until;  // by thread
  for (const CpuOp* op : ops) {
    const auto [until, fresh] = busy_until.try_emplace(op->tid, op->span.end_ns);
    if (!fresh && op->span.start_ns < until->second) continue;
    until->second = op->span.end_ns;
    items.push_back({op->span, phase_of(t.names[op->name].kind)});
  }
  return items;
}

/// Every item gets its phase.
std::vector<PhaseSpan> resolved(const std::vector<Item>& items,
                                const std::vector<std::int64_t>& step_starts) {
  std::vector<std::optional<StepPhase>> phases;
  for (const Item& item : items) phases.push_back(item.phase);
  std::int64_t backward = INT64_MAX;  // the next one
  for (std::size_t i = items.size(); i-- > 0;) {
    const std::int64_t start = items[i].span.start_ns;
    if (phases[i] == StepPhase::backward) backward = start;
    const auto step = std::upper_bound(step_starts.begin(), step_starts.end(), start);
    if (!phases[i] && backward < (step == step_starts.end() ? INT64_MAX : *step))
      phases[i] = StepPhase::forward;
  }
  std::vector<PhaseSpan> work;
  StepPhase going_on = StepPhase::forward;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const StepPhase usual = going_on == StepPhase::data_loading ? StepPhase::forward : going_on;
    going_on = phases[i].value_or(usual);
    work.push_back({items[i].span, going_on});
  }
  return work;
}

/// The phase of `time` among disjoint spans.
StepPhase phase_at(const std::vector<PhaseSpan>& phases, std::int64_t time) {
  const auto after =
      std::upper_bound(phases.begin(), phases.end(), time,
                       [](std::int64_t t, const PhaseSpan& p) { return t < p.span.start_ns; });
  if (after == phases.begin() || (after - 1)->span.end_ns <= time) return StepPhase::unknown;
  return (after - 1)->phase;
}

/// The pieces of `host` that lie between `from` and `to`.
void add_between(const std::vector<PhaseSpan>& host, std::size_t& at, Span gap,
                 std::vector<PhaseSpan>& out) {
  while (at < host.size() && host[at].span.end_ns <= gap.start_ns) ++at;
  for (std::size_t i = at; i < host.size() && host[i].span.start_ns < gap.end_ns; ++i)
    out.push_back(
        {{std::max(host[i].span.start_ns, gap.start_ns), std::min(host[i].span.end_ns, gap.end_ns)},
         host[i].phase});
}

}  // namespace

std::vector<PhaseSpan> host_phases(const KinetoTrace& t) {
  std::vector<std::int64_t> step_starts;
  for (const StepSpan& s : t.steps) step_starts.push_back(s.span.start_ns);
  std::sort(step_starts.begin(), step_starts.end());
  return with_pauses(resolved(outermost_items(t), step_starts), step_starts);
}

/// The time within the steps, less everything that the host called, in pieces of a millisecond or
/// more. Each piece is cut by the host's phases.
std::optional<std::vector<PhaseSpan>> host_pauses(const KinetoTrace& t,
                                                  const std::vector<PhaseSpan>& host) {
  constexpr std::int64_t kLeast_ns = 1'000'000;
  if (t.ops.empty() || t.launches.empty() || t.steps.empty()) return std::nullopt;
  std::vector<Span> calls;
  std::vector<std::int64_t> starts;
  for (const CpuOp& op : t.ops)
    if (const NameKind kind = t.names[op.name].kind;
        kind == NameKind::plain || kind == NameKind::accumulate_grad || kind == NameKind::c10d)
      calls.push_back(op.span), starts.push_back(op.span.start_ns);
  // A node of autograd, an optimizer and a model hold operators, and hooks that may sleep; one
  // without any works itself.
  std::sort(starts.begin(), starts.end());
  for (const CpuOp& op : t.ops) {
    const NameKind kind = t.names[op.name].kind;
    if (kind != NameKind::evaluate && kind != NameKind::optimizer && kind != NameKind::ddp)
      continue;
    const auto first = std::lower_bound(starts.begin(), starts.end(), op.span.start_ns);
    if (first == starts.end() || *first >= op.span.end_ns) calls.push_back(op.span);
  }
  for (const Launch& l : t.launches) calls.push_back({l.start_ns, l.end_ns});
  Span steps{INT64_MAX, INT64_MIN};
  for (const StepSpan& s : t.steps)
    steps = {std::min(steps.start_ns, s.span.start_ns), std::max(steps.end_ns, s.span.end_ns)};
  std::vector<PhaseSpan> pauses;
  std::size_t at = 0;
  for (const Span& pause : difference_of({steps}, union_of(std::move(calls)))) {
    if (pause.length() < kLeast_ns) continue;
    if (!host.empty() && pause.start_ns < host.front().span.start_ns)  // it opens the record
      pauses.push_back({{pause.start_ns, std::min(pause.end_ns, host.front().span.start_ns)},
                        host.front().phase == StepPhase::data_loading ? StepPhase::data_loading
                                                                      : StepPhase::between_steps});
    add_between(host, at, pause, pauses);
    if (!host.empty() && pause.end_ns > host.back().span.end_ns)  // it closes the record
      pauses.push_back(
          {{std::max(pause.start_ns, host.back().span.end_ns), pause.end_ns}, host.back().phase});
  }
  return pauses;
}

/// `done` is the end of all work so far. A kernel that overlaps it counts from there, and a gap
/// before a kernel is filled with the host's phases.
std::vector<PhaseSpan> device_phases(const KinetoTrace& t, const LaunchTimes& launches,
                                     const std::vector<PhaseSpan>& host) {
  std::vector<PhaseSpan> work;
  for (const DeviceEvent& e : t.device) {
    if (is_communication_kernel(t, e)) continue;
    const Launch* launch = launches.of(e.correlation);
    work.push_back({e.span, e.to_device         ? StepPhase::copy
                            : launch != nullptr ? phase_at(host, launch->start_ns)
                                                : StepPhase::unknown});
  }
  std::sort(work.begin(), work.end(), [](const PhaseSpan& a, const PhaseSpan& b) {
    return a.span.start_ns < b.span.start_ns;
  });
  std::vector<PhaseSpan> out;
  std::size_t at = 0;
  std::int64_t done = INT64_MIN;
  for (const PhaseSpan& w : work) {
    const Span rest{std::max(w.span.start_ns, done), w.span.end_ns};
    if (rest.start_ns > done) add_between(host, at, {done, rest.start_ns}, out);
    if (rest.length() > 0) out.push_back({rest, w.phase});
    done = std::max(done, w.span.end_ns);
  }
  add_between(host, at, {done, INT64_MAX}, out);
  return out;
}

}  // namespace linerate::trace
