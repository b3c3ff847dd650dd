// How many bytes does a kernel of NCCL move? Its name does not say. Each era of PyTorch records it
// in another place. The surest place comes first (own_args, origin_of):
//
// 1. the kernel's own arguments
// 2. the record_param_comms operation with the kernel's External id
// 3. the record_param_comms operation around the launch, on the launching thread
// 4. the input of an annotation around it, such as nccl:all_reduce; such a size counts as deduced
#include "linerate/trace/kineto/kineto_trace.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "linerate/core/index.hpp"
#include "linerate/trace/job/by_start.hpp"

namespace linerate::trace {
namespace {

/// Files of 2020 to 2022 write the correlation into "External id" too; a join over it would be
/// wrong.
bool external_ids_are_correlations(const KinetoTrace& t) {
  std::size_t both = 0, equal = 0;
  for (const KinetoEvent& e : t.device)
    if (e.correlation != 0 && e.external_id != 0) ++both, equal += e.correlation == e.external_id;
  return both > 0 && equal * 2 > both;
}

/// The position after the last mark that starts at or before a launch; `marks` are by start.
auto end_of_marks_before(const std::vector<const KinetoEvent*>& marks, std::int64_t launch_ns) {
  return std::ranges::upper_bound(marks, launch_ns, {}, start_of);
}

/// One record for several collectives that are alike, with the sum of their sizes. Absent: they
/// differ, or a size is not known.
std::optional<CollectiveArgs> sum_of(const std::vector<const CollectiveArgs*>& parts) {
  if (parts.empty()) return std::nullopt;
  CollectiveArgs sum = *parts.front();
  sum.in_elements = sum.out_elements = 0, sum.splits = -1;
  for (const CollectiveArgs* part : parts) {
    const bool alike = part->op == sum.op && part->group == sum.group && part->type &&
                       part->type->bytes == sum.type->bytes && part->bytes() >= 0;
    if (!alike || part->ignored) return std::nullopt;
    sum.in_elements += std::max<std::int64_t>(0, part->in_elements);
    sum.out_elements += std::max<std::int64_t>(0, part->out_elements);
  }
  return sum;
}

/// Joins kernels with their collective metadata.
class LaunchJoin {
 public:
  /// Indexes records by External id, and marks by thread and start. External ids are not used if
  /// the file writes correlations there.
  explicit LaunchJoin(const KinetoTrace& t) : trace_(t) {
    const bool joins_ids = !external_ids_are_correlations(t);
    for (const KinetoEvent& m : t.marks) {
      marks_[m.tid].push_back(&m);
      if (m.args < 0 || t.names[m.name].kind != NameKind::param_comms) continue;
      records_[m.tid].push_back(&m);
      if (joins_ids && m.external_id != 0) args_by_id_[m.external_id] = t.args_of(m);
    }
    for (EventsByThread* threads : {&records_, &marks_})
      for (auto& [tid, marks] : *threads) std::ranges::sort(marks, {}, start_of);
    sum_coalesced();
  }

  KernelOrigin origin_of(const KinetoEvent& kernel) const {
    KernelOrigin origin;
    const KinetoEvent* launch = trace_.launch_of(kernel);
    const CollectiveArgs* args = own_args(kernel, launch);
    origin.deduced = args == nullptr;
    if (const KinetoEvent* mark = launch == nullptr ? nullptr : annotation_around(*launch)) {
      origin.marked = trace_.names[mark->name].op;
      if (origin.deduced) args = trace_.args_of(*mark);
    }
    if (args != nullptr) origin.args = *args;
    return origin;
  }

 private:
  using EventsByThread =
      std::unordered_map<std::int64_t, std::vector<const KinetoEvent*>>;  // by start

  bool is_coalesced(const KinetoEvent& mark) const {
    return trace_.names[mark.name].text.ends_with(":coalesced");
  }

  /// Finds launches that move several collectives at once. Within an annotation "nccl:coalesced",
  /// each collective writes its record, and one launch at the end moves all of them. Example:
  /// records of 4, 8 and 2 MiB at 1, 2 and 3 ms, and a launch at 4 ms within the annotation. The
  /// launch moves 14 MiB, unless another launch of the thread took the first records before.
  void sum_coalesced() {
    std::map<std::pair<std::int64_t, std::int64_t>, std::uint64_t> launches;  // by thread and start
    for (const KinetoEvent& e : trace_.device)
      if (const KinetoEvent* launch = trace_.launch_of(e);
          launch != nullptr && is_communication_kernel(trace_, e))
        launches[{launch->tid, launch->span.start_ns}] = e.correlation;
    for (const auto& [tid, marks] : marks_)
      for (const KinetoEvent* group : marks) {
        const auto launch = launches.lower_bound({tid, group->span.start_ns});
        if (!is_coalesced(*group) || launch == launches.end() || launch->first.first != tid ||
            launch->first.second > group->span.end_ns)
          continue;
        const auto before = launch == launches.begin() ? launches.end() : std::prev(launch);
        const bool is_first = before == launches.end() || before->first.first != tid;
        const std::vector<const KinetoEvent*>& records = records_[tid];
        auto record =
            is_first ? records.begin() : end_of_marks_before(records, before->first.second);
        std::vector<const CollectiveArgs*> parts;
        for (; record != end_of_marks_before(records, launch->first.second); ++record)
          parts.push_back(trace_.args_of(**record));
        if (const auto sum = sum_of(parts)) sums_[launch->second] = *sum;
      }
  }

  /// The collective's own metadata, in the order of the list at the head of this file. Last comes
  /// the sum of the records that the launch moves together. Null: there is none.
  const CollectiveArgs* own_args(const KinetoEvent& kernel, const KinetoEvent* launch) const {
    if (kernel.args >= 0) return trace_.args_of(kernel);
    if (const auto found = args_by_id_.find(kernel.external_id);
        kernel.external_id != 0 && found != args_by_id_.end())
      return found->second;
    if (launch == nullptr) return nullptr;
    if (const CollectiveArgs* around = args_around(*launch)) return around;
    const auto sum = sums_.find(launch->correlation);
    return sum == sums_.end() ? nullptr : &sum->second;
  }

  /// Calls `see` for the marks of the launching thread that begin at or before a launch, the last
  /// one first, until it returns true. No more than `most`: farther back none contains the launch.
  static void look_back(const EventsByThread& threads, const KinetoEvent& launch, int most,
                        const auto& see) {
    const auto thread = threads.find(launch.tid);
    if (thread == threads.end()) return;
    auto at = end_of_marks_before(thread->second, launch.span.start_ns);
    for (int seen = 0; at != thread->second.begin() && seen < most; ++seen)
      if (see(**--at)) return;
  }

  const CollectiveArgs* args_around(const KinetoEvent& launch) const {
    const CollectiveArgs* args = nullptr;
    look_back(records_, launch, 8, [&](const KinetoEvent& record) {
      if (record.span.end_ns >= launch.span.start_ns) args = trace_.args_of(record);
      return args != nullptr;
    });
    return args;
  }

  /// The innermost nccl:* annotation on the launching thread that contains the launch.
  /// "nccl:coalesced" closes a group and carries nothing: the operation before it does.
  const KinetoEvent* annotation_around(const KinetoEvent& launch) const {
    const KinetoEvent* innermost = nullptr;
    const KinetoEvent* before = nullptr;
    look_back(marks_, launch, 64, [&](const KinetoEvent& mark) {
      if (trace_.names[mark.name].kind != NameKind::comm_mark) return false;
      if (innermost == nullptr && mark.span.end_ns >= launch.span.start_ns)
        innermost = &mark;
      else if (before == nullptr && mark.args >= 0)
        before = &mark;
      return false;
    });
    const bool coalesced = innermost != nullptr && is_coalesced(*innermost);
    return coalesced && before != nullptr ? before : innermost;
  }

  const KinetoTrace& trace_;
  std::unordered_map<std::uint64_t, const CollectiveArgs*> args_by_id_;  // by External id
  std::unordered_map<std::uint64_t, CollectiveArgs> sums_;  // of one launch, by correlation
  EventsByThread records_;  // record_param_comms operations that have arguments
  EventsByThread marks_;    // all
};

}  // namespace

std::vector<KernelOrigin> origins_of_kernels(const KinetoTrace& trace) {
  const LaunchJoin join(trace);
  std::vector<KernelOrigin> origins;
  for (const KinetoEvent& e : trace.device)
    if (is_communication_kernel(trace, e)) origins.push_back(join.origin_of(e));
  return origins;
}

// Operators and annotations are both sorted by start. Each operator takes the first annotation from
// its own start on that is free and may be its communication. `first` moves past annotations that
// are taken or too old, so most operators find theirs at once.

namespace {

/// What a back end may run an operation as: Gloo's reduce-scatter and barrier are all-reduces.
bool runs_as(CommOp issued, CommOp ran) {
  if (issued == ran || issued == CommOp::unknown || ran == CommOp::unknown) return true;
  if (ran == CommOp::all_reduce)
    return issued == CommOp::reduce_scatter || issued == CommOp::barrier;
  return false;
}

/// Whether the annotation may be of this operator. It has the size of the array that goes in, the
/// operator those of input and output. An unknown size contradicts nothing.
bool may_be(const CollectiveArgs& issued, const CollectiveArgs& ran) {
  if (!runs_as(issued.op, ran.op)) return false;
  const std::int64_t n = ran.in_elements;
  if (n < 0 || (issued.in_elements < 0 && issued.out_elements < 0)) return true;
  return n == issued.in_elements || n == issued.out_elements;
}

/// Type and group of the annotation, operation and array sizes of the operator.
void take_operator(const CollectiveArgs& issued, CollectiveArgs& args) {
  if (issued.op != CommOp::unknown) args.op = issued.op;
  if (issued.in_elements >= 0) args.in_elements = issued.in_elements;
  if (issued.out_elements >= 0) args.out_elements = issued.out_elements;
  if (!args.type) args.type = issued.type;
}

}  // namespace

std::vector<HostCommunication> host_communications(const KinetoTrace& t) {
  std::vector<HostCommunication> all;
  for (const KinetoEvent& m : t.marks)
    if (t.names[m.name].host_backend) {
      HostCommunication c{.mark = &m, .args = {}};
      if (const CollectiveArgs* args = t.args_of(m)) c.args = *args;
      if (c.args.op == CommOp::unknown) c.args.op = t.names[m.name].op;
      all.push_back(c);
    }
  std::ranges::stable_sort(all, {}, [](const auto& c) { return start_of(c.mark); });
  std::vector<const KinetoEvent*> operators;
  for (const KinetoEvent& m : t.operators) operators.push_back(&m);
  std::ranges::stable_sort(operators, {}, start_of);
  std::size_t first = 0;  // everything before it is taken, or older than any further operator
  for (std::size_t i = 0; i < operators.size(); ++i) {
    const CollectiveArgs& issued = *t.args_of(*operators[i]);
    const std::int64_t start = operators[i]->span.start_ns;
    while (first < all.size() && (all[first].issued >= 0 || all[first].mark->span.start_ns < start))
      ++first;
    for (std::size_t k = first; k < all.size(); ++k)
      if (all[k].issued < 0 && may_be(issued, all[k].args)) {
        all[k].issued = static_cast<std::int64_t>(i);
        all[k].called_ns = start;
        take_operator(issued, all[k].args);
        break;
      }
  }
  return all;
}

// If the CPU is the device, its operators are the computation. But a trace also has annotations,
// calls of communication and operators of the loader, which would be counted twice or wrongly.
//
// Example. An operator of DDP from 1 to 9 ms calls an all-reduce at 3 ms. It contains a call that
// communicates, so it is not computation itself. A copy inside it from 1.2 to 1.4 ms is. Gloo's own
// copy at 5 ms, on a thread of the back end, is part of the communication.

namespace {

bool contains_one_of(const Span& outer, const std::vector<Span>& inner) {
  const auto first = std::upper_bound(inner.begin(), inner.end(), Span{outer.start_ns, INT64_MAX});
  return first != inner.end() && first->end_ns < outer.end_ns;
}

}  // namespace

bool runs_on_cpu(const KinetoTrace& t) {
  if (!t.device.empty() || t.other_device > 0 || !t.launches.empty() || t.ops.empty()) return false;
  if (!t.backend.empty() && t.backend != "gloo" && t.backend != "mpi") return false;
  if (std::ranges::any_of(t.marks, [&t](const KinetoEvent& m) {
        return t.names[m.name].kind == NameKind::comm_mark && !t.names[m.name].host_backend;
      }))
    return false;
  return std::ranges::none_of(t.ops, [&t](const KinetoEvent& op) {
    const std::string& name = t.names[op.name].text;
    return name.find("cudnn") != std::string::npos || name.find("miopen") != std::string::npos ||
           name.find("cuda") != std::string::npos;
  });
}

SpansByThread host_communication_times(const KinetoTrace& t) {
  SpansByThread spans;
  for (const KinetoEvent& m : t.marks)
    if (t.names[m.name].host_backend) spans[m.tid].push_back(m.span);
  for (auto& [tid, all] : spans) all = union_of(std::move(all));
  return spans;
}

bool is_within(const SpansByThread& spans, const KinetoEvent& op) {
  const auto thread = spans.find(op.tid);
  if (thread == spans.end()) return false;
  const Span* around = last_begun(thread->second, op.span.start_ns);
  return around != nullptr && op.span.end_ns <= around->end_ns;
}

/// Sorted by start and the longer one first, an operator is outermost if it starts after the end of
/// the last outermost one of its thread.
std::vector<const KinetoEvent*> outermost_of(std::vector<const KinetoEvent*> ops) {
  std::ranges::sort(ops, {}, [](const KinetoEvent* op) {
    return std::pair(op->span.start_ns, -op->span.end_ns);
  });
  std::unordered_map<std::int64_t, std::int64_t> busy_until;  // by thread
  std::erase_if(ops, [&busy_until](const KinetoEvent* op) {
    const auto [until, fresh] = busy_until.try_emplace(op->tid, op->span.end_ns);
    if (!fresh && op->span.start_ns < until->second) return true;
    until->second = op->span.end_ns;
    return false;
  });
  return ops;
}

std::vector<Span> host_calls(const KinetoTrace& t) {
  std::vector<const KinetoEvent*> ops;
  for (const KinetoEvent& op : t.ops) {
    const NameKind kind = t.names[op.name].kind;
    if (op.tid == t.step_thread && (kind == NameKind::plain || kind == NameKind::accumulate_grad ||
                                    kind == NameKind::evaluate))
      ops.push_back(&op);
  }
  std::vector<Span> calls;
  for (const KinetoEvent* op : outermost_of(std::move(ops))) calls.push_back(op->span);
  return calls;
}

void add_host_computation(const KinetoTrace& t, RankActivity& rank) {
  const SpansByThread communications = host_communication_times(t);
  const SpansByThread collectives =
      spans_by_thread(t, [](const NameInfo& n) { return n.kind == NameKind::c10d; });
  SpansByThread loading =
      spans_by_thread(t, [](const NameInfo& n) { return n.kind == NameKind::loading; });
  for (auto& [tid, spans] : loading) spans = union_of(std::move(spans));
  for (const KinetoEvent& op : t.ops) {
    const NameKind kind = t.names[op.name].kind;
    if (kind != NameKind::plain && kind != NameKind::accumulate_grad) continue;
    if (is_within(communications, op)) continue;
    const auto calls = collectives.find(op.tid);
    if (calls != collectives.end() && contains_one_of(op.span, calls->second)) continue;
    const auto loads = loading.find(op.tid);
    if (loads != loading.end() && !clipped(loads->second, op.span).empty()) continue;
    rank.compute.push_back(op.span);
    rank.compute_names.push_back(t.names[op.name].hash);
  }
}

// Bus bandwidth of an all-to-all assumes equal parts, and one of them stays on the rank. With
// uneven parts, as experts have them, the own part may be all or nothing of the data. Splits are
// needed to say which.

namespace {

/// Elements that cross the network: all less the rank's own part. Splits count rows or elements, so
/// they are used as shares of their sum. No list: even parts. -1: unknown.
std::int64_t without_own(const std::vector<std::int64_t>& parts, std::size_t own,
                         std::int64_t elements, int ranks) {
  if (parts.empty() && ranks > 0) return elements - elements / ranks;
  if (elements < 0 || own >= parts.size()) return -1;
  double sum = 0;
  for (const std::int64_t p : parts) sum += static_cast<double>(std::max<std::int64_t>(p, 0));
  if (sum <= 0) return elements == 0 ? 0 : -1;
  const double share = static_cast<double>(std::max<std::int64_t>(parts[own], 0)) / sum;
  return elements - static_cast<std::int64_t>(share * static_cast<double>(elements) + 0.5);
}

}  // namespace

std::int64_t UnevenAllToAll::bus_bytes_of(const CollectiveArgs& a) {
  if (a.splits < 0 || !a.type) return -1;
  const SplitSizes& s = trace_.splits[to_index(a.splits)];
  if (s.cut) return ++cut_, -1;
  const auto own = own_position(a);
  if (!own) return ++unplaced_, -1;
  const std::int64_t sent = without_own(s.in, *own, a.in_elements, a.group_size);
  const std::int64_t received = without_own(s.out, *own, a.out_elements, a.group_size);
  const std::int64_t most = std::max(sent, received);
  if (sent < 0 || received < 0 || most > (std::int64_t{1} << 40)) return -1;
  return most * a.type->bytes;
}

/// This rank's place among the ranks of the group.
std::optional<std::size_t> UnevenAllToAll::own_position(const CollectiveArgs& a) const {
  if (a.group < 0 || trace_.rank < 0) return std::nullopt;
  const auto& ranks = trace_.groups[to_index(a.group)].ranks;
  const auto at = std::ranges::find(ranks, trace_.rank);
  if (at == ranks.end()) return std::nullopt;
  return to_index(at - ranks.begin());
}

std::vector<std::string> UnevenAllToAll::notes() const {
  std::vector<std::string> notes;
  if (cut_ > 0)
    add_note(notes, trace_.source,
             "the split sizes of {} uneven all-to-alls are cut above 30 ranks, so their bus "
             "bandwidth is that of even splits",
             cut_);
  if (unplaced_ > 0)
    add_note(notes, trace_.source,
             "{} uneven all-to-alls do not say which split is the rank's own (rank or members of "
             "the group are missing), so their bus bandwidth is that of even splits",
             unplaced_);
  return notes;
}

}  // namespace linerate::trace
