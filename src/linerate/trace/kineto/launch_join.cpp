// How many bytes does a kernel of NCCL move? Its name does not say. Each era of PyTorch records it
// in another place. The surest place comes first (own_args, origin_of):
//
// 1. the kernel's own arguments
// 2. the record_param_comms operation with the kernel's External id
// 3. the record_param_comms operation around the launch, on the launching thread
// 4. the input of an annotation around it, such as nccl:all_reduce; such a size counts as deduced
#include "linerate/trace/kineto/launch_join.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>

#include "linerate/core/index.hpp"

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

/// The position after the last mark that starts at or before a launch; `marks` are by start.
auto end_of_marks_before(const std::vector<const CommMark*>& marks, std::int64_t launch_ns) {
  return std::upper_bound(
      marks.begin(), marks.end(), launch_ns,
      [](std::int64_t time, const CommMark* m) { return time < m->span.start_ns; });
}

/// One record for several collectives that are alike, with the sum of their sizes. Absent: they
/// differ, or a size is not known.
std::optional<CollectiveArgs> sum_of(const std::vector<const CollectiveArgs*>& parts) {
  if (parts.empty()) return std::nullopt;
  CollectiveArgs sum = *parts.front();
  sum.in_elements = sum.out_elements = 0, sum.splits = -1;
  for (const CollectiveArgs* part : parts) {
    const bool alike = part->op == sum.op && part->group == sum.group &&
                       part->element_bytes == sum.element_bytes && part->bytes() >= 0;
    if (!alike || part->ignored) return std::nullopt;
    sum.in_elements += std::max<std::int64_t>(0, part->in_elements);
    sum.out_elements += std::max<std::int64_t>(0, part->out_elements);
  }
  return sum;
}

}  // namespace

/// Indexes launches of communication kernels by correlation, records by External id, and marks by
/// thread and start. External ids are not used if the file writes correlations there.
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
  sum_coalesced();
}

bool LaunchJoin::is_coalesced(const CommMark& mark) const {
  return trace_.names[mark.name].text.ends_with(":coalesced");
}

/// Finds launches that move several collectives at once. Within an annotation "nccl:coalesced",
/// each collective writes its record, and one launch at the end moves all of them. Example: records
/// of 4, 8 and 2 MiB at 1, 2 and 3 ms, and a launch at 4 ms within the annotation. The launch moves
/// 14 MiB, unless another launch of the thread took the first records before.
void LaunchJoin::sum_coalesced() {
  std::map<std::pair<std::int64_t, std::int64_t>, std::uint64_t> launches;  // by thread and start
  for (const auto& [correlation, l] : launches_) launches[{l.tid, l.start_ns}] = correlation;
  for (const auto& [tid, marks] : marks_)
    for (const CommMark* group : marks) {
      const auto launch = launches.lower_bound({tid, group->span.start_ns});
      if (!is_coalesced(*group) || launch == launches.end() || launch->first.first != tid ||
          launch->first.second > group->span.end_ns)
        continue;
      const auto before = launch == launches.begin() ? launches.end() : std::prev(launch);
      const bool is_first = before == launches.end() || before->first.first != tid;
      const std::vector<const CommMark*>& records = records_[tid];
      auto record = is_first ? records.begin() : end_of_marks_before(records, before->first.second);
      std::vector<const CollectiveArgs*> parts;
      for (; record != end_of_marks_before(records, launch->first.second); ++record)
        parts.push_back(at((*record)->args));
      if (const auto sum = sum_of(parts)) sums_[launch->second] = *sum;
    }
}

KernelOrigin LaunchJoin::origin_of(const DeviceEvent& kernel) const {
  KernelOrigin origin{.launch = launch_of(kernel)};
  origin.args = own_args(kernel, origin.launch);
  origin.deduced = origin.args == nullptr;
  if (origin.launch == nullptr) return origin;
  if (const CommMark* mark = annotation_around(*origin.launch)) {
    origin.marked = trace_.names[mark->name].op;
    if (origin.deduced) origin.args = at(mark->args);
  }
  return origin;
}

const Launch* LaunchJoin::launch_of(const DeviceEvent& kernel) const {
  const auto found = launches_.find(kernel.correlation);
  return kernel.correlation == 0 || found == launches_.end() ? nullptr : &found->second;
}

const CollectiveArgs* LaunchJoin::at(std::int32_t args) const {
  return args < 0 ? nullptr : &trace_.args[to_index(args)];
}

/// The collective's own metadata, in the order of the list at the head of this file. Last comes the
/// sum of the records that the launch moves together. Null: there is none.
const CollectiveArgs* LaunchJoin::own_args(const DeviceEvent& kernel, const Launch* launch) const {
  if (kernel.args >= 0) return at(kernel.args);
  if (const auto found = args_by_id_.find(kernel.external_id);
      kernel.external_id != 0 && found != args_by_id_.end())
    return at(found->second);
  if (launch == nullptr) return nullptr;
  if (const CollectiveArgs* around = at(args_around(*launch))) return around;
  const auto sum = sums_.find(launch->correlation);
  return sum == sums_.end() ? nullptr : &sum->second;
}

std::int32_t LaunchJoin::args_around(const Launch& launch) const {
  const auto thread = records_.find(launch.tid);
  if (thread == records_.end()) return -1;
  constexpr int kNesting = 8;
  auto at = end_of_marks_before(thread->second, launch.start_ns);
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
  auto at = end_of_marks_before(thread->second, launch.start_ns);
  for (int seen = 0; at != thread->second.begin() && seen < kNesting; ++seen) {
    const CommMark* m = *--at;
    if (trace_.names[m->name].kind != NameKind::comm_mark) continue;
    if (innermost == nullptr && m->span.end_ns >= launch.start_ns)
      innermost = m;
    else if (before == nullptr && m->args >= 0)
      before = m;
  }
  const bool coalesced = innermost != nullptr && is_coalesced(*innermost);
  return coalesced && before != nullptr ? before : innermost;
}

}  // namespace linerate::trace
