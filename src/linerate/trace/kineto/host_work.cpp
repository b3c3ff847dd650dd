// If the CPU is the device, its operators are the computation. But a trace also has annotations,
// calls of communication and operators of the loader, which would be counted twice or wrongly.
//
// Example. An operator of DDP from 1 to 9 ms calls an all-reduce at 3 ms. It contains a call that
// communicates, so it is not computation itself. A copy inside it from 1.2 to 1.4 ms is. Gloo's own
// copy at 5 ms, on a thread of the back end, is part of the communication.
#include "linerate/trace/kineto/host_work.hpp"

#include <algorithm>
#include <map>
#include <string>

namespace linerate::trace {
namespace {

using SpansByThread = std::map<std::int64_t, std::vector<Span>>;

/// Spans of what `wanted` says, by thread.
template <typename Wanted>
SpansByThread spans_of(const KinetoTrace& t, const Wanted& wanted) {
  SpansByThread spans;
  for (const CpuOp& op : t.ops)
    if (wanted(t.names[op.name].kind)) spans[op.tid].push_back(op.span);
  for (auto& [tid, all] : spans) std::sort(all.begin(), all.end());
  return spans;
}

bool contains_one_of(const Span& outer, const std::vector<Span>& inner) {
  const auto first = std::upper_bound(inner.begin(), inner.end(), Span{outer.start_ns, INT64_MAX});
  return first != inner.end() && first->end_ns < outer.end_ns;
}

}  // namespace

bool runs_on_cpu(const KinetoTrace& t) {
  if (!t.device.empty() || t.other_device > 0 || !t.launches.empty() || t.ops.empty()) return false;
  if (!t.backend.empty() && t.backend != "gloo" && t.backend != "mpi") return false;
  if (std::any_of(t.marks.begin(), t.marks.end(), [&t](const CommMark& m) {
        return t.names[m.name].kind == NameKind::comm_mark && !t.names[m.name].host_backend;
      }))
    return false;
  return std::none_of(t.ops.begin(), t.ops.end(), [&t](const CpuOp& op) {
    const std::string& name = t.names[op.name].text;
    return name.find("cudnn") != std::string::npos || name.find("miopen") != std::string::npos ||
           name.find("cuda") != std::string::npos;
  });
}

InsideCommunications::InsideCommunications(const KinetoTrace& t) {
  for (const CommMark& m : t.marks)
    if (t.names[m.name].host_backend) by_thread_[m.tid].push_back(m.span);
  for (auto& [tid, spans] : by_thread_) spans = union_of(std::move(spans));
}

bool InsideCommunications::contains(const CpuOp& op) const {
  const auto thread = by_thread_.find(op.tid);
  if (thread == by_thread_.end()) return false;
  const std::vector<Span>& spans = thread->second;
  const auto after =
      std::upper_bound(spans.begin(), spans.end(), Span{op.span.start_ns, INT64_MAX});
  return after != spans.begin() && op.span.end_ns <= (after - 1)->end_ns;
}

/// Sorted by start and the longer one first, an operator is outermost if it starts after the end of
/// the last outermost one.
std::vector<Span> host_calls(const KinetoTrace& t) {
  std::vector<Span> all;
  for (const CpuOp& op : t.ops) {
    const NameKind kind = t.names[op.name].kind;
    if (op.tid == t.step_thread && (kind == NameKind::plain || kind == NameKind::accumulate_grad ||
                                    kind == NameKind::evaluate))
      all.push_back(op.span);
  }
  std::sort(all.begin(), all.end(), [](const Span& a, const Span& b) {
    return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.end_ns > b.end_ns;
  });
  std::vector<Span> outermost;
  for (const Span& s : all)
    if (outermost.empty() || s.start_ns >= outermost.back().end_ns) outermost.push_back(s);
  return outermost;
}

HostComputation host_computation(const KinetoTrace& t) {
  const InsideCommunications inside(t);
  const SpansByThread collectives = spans_of(t, [](NameKind k) { return k == NameKind::c10d; });
  SpansByThread loading = spans_of(t, [](NameKind k) { return k == NameKind::loading; });
  for (auto& [tid, spans] : loading) spans = union_of(std::move(spans));
  HostComputation work;
  for (const CpuOp& op : t.ops) {
    const NameKind kind = t.names[op.name].kind;
    if (kind != NameKind::plain && kind != NameKind::accumulate_grad) continue;
    if (inside.contains(op)) continue;
    const auto calls = collectives.find(op.tid);
    if (calls != collectives.end() && contains_one_of(op.span, calls->second)) continue;
    const auto loads = loading.find(op.tid);
    if (loads != loading.end() && !clipped(loads->second, op.span).empty()) continue;
    work.spans.push_back(op.span);
    work.names.push_back(t.names[op.name].hash);
  }
  return work;
}

}  // namespace linerate::trace
