#include "linerate/trace/kineto/kineto_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "linerate/core/text.hpp"
#include "linerate/trace/job/collective_names.hpp"

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

/// Position in `steps` of the last one that began at or before `time`; -1 before the first.
std::int32_t step_at(const std::vector<StepSpan>& by_start, std::int64_t time) {
  const auto after =
      std::upper_bound(by_start.begin(), by_start.end(), time,
                       [](std::int64_t t, const StepSpan& s) { return t < s.span.start_ns; });
  return static_cast<std::int32_t>(after - by_start.begin()) - 1;
}

/// Finds what a launch on the host says about the kernel it started.
class LaunchJoin {
 public:
  explicit LaunchJoin(const KinetoTrace& t)
      : trace_(t), by_external_(!external_ids_are_correlations(t)) {
    std::unordered_map<std::uint64_t, std::size_t> wanted;
    for (std::size_t i = 0; i < t.device.size(); ++i) {
      const DeviceEvent& e = t.device[i];
      if (!e.copy && t.names[e.name].kind == NameKind::communication_kernel && e.correlation != 0)
        wanted[e.correlation] = i;
    }
    for (const Launch& l : t.launches)
      if (wanted.contains(l.correlation)) launches_[l.correlation] = l;
    for (std::size_t i = 0; i < t.marks.size(); ++i) {
      const CommMark& m = t.marks[i];
      if (by_external_ && m.external_id != 0 && m.args >= 0 &&
          t.names[m.name].kind == NameKind::param_comms)
        external_[m.external_id] = m.args;
      if (m.args >= 0 && t.names[m.name].kind == NameKind::param_comms)
        records_[m.tid].push_back(&m);
      by_thread_[m.tid].push_back(i);
    }
    for (auto& [tid, marks] : records_)
      std::sort(marks.begin(), marks.end(), [](const CommMark* a, const CommMark* b) {
        return a->span.start_ns < b->span.start_ns;
      });
    for (auto& [tid, marks] : by_thread_)
      std::sort(marks.begin(), marks.end(), [&t](std::size_t a, std::size_t b) {
        return t.marks[a].span.start_ns < t.marks[b].span.start_ns;
      });
  }

  const Launch* launch_of(const DeviceEvent& e) const {
    const auto found = launches_.find(e.correlation);
    return e.correlation == 0 || found == launches_.end() ? nullptr : &found->second;
  }
  /// Index into KinetoTrace::args, or -1.
  std::int32_t args_of(const DeviceEvent& e) const {
    if (const std::int32_t own = stated_args_of(e); own >= 0) return own;
    const CommMark* mark = mark_of(e);
    return mark != nullptr ? mark->args : -1;
  }
  /// True where only the annotation around the launch knows: no metadata of the collective itself.
  bool deduced(const DeviceEvent& e) const { return stated_args_of(e) < 0; }
  CommOp op_of_mark(const DeviceEvent& e) const {
    const CommMark* mark = mark_of(e);
    return mark != nullptr ? trace_.names[mark->name].op : CommOp::unknown;
  }

 private:
  /// The collective's own metadata: on the kernel, by External id, or of the record_param_comms
  /// operation that the launch lies in (External ids may be correlations).
  std::int32_t stated_args_of(const DeviceEvent& e) const {
    if (e.args >= 0) return e.args;
    if (const auto found = external_.find(e.external_id);
        e.external_id != 0 && found != external_.end())
      return found->second;
    return args_around(e);
  }

  std::int32_t args_around(const DeviceEvent& e) const {
    const Launch* launch = launch_of(e);
    if (launch == nullptr) return -1;
    const auto thread = records_.find(launch->tid);
    if (thread == records_.end()) return -1;
    const auto& records = thread->second;
    auto at = std::upper_bound(
        records.begin(), records.end(), launch->start_ns,
        [](std::int64_t time, const CommMark* m) { return time < m->span.start_ns; });
    constexpr int kNesting = 8;
    for (int seen = 0; at != records.begin() && seen < kNesting; ++seen)
      if (const CommMark* m = *--at; m->span.end_ns >= launch->start_ns) return m->args;
    return -1;
  }

  /// The innermost nccl:* annotation on the launching thread that contains the launch.
  /// "nccl:coalesced" closes a group and carries nothing: the operation before it does.
  const CommMark* mark_of(const DeviceEvent& e) const {
    const Launch* launch = launch_of(e);
    if (launch == nullptr) return nullptr;
    const auto thread = by_thread_.find(launch->tid);
    if (thread == by_thread_.end()) return nullptr;
    const CommMark* innermost = nullptr;
    const CommMark* before = nullptr;
    bool coalesced = false;
    constexpr int kNesting = 64;  // marks nest a few deep; farther back none contains the launch
    const auto& marks = thread->second;
    auto at = std::upper_bound(
        marks.begin(), marks.end(), launch->start_ns,
        [this](std::int64_t time, std::size_t i) { return time < trace_.marks[i].span.start_ns; });
    for (int seen = 0; at != marks.begin() && seen < kNesting; ++seen) {
      const CommMark& m = trace_.marks[*--at];
      const NameInfo& name = trace_.names[m.name];
      if (name.kind != NameKind::comm_mark) continue;
      const bool inside = m.span.end_ns >= launch->start_ns;
      if (inside && innermost == nullptr) {
        innermost = &m;
        coalesced = name.text.ends_with(":coalesced");
      } else if (m.args >= 0 && before == nullptr) {
        before = &m;
      }
    }
    return coalesced && before != nullptr ? before : innermost;
  }

  const KinetoTrace& trace_;
  bool by_external_;
  std::unordered_map<std::uint64_t, Launch> launches_;
  std::unordered_map<std::uint64_t, std::int32_t> external_;
  std::unordered_map<std::int64_t, std::vector<std::size_t>> by_thread_;
  std::unordered_map<std::int64_t, std::vector<const CommMark*>> records_;  // with arguments
};

class RankBuilder {
 public:
  RankBuilder(const KinetoTrace& t, Job& job) : t_(t), job_(job) {
    rank_.rank = t.rank;
    rank_.source = t.source;
    rank_.steps = t.steps;
    steps_by_start_ = t.steps;
    std::sort(
        steps_by_start_.begin(), steps_by_start_.end(),
        [](const StepSpan& a, const StepSpan& b) { return a.span.start_ns < b.span.start_ns; });
    for (const ResolvedGroup& g : t.groups) groups_.push_back(group_index(g.text));
  }

  void build() {
    add_device_events();
    if (t_.device.empty() && t_.other_device == 0) add_host_communication();
    add_announced();
    add_gradients();
    judge_absence();
    std::sort(rank_.communications.begin(), rank_.communications.end(),
              [](const Communication& a, const Communication& b) {
                return a.span.start_ns < b.span.start_ns;
              });
    shift();
    job_.notes.insert(job_.notes.end(), t_.notes.begin(), t_.notes.end());
    job_.ranks.push_back(std::move(rank_));
  }

 private:
  std::int32_t group_index(const std::string& name) {
    const auto found = std::find(job_.groups.begin(), job_.groups.end(), name);
    if (found != job_.groups.end()) return static_cast<std::int32_t>(found - job_.groups.begin());
    job_.groups.push_back(name);
    return static_cast<std::int32_t>(job_.groups.size()) - 1;
  }

  /// Number of the step, or -1; RankActivity::steps is ascending by number, marks are by start.
  std::int32_t step_of(std::int64_t time) const {
    const std::int32_t at = step_at(steps_by_start_, time);
    if (at < 0) return -1;
    const StepSpan& s = steps_by_start_[static_cast<std::size_t>(at)];
    // Behind the last step nothing is known: its end is the end.
    if (static_cast<std::size_t>(at) + 1 == steps_by_start_.size() && time > s.span.end_ns)
      return -1;
    const auto found = std::find_if(rank_.steps.begin(), rank_.steps.end(),
                                    [&s](const StepSpan& r) { return r.number == s.number; });
    return static_cast<std::int32_t>(found - rank_.steps.begin());
  }

  /// Without the launch: the step's own annotation on the device; a kernel of a step may run in the
  /// next one of the host.
  std::int32_t step_on_device(std::int64_t time) const {
    for (const StepSpan& s : t_.device_steps)
      if (time >= s.span.start_ns && time <= s.span.end_ns)
        for (std::size_t i = 0; i < rank_.steps.size(); ++i)
          if (rank_.steps[i].number == s.number) return static_cast<std::int32_t>(i);
    return step_of(time);
  }

  /// Of an uneven all-to-all: the larger of what is sent and received, the rank's own part left
  /// out. -1: even, or not to be told.
  std::int64_t bus_bytes_of(const CollectiveArgs& a) {
    if (a.splits < 0 || a.element_bytes < 0) return -1;
    const SplitSizes& s = t_.splits[static_cast<std::size_t>(a.splits)];
    if (s.cut) return ++cut_splits_, -1;
    const auto own = own_position(a);
    if (!own) return ++unplaced_splits_, -1;
    const std::int64_t sent = without_own(s.in, *own, a.in_elements, a.group_size);
    const std::int64_t received = without_own(s.out, *own, a.out_elements, a.group_size);
    const std::int64_t most = std::max(sent, received);
    if (sent < 0 || received < 0 || most > (std::int64_t{1} << 40)) return -1;
    return most * a.element_bytes;
  }

  /// This rank's place among the ranks of the group.
  std::optional<std::size_t> own_position(const CollectiveArgs& a) const {
    if (a.group < 0 || t_.rank < 0) return std::nullopt;
    const auto& ranks = t_.groups[static_cast<std::size_t>(a.group)].ranks;
    const auto at = std::find(ranks.begin(), ranks.end(), t_.rank);
    if (at == ranks.end()) return std::nullopt;
    return static_cast<std::size_t>(at - ranks.begin());
  }

  /// Splits count rows or elements; their sum stands for all `elements`. No list: even parts.
  static std::int64_t without_own(const std::vector<std::int64_t>& parts, std::size_t own,
                                  std::int64_t elements, int ranks) {
    if (parts.empty() && ranks > 0) return elements - elements / ranks;
    if (elements < 0 || own >= parts.size()) return -1;
    double sum = 0;
    for (const std::int64_t p : parts) sum += static_cast<double>(std::max<std::int64_t>(p, 0));
    if (sum <= 0) return elements == 0 ? 0 : -1;
    const double share = static_cast<double>(std::max<std::int64_t>(parts[own], 0)) / sum;
    return elements - static_cast<std::int64_t>(share * static_cast<double>(elements) + 0.5);
  }

  void add_device_events() {
    const LaunchJoin join(t_);
    std::unordered_map<std::int32_t, std::int64_t> suspicious;
    for (const DeviceEvent& e : t_.device) {
      if (e.copy) {
        rank_.copies.push_back(e.span);
        continue;
      }
      const NameInfo& name = t_.names[e.name];
      if (name.kind == NameKind::communication_kernel) {
        add_communication(e, name, join);
        continue;
      }
      if (name.suspicious) suspicious[e.name] += e.span.length();
      rank_.compute.push_back(e.span);
    }
    for (const auto& [name, ns] : suspicious)
      if (ns > 0)
        job_.notes.push_back(fmt::format(
            "{}: kernel \"{}\" ({}) looks like communication but carries none of the names "
            "nccl, rccl, msccl; it counts as compute",
            t_.source, t_.names[name].text.substr(0, 60),
            format_time(static_cast<double>(ns) * 1e-9)));
  }

  void add_communication(const DeviceEvent& e, const NameInfo& name, const LaunchJoin& join) {
    Communication c{.span = e.span, .op = name.op};
    const std::int32_t index = join.args_of(e);
    if (index >= 0 && !t_.args[static_cast<std::size_t>(index)].ignored) {
      const CollectiveArgs& a = t_.args[static_cast<std::size_t>(index)];
      // Arguments before names: all-to-all shows as SendRecv, a barrier as an all-reduce.
      if (a.op != CommOp::unknown) c.op = a.op;
      c.bytes = bytes_of(a);
      c.deduced = join.deduced(e);
      c.group_size = a.group_size;
      c.sequence = a.sequence;
      c.comms_id = a.comms_id;
      if (a.group >= 0) c.group = groups_[static_cast<std::size_t>(a.group)];
      c.bus_bytes = bus_bytes_of(a);
    } else if (const CommOp marked = join.op_of_mark(e); marked != CommOp::unknown) {
      c.op = marked;
    }
    const Launch* launch = join.launch_of(e);
    c.step = launch != nullptr ? step_of(launch->start_ns) : step_on_device(e.span.start_ns);
    rank_.communications.push_back(c);
  }

  /// Gloo and other CPU back ends: the annotation spans the operation itself, on a thread of the
  /// back end.
  void add_host_communication() {
    for (const CommMark& m : t_.marks) {
      const NameInfo& name = t_.names[m.name];
      if (!name.host_backend) continue;
      Communication c{.span = m.span, .op = name.op};
      if (m.args >= 0) {
        const CollectiveArgs& a = t_.args[static_cast<std::size_t>(m.args)];
        c.bytes = bytes_of(a);
        c.group_size = a.group_size;
        c.bus_bytes = bus_bytes_of(a);
      }
      if (c.group_size < 0 && t_.world_size > 0 && t_.groups.empty()) c.group_size = t_.world_size;
      c.step = step_of(m.span.start_ns);
      rank_.communications.push_back(c);
    }
    if (rank_.communications.empty()) return;
    job_.cpu_device = true;
    for (const CpuOp& op : t_.ops)
      if (t_.names[op.name].kind != NameKind::c10d) rank_.compute.push_back(op.span);
  }

  void add_announced() {
    std::vector<const CommMark*> marks;
    for (const CommMark& m : t_.marks)
      if (m.args >= 0 &&
          (t_.names[m.name].kind == NameKind::param_comms || t_.names[m.name].host_backend))
        marks.push_back(&m);
    std::sort(marks.begin(), marks.end(), [](const CommMark* a, const CommMark* b) {
      return a->span.start_ns < b->span.start_ns;
    });
    for (const CommMark* m : marks) {
      const CollectiveArgs& a = t_.args[static_cast<std::size_t>(m->args)];
      if (!a.ignored) rank_.announced.push_back({step_of(m->span.start_ns), a.op, bytes_of(a)});
    }
  }

  /// From the last step that has them whole.
  void add_gradients() {
    for (std::size_t s = t_.steps.size(); s-- > 0 && job_.gradients.empty();)
      add_backward(t_, t_.steps[s].span, job_);
  }

  void judge_absence() {
    if (t_.other_device > 0)
      job_.notes.push_back(fmt::format(
          "{}: {} records of an accelerator (mtia_ccp_events, collective_comm) are not understood "
          "and left out: its times are not to be had",
          t_.source, t_.other_device));
    for (const auto& [name, count] : t_.unknown_collectives)
      job_.notes.push_back(fmt::format(
          "{}: collective name \"{}\" ({} records) is not known; the kernel's name tells what it "
          "can",
          t_.source, name.substr(0, 60), count));
    if (cut_splits_ > 0)
      job_.notes.push_back(
          fmt::format("{}: the split sizes of {} uneven all-to-alls are cut above 30 ranks; their "
                      "bus bandwidth "
                      "is of even splits",
                      t_.source, cut_splits_));
    if (unplaced_splits_ > 0)
      job_.notes.push_back(
          fmt::format("{}: which split of {} uneven all-to-alls is the rank's own is not known "
                      "(rank or members "
                      "of the group are missing); their bus bandwidth is of even splits",
                      t_.source, unplaced_splits_));
    if (t_.device.empty() && !job_.cpu_device)
      job_.notes.push_back(fmt::format(
          "{}: no device activity (kernels, copies) in it: busy times of the device are not "
          "to be had",
          t_.source));
    if (rank_.steps.empty())
      job_.notes.push_back(
          fmt::format("{}: no ProfilerStep annotation: time per step is not to be had", t_.source));
    int ranks = t_.world_size;  // where the head does not say, the collectives' records may
    for (const CollectiveArgs& a : t_.args) ranks = std::max(ranks, a.group_size);
    if (ranks > 1 && !t_.device.empty() && rank_.communications.empty()) {
      job_.communication_unknown = true;
      job_.notes.push_back(fmt::format(
          "{}: a job of {} ranks, yet no kernel is named nccl, rccl or msccl (heaviest: {}); "
          "communication times are unknown",
          t_.source, ranks, heaviest_kernels()));
    }
    std::size_t unsized = 0;
    for (const Communication& c : rank_.communications)
      unsized += c.bytes < 0 && c.op != CommOp::barrier;
    if (unsized > 0)
      job_.notes.push_back(
          fmt::format("{}: {} of {} communications carry no size (recorded before 2024, or without "
                      "record_shapes): their bytes and bandwidths are unknown",
                      t_.source, unsized, rank_.communications.size()));
    if (t_.rank < 0)
      job_.notes.push_back(fmt::format(
          "{}: neither distributedInfo nor the file name (rank3, worker3) says the rank",
          t_.source));
  }

  std::string heaviest_kernels() const {
    std::unordered_map<std::int32_t, std::int64_t> total;
    for (const DeviceEvent& e : t_.device)
      if (!e.copy) total[e.name] += e.span.length();
    std::vector<std::pair<std::int64_t, std::int32_t>> order;
    for (const auto& [name, ns] : total) order.emplace_back(ns, name);
    std::sort(order.rbegin(), order.rend());
    std::vector<std::string> text;
    for (std::size_t i = 0; i < std::min<std::size_t>(3, order.size()); ++i)
      text.push_back(t_.names[order[i].second].text.substr(0, 60));
    return join(text, "; ");
  }

  void shift() {
    rank_.stamp_ns = -t_.base_ns;
    if (t_.base_ns == 0) return;
    const auto move = [this](Span& s) { s.start_ns += t_.base_ns, s.end_ns += t_.base_ns; };
    for (Span& s : rank_.compute) move(s);
    for (Span& s : rank_.copies) move(s);
    for (StepSpan& s : rank_.steps) move(s.span);
    for (Communication& c : rank_.communications) move(c.span);
  }

  const KinetoTrace& t_;
  Job& job_;
  RankActivity rank_;
  std::vector<StepSpan> steps_by_start_;
  std::vector<std::int32_t> groups_;
  std::size_t cut_splits_ = 0, unplaced_splits_ = 0;
};

}  // namespace

std::int64_t bytes_of(const CollectiveArgs& c) {
  if ((c.op == CommOp::all_gather || c.op == CommOp::gather) && c.out_elements < 0) {
    if (c.group_size < 1 || c.bytes() < 0 || c.bytes() > (INT64_MAX / 4) / c.group_size) return -1;
    return c.bytes() * c.group_size;
  }
  return c.bytes();
}

void add_rank(const KinetoTrace& trace, Job& job) {
  if (trace.world_size > 0) {
    if (job.world_size > 0 && job.world_size != trace.world_size)
      job.notes.push_back(fmt::format("{}: says {} ranks, another file says {}", trace.source,
                                      trace.world_size, job.world_size));
    job.world_size = std::max(job.world_size, trace.world_size);
  }
  RankBuilder(trace, job).build();
}

}  // namespace linerate::trace
