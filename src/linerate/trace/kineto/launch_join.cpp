#include "linerate/trace/kineto/launch_join.hpp"

#include <algorithm>
#include <unordered_set>

namespace linerate::trace {
namespace {

/// Files of 2020 to 2022 write the correlation into "External id" too; a join over it would be
/// wrong.
bool external_ids_are_correlations(const KinetoTrace& t) {
  std::size_t both = 0, equal = 0;
  for (const DeviceEvent& e : t.device)
    if (e.correlation != 0 && e.external_id != 0) ++both, equal += e.correlation == e.external_id;
  return both > 0 && equal * 2 > both;
}

bool starts_before(const CommMark* a, const CommMark* b) {
  return a->span.start_ns < b->span.start_ns;
}

/// Past the last mark that starts at or before the launch.
auto end_of_marks_before(const std::vector<const CommMark*>& marks, const Launch& launch) {
  return std::upper_bound(
      marks.begin(), marks.end(), launch.start_ns,
      [](std::int64_t time, const CommMark* m) { return time < m->span.start_ns; });
}

}  // namespace

LaunchJoin::LaunchJoin(const KinetoTrace& t) : trace_(t) {
  std::unordered_set<std::uint64_t> wanted;
  for (const DeviceEvent& e : t.device)
    if (e.correlation != 0 && is_communication_kernel(t, e)) wanted.insert(e.correlation);
  for (const Launch& l : t.launches)
    if (wanted.contains(l.correlation)) launches_[l.correlation] = l;
  const bool joins_ids = !external_ids_are_correlations(t);
  for (const CommMark& m : t.marks) {
    marks_[m.tid].push_back(&m);
    if (m.args < 0 || t.names[m.name].kind != NameKind::param_comms) continue;
    records_[m.tid].push_back(&m);
    if (joins_ids && m.external_id != 0) args_by_id_[m.external_id] = m.args;
  }
  for (MarksByThread* threads : {&records_, &marks_})
    for (auto& [tid, marks] : *threads) std::sort(marks.begin(), marks.end(), starts_before);
}

KernelOrigin LaunchJoin::origin_of(const DeviceEvent& kernel) const {
  KernelOrigin origin{.launch = launch_of(kernel)};
  origin.args = own_args(kernel, origin.launch);
  origin.deduced = origin.args < 0;
  if (origin.launch == nullptr) return origin;
  if (const CommMark* mark = annotation_around(*origin.launch)) {
    origin.marked = trace_.names[mark->name].op;
    if (origin.deduced) origin.args = mark->args;
  }
  return origin;
}

const Launch* LaunchJoin::launch_of(const DeviceEvent& kernel) const {
  const auto found = launches_.find(kernel.correlation);
  return kernel.correlation == 0 || found == launches_.end() ? nullptr : &found->second;
}

/// The collective's own metadata: on the kernel, by External id, or of the record_param_comms
/// operation that the launch lies in (External ids may be correlations).
std::int32_t LaunchJoin::own_args(const DeviceEvent& kernel, const Launch* launch) const {
  if (kernel.args >= 0) return kernel.args;
  if (const auto found = args_by_id_.find(kernel.external_id);
      kernel.external_id != 0 && found != args_by_id_.end())
    return found->second;
  return launch != nullptr ? args_around(*launch) : -1;
}

std::int32_t LaunchJoin::args_around(const Launch& launch) const {
  const auto thread = records_.find(launch.tid);
  if (thread == records_.end()) return -1;
  constexpr int kNesting = 8;
  auto at = end_of_marks_before(thread->second, launch);
  for (int seen = 0; at != thread->second.begin() && seen < kNesting; ++seen)
    if (const CommMark* m = *--at; m->span.end_ns >= launch.start_ns) return m->args;
  return -1;
}

/// The innermost nccl:* annotation on the launching thread that contains the launch.
/// "nccl:coalesced" closes a group and carries nothing: the operation before it does.
const CommMark* LaunchJoin::annotation_around(const Launch& launch) const {
  const auto thread = marks_.find(launch.tid);
  if (thread == marks_.end()) return nullptr;
  constexpr int kNesting = 64;  // marks nest a few deep; farther back none contains the launch
  const CommMark* innermost = nullptr;
  const CommMark* before = nullptr;
  auto at = end_of_marks_before(thread->second, launch);
  for (int seen = 0; at != thread->second.begin() && seen < kNesting; ++seen) {
    const CommMark* m = *--at;
    if (trace_.names[m->name].kind != NameKind::comm_mark) continue;
    if (innermost == nullptr && m->span.end_ns >= launch.start_ns)
      innermost = m;
    else if (before == nullptr && m->args >= 0)
      before = m;
  }
  const bool coalesced =
      innermost != nullptr && trace_.names[innermost->name].text.ends_with(":coalesced");
  return coalesced && before != nullptr ? before : innermost;
}

}  // namespace linerate::trace
