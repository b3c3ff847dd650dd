// A Kineto trace is records without relations: kernels, calls of the runtime, operators,
// annotations. RankBuilder relates them. The host's calls are the key to everything, because they
// lie within the host's marks of steps, and a kernel does not.
//
// Example. The mark of step 5 is from 0 to 10 ms, that of step 6 from 10 to 20 ms. A kernel runs at
// 14 ms. Its correlation leads to a launch at 8 ms, so the kernel belongs to step 5. By its own
// time it would belong to step 6, since a device runs later than its host.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>

#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/job/by_start.hpp"
#include "linerate/trace/job/periods.hpp"
#include "linerate/trace/kineto/kineto_trace.hpp"

namespace linerate::trace {
namespace {

constexpr std::size_t kShownOfName = 60;

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::ranges::find(names, name) == names.end()) names.push_back(name);
}

// A trace may lack communication, sizes, steps or a device, for different reasons. Each reason has
// its own note, because each has another remedy: record with shapes, without graphs, or earlier.

std::string heaviest_kernels(const KinetoTrace& t) {
  std::unordered_map<std::int32_t, std::int64_t> total;
  for (const KinetoEvent& e : t.device)
    if (!e.copy) total[e.name] += e.span.length();
  std::vector<std::pair<std::int64_t, std::int32_t>> order;
  for (const auto& [name, ns] : total) order.emplace_back(ns, name);
  std::sort(order.rbegin(), order.rend());
  std::vector<std::string> text;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, order.size()); ++i)
    text.push_back(t.names[order[i].second].text.substr(0, kShownOfName));
  return join(text, "; ");
}

void note_unknown_records(const KinetoTrace& t, Job& job) {
  if (t.other_device > 0)
    add_note(job.notes, t.source,
             "{} records of an accelerator (mtia_ccp_events, collective_comm) are of an unknown "
             "kind and were left out, so its times are unknown",
             t.other_device);
  for (const auto& [name, count] : t.unknown_collectives)
    add_note(job.notes, t.source,
             "the collective name \"{}\" ({} records) is not known; the kernel's name is used "
             "instead",
             name.substr(0, kShownOfName), count);
}

/// Ranks of the job; if the head of the file does not say, the collectives' records may.
int ranks_of_job(const KinetoTrace& t) {
  int ranks = t.world_size;
  for (const CollectiveArgs& a : t.args) ranks = std::max(ranks, a.group_size);
  return ranks;
}

void note_missing_communication(const KinetoTrace& t, const RankActivity& rank, Job& job) {
  const int ranks = ranks_of_job(t);
  if (ranks <= 1 || t.device.empty() || !rank.communications.empty()) return;
  job.communication_unknown = true;
  add_note(job.notes, t.source,
           "a job of {} ranks, yet no kernel is of a library that communicates (heaviest: {}), so "
           "communication times and T_1 are unknown",
           ranks, heaviest_kernels(t));
}

/// Number of communications that were issued before the recording began. They come first in the
/// trace, have no launch in it and no size, while later ones have a size. Barriers never have one.
std::ptrdiff_t cut_by_the_begin(const RankActivity& rank) {
  const auto first_sized = std::ranges::find_if(
      rank.communications, [](const Communication& c) { return c.bytes >= 0; });
  if (first_sized == rank.communications.end()) return 0;
  return std::count_if(rank.communications.begin(), first_sized, [](const Communication& c) {
    return c.ready_ns == kNotReady && c.op != CommOp::barrier;
  });
}

/// Number of communications that a CUDA graph launched. A launch of a kernel starts one kernel, so
/// a launch with several is a graph's, and its arguments say nothing of the single kernels.
std::ptrdiff_t in_graphs(const KinetoTrace& t) {
  std::unordered_map<std::uint64_t, std::ptrdiff_t> kernels, communications;  // by launch
  for (const KinetoEvent& e : t.device) {
    if (e.copy || e.correlation == 0) continue;
    ++kernels[e.correlation];
    if (e.args < 0 && is_communication_kernel(t, e)) ++communications[e.correlation];
  }
  std::ptrdiff_t found = 0;
  for (const auto& [launch, count] : communications)
    if (kernels[launch] > 1) found += count;
  return found;
}

/// Counts communications without a size by reason. Those cut by the begin come first, then those of
/// graphs; the rest was recorded without shapes, or before 2024.
void note_unknown_sizes(const KinetoTrace& t, const RankActivity& rank, Job& job) {
  const auto unsized = std::ranges::count_if(rank.communications, [](const Communication& c) {
    return c.bytes < 0 && c.op != CommOp::barrier;
  });
  const auto cut = cut_by_the_begin(rank);
  if (cut > 0)
    add_note(job.notes, t.source,
             "{} of {} communications were issued before the recording began, so their sizes are "
             "unknown",
             cut, rank.communications.size());
  const std::size_t all = rank.communications.size();
  const auto of_graphs = std::min(unsized - cut, in_graphs(t));
  if (of_graphs > 0) {
    job.runs_graphs = true;
    add_note(job.notes, t.source,
             "{} of {} communications run in CUDA graphs, whose launch does not state their "
             "sizes, so their bytes and bandwidths are unknown; a recording without graphs states "
             "them",
             of_graphs, all);
  }
  if (unsized - cut > of_graphs)
    add_note(job.notes, t.source,
             "{} of {} communications carry no size (recorded before 2024, or without "
             "record_shapes), so their bytes and bandwidths are unknown",
             unsized - cut - of_graphs, all);
}

/// Notes on what the trace of `rank` does not say: unknown is never written as zero. Sets
/// Job::communication_unknown if a job of several ranks shows no communication.
void note_absences(const KinetoTrace& t, const RankActivity& rank, Job& job) {
  note_unknown_records(t, job);
  if (t.device.empty() && !job.cpu_device)
    add_note(job.notes, t.source,
             "no device activity (kernels, copies) in it, so busy times of the device are unknown");
  if (rank.steps.empty())
    add_note(job.notes, t.source, "no ProfilerStep annotation, so the time per step is unknown");
  note_missing_communication(t, rank, job);
  note_unknown_sizes(t, rank, job);
  if (t.rank < 0)
    add_note(job.notes, t.source,
             "neither distributedInfo nor the file name (rank3, worker3) says the rank");
}

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

/// The outermost operators and annotations of each thread, by start: an operator inside another one
/// has its phase.
std::vector<const KinetoEvent*> outermost_items(const KinetoTrace& t) {
  const SpansByThread communications = host_communication_times(t);
  std::vector<const KinetoEvent*> ops;
  for (const KinetoEvent& op : t.ops)  // communication may be in any phase
    if (t.names[op.name].kind != NameKind::c10d && !is_within(communications, op))
      ops.push_back(&op);
  return outermost_of(std::move(ops));
}

/// Every item gets its phase.
std::vector<PhaseSpan> resolved(const KinetoTrace& t, const std::vector<const KinetoEvent*>& items,
                                const std::vector<std::int64_t>& step_starts) {
  auto phases = mapped(items, [&t](const KinetoEvent* item) { return t.names[item->name].phase; });
  std::int64_t backward = INT64_MAX;  // the next one
  for (std::size_t i = items.size(); i-- > 0;) {
    const std::int64_t start = items[i]->span.start_ns;
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
    work.push_back({items[i]->span, going_on});
  }
  return work;
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

/// The host's: operators and the annotations of loader and optimizer, from the first to the last of
/// them, with the pauses between (with_pauses()).
std::vector<PhaseSpan> host_phases(const KinetoTrace& t) {
  std::vector<std::int64_t> step_starts = mapped(t.steps, start_of);
  std::ranges::sort(step_starts);
  return with_pauses(resolved(t, outermost_items(t), step_starts), step_starts);
}

/// Operators that work themselves, sorted.
std::vector<Span> host_work(const KinetoTrace& t) {
  std::vector<Span> spans;
  for (const KinetoEvent& op : t.ops)
    if (const NameKind kind = t.names[op.name].kind;
        kind == NameKind::plain || kind == NameKind::accumulate_grad || kind == NameKind::c10d)
      spans.push_back(op.span);
  std::ranges::sort(spans);
  return spans;
}

/// The host's pauses, by phase. Absent if the trace has no operators or no calls of the runtime: a
/// call that waits for the device is no pause. A pause is time within the steps, less everything
/// that the host called, in pieces of a millisecond or more. Each piece is cut by the host's
/// phases.
std::optional<std::vector<PhaseSpan>> host_pauses(const KinetoTrace& t,
                                                  const std::vector<PhaseSpan>& host) {
  constexpr std::int64_t kLeast_ns = 1'000'000;
  if (t.ops.empty() || t.launches.empty() || t.steps.empty()) return std::nullopt;
  std::vector<Span> calls = host_work(t);
  const std::vector<Span> operators = calls;  // by start
  // A node of autograd, an optimizer and a model hold operators, and hooks that may sleep; one
  // without any works itself.
  for (const KinetoEvent& op : t.ops) {
    const NameKind kind = t.names[op.name].kind;
    if (kind != NameKind::evaluate && kind != NameKind::optimizer && kind != NameKind::ddp)
      continue;
    const auto first = std::ranges::lower_bound(operators, op.span.start_ns, {}, start_of);
    if (first == operators.end() || first->start_ns >= op.span.end_ns) calls.push_back(op.span);
  }
  for (const KinetoEvent& l : t.launches) calls.push_back(l.span);
  std::vector<PhaseSpan> pauses;
  std::size_t at = 0;
  for (const Span& pause : difference_of({hull_of_all(t.steps)}, union_of(std::move(calls)))) {
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

/// The device's work has the phase of its launch; the time between is the host's. `done` is the end
/// of all work so far. A kernel that overlaps it counts from there, and a gap
/// before a kernel is filled with the host's phases.
std::vector<PhaseSpan> device_phases(const KinetoTrace& t, const std::vector<PhaseSpan>& host) {
  std::vector<PhaseSpan> work;
  for (const KinetoEvent& e : t.device) {
    if (is_communication_kernel(t, e)) continue;
    const KinetoEvent* launch = t.launch_of(e);
    work.push_back({e.span, e.to_device         ? StepPhase::copy
                            : launch != nullptr ? phase_at(host, launch->span.start_ns)
                                                : StepPhase::unknown});
  }
  std::ranges::sort(work, {}, start_of);
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

// ---- the rank ----

/// Which step of the rank a moment belongs to: positions in RankActivity::steps, which are
/// ascending by number, or -1.
class StepFinder {
 public:
  explicit StepFinder(const KinetoTrace& t) : t_(t), by_start_(t.steps) {
    std::ranges::sort(by_start_, {}, start_of);
  }

  /// By the host's marks: a step lasts until the next one begins.
  std::int32_t of_host(std::int64_t time) const {
    const StepSpan* step = last_begun(by_start_, time);
    // After the last step nothing is known: its end is the end.
    if (step == nullptr || (step == &by_start_.back() && time > step->span.end_ns)) return -1;
    return position_of(t_.steps, step->number);
  }

  /// Without the launch: the step's own annotation on the device; a kernel of a step may run in the
  /// next one of the host.
  std::int32_t on_device(std::int64_t time) const {
    for (const StepSpan& s : t_.device_steps)
      if (time >= s.span.start_ns && time <= s.span.end_ns)
        if (const std::int32_t at = position_of(t_.steps, s.number); at >= 0) return at;
    return of_host(time);
  }

 private:
  const KinetoTrace& t_;
  std::vector<StepSpan> by_start_;
};

/// Device events that began before anything launched in the recording: no recorded step launched
/// them. A stream runs in the order of launches, so each stream decides about its own events. For a
/// stream without a recorded launch the other streams decide.
class LaunchedBefore {
 public:
  explicit LaunchedBefore(const KinetoTrace& t) {
    std::size_t launched = 0;
    for (const KinetoEvent& e : t.device) {
      if (t.launch_of(e) == nullptr) continue;
      ++launched;
      first_ns_ = std::min(first_ns_, e.span.start_ns);
      const auto [stream, fresh] = streams_.try_emplace(e.tid, e.span.start_ns);
      if (!fresh) stream->second = std::min(stream->second, e.span.start_ns);
    }
    constexpr double kOfAll = 0.9;
    launches_are_whole_ =
        static_cast<double>(launched) >= kOfAll * static_cast<double>(t.device.size());
  }
  /// `e` has no launch.
  bool holds(const KinetoEvent& e) const {
    if (streams_.empty()) return false;
    const auto stream = streams_.find(e.tid);
    if (stream != streams_.end()) return e.span.start_ns < stream->second;
    return launches_are_whole_ || e.span.start_ns < first_ns_;
  }

 private:
  std::unordered_map<std::int64_t, std::int64_t> streams_;  // first launched, by stream
  std::int64_t first_ns_ = INT64_MAX;
  bool launches_are_whole_ = false;
};

/// Builds one rank, part by part in the order of build(). Times are those of the trace until the
/// end, when all of them are shifted to absolute ones at once.
class RankBuilder {
 public:
  RankBuilder(const KinetoTrace& t, Job& job) : t_(t), job_(job), step_(t), uneven_(t) {
    rank_.rank = t.rank;
    rank_.source = t.source;
    rank_.steps = t.steps;
    for (const ResolvedGroup& g : t.groups) groups_.push_back(group_index(job, g.text));
  }

  void build() {
    add_device_events();
    if (t_.device.empty() && t_.other_device == 0) add_host_communication();
    rank_.host = union_of(host_work(t_));  // which tells pauses in which it did not work
    find_steps_on_device();
    add_exchange_work();
    add_phases();
    add_announced();
    rank_.passes = backward_passes(t_, calls_);
    for (std::string& note : uneven_.notes()) job_.notes.push_back(std::move(note));
    sort_by_start(rank_.communications);
    note_absences(t_, rank_, job_);
    rank_.stamp_ns = -t_.base_ns;
    shift(rank_, t_.base_ns);
    job_.notes.insert(job_.notes.end(), t_.notes.begin(), t_.notes.end());
    job_.ranks.push_back(std::move(rank_));
  }

 private:
  /// Every device event is a copy, a communication or computation. What a kernel's name says
  /// decides; a name that only sounds like communication counts as computation, and is remembered
  /// as a doubt.
  void add_device_events() {
    const std::vector<KernelOrigin> origins = origins_of_kernels(t_);
    auto origin = origins.begin();
    const DeviceClock clock(t_);
    const LaunchedBefore before(t_);
    std::map<std::int32_t, std::int64_t> other;  // libraries than NCCL and its kin: by name
    for (const KinetoEvent& e : t_.device) {
      if (e.copy) {
        rank_.copies.push_back(e.span);
        continue;
      }
      const NameInfo& name = t_.names[e.name];
      if (name.kind == NameKind::communication_kernel) {
        add_communication(e, name, *origin++, clock, before);
        if (name.text.find("nccl") == std::string::npos) other[e.name] += e.span.length();
        continue;
      }
      if (name.suspicious) {
        rank_.may_communicate.push_back(e.span);
        add_once(job_.may_communicate, name.text.substr(0, kShownOfName));
      }
      rank_.compute.push_back(e.span);
      rank_.compute_names.push_back(name.hash);
      rank_.launch_sizes.push_back(e.launch_size);
    }
    note_other_libraries(other);
  }

  void note_other_libraries(const std::map<std::int32_t, std::int64_t>& kernels) {
    const auto shown = mapped(kernels, [this](const auto& kernel) {
      return fmt::format("{} ({})", t_.names[kernel.first].text.substr(0, kShownOfName),
                         format_time(in_seconds(kernel.second)));
    });
    if (!shown.empty())
      add_note(job_.notes, t_.source, "counted as communication by their names: {}",
               join(shown, "; "));
  }

  void add_communication(const KinetoEvent& e, const NameInfo& name, const KernelOrigin& origin,
                         const DeviceClock& clock, const LaunchedBefore& before) {
    Communication c{.span = e.span, .op = name.op};
    if (origin.args && !origin.args->ignored) {
      const CollectiveArgs& a = *origin.args;
      set_args(c, a);
      c.deduced = origin.deduced;
      c.sequence = a.sequence;
      c.comms_id = a.comms_id;
      if (a.group >= 0) c.group = groups_[to_index(a.group)];
    } else if (origin.marked != CommOp::unknown) {
      c.op = origin.marked;
    }
    if (const KinetoEvent* launch = t_.launch_of(e)) {
      const std::int64_t called_ns = launch->span.start_ns;
      c.step = step_.of_host(called_ns);
      // A communication stream waits for the work that was launched before, not for the host.
      set_call(c, called_ns, clock.work_done_by(called_ns).value_or(called_ns));
    } else if (!before.holds(e)) {
      c.step = step_.on_device(e.span.start_ns);
    }
    rank_.communications.push_back(c);
  }

  /// Arguments come before names: all-to-all shows as SendRecv, a barrier as an all-reduce.
  void set_args(Communication& c, const CollectiveArgs& a) {
    if (a.op != CommOp::unknown) c.op = a.op;
    c.bytes = bytes_of(a);
    c.dtype = a.dtype();
    c.gradients = may_be_gradients(c.dtype);
    c.group_size = a.group_size;
    c.bus_bytes = uneven_.bus_bytes_of(a);
  }

  /// What the host's call says, once the step is known.
  void set_call(Communication& c, std::int64_t called_ns, std::int64_t ready_ns) const {
    c.gradients &= calls_.may_carry(called_ns);
    if (c.step >= 0) c.turn = calls_.turn_of(t_.steps[to_index(c.step)].span.start_ns, called_ns);
    c.ready_ns = std::min(c.span.start_ns, ready_ns);
  }

  /// Communications of Gloo and other CPU back ends. There is no kernel; the annotation on the back
  /// end's thread is the operation itself.
  void add_host_communication() {
    for (const HostCommunication& h : host_communications(t_)) {
      CollectiveArgs a = h.args;
      if (a.group_size < 0 && t_.world_size > 0 && t_.groups.empty()) a.group_size = t_.world_size;
      Communication c{.span = h.mark->span, .issued = h.issued};
      set_args(c, a);
      c.step = step_.of_host(h.mark->span.start_ns);
      if (h.called_ns >= 0) set_call(c, h.called_ns, h.called_ns);
      rank_.communications.push_back(c);
    }
    if (rank_.communications.empty() && !runs_on_cpu(t_)) return;
    job_.cpu_device = true;
    add_host_computation(t_, rank_);
    rank_.calls = host_calls(t_);
  }

  /// What the exchange of gradients does itself. DDP and its hooks run when a gradient is
  /// accumulated, within the engine's node of AccumulateGrad. So calls in such nodes are theirs,
  /// and so are kernels that were launched there.
  void add_exchange_work() {
    SpansByThread nodes = spans_by_thread(t_, [](const NameInfo& n) {
      return n.kind == NameKind::evaluate && n.text.ends_with("AccumulateGrad");
    });
    for (auto& [tid, spans] : nodes) {
      spans = union_of(std::move(spans));
      rank_.exchange_calls.insert(rank_.exchange_calls.end(), spans.begin(), spans.end());
    }
    for (const KinetoEvent& e : t_.device) {
      if (is_communication_kernel(t_, e)) continue;
      const KinetoEvent* launch = t_.launch_of(e);
      const auto thread = launch == nullptr ? nodes.end() : nodes.find(launch->tid);
      if (thread != nodes.end() &&
          !clipped(thread->second, {launch->span.start_ns, launch->span.start_ns + 1}).empty())
        rank_.exchange_work.push_back(e.span);
    }
  }

  /// Finds each step on the device: from the end of the work before it to the end of its own work.
  /// A step of the device includes the pause before its first kernel, but not before the host's
  /// mark of the step.
  ///
  /// Example. Marks of steps 5 and 6 are 0 to 10 and 10 to 20 ms. Kernels launched in step 5 run
  /// from 4 to 16 ms, those of step 6 from 17 to 27 ms. Then step 5 is 0 to 16 ms and step 6 is 16
  /// to 27 ms. Step 6 is cut, because its work outlasts its mark and no step follows.
  ///
  /// Every step must have launched work that was recorded, except for the last ones. A profiler
  /// that stops while the host is ahead does not see their work; they are cut, too. Empty marks at
  /// the ends of the recording are no steps.
  void find_steps_on_device() {
    const auto ran = [](const StepSpan& s) { return !s.nothing_ran; };
    const auto begin = std::ranges::find_if(rank_.steps, ran);
    const auto end = std::find_if(rank_.steps.rbegin(), rank_.steps.rend(), ran).base();
    if (begin >= end) return;
    const auto first_step = static_cast<std::int32_t>(begin - rank_.steps.begin());
    const std::span<StepSpan> steps(begin, end);
    std::vector<std::optional<Span>> work(steps.size());
    for (const KinetoEvent& e : t_.device) {
      const KinetoEvent* launch = t_.launch_of(e);
      const std::int32_t step =
          launch == nullptr ? -1 : step_.of_host(launch->span.start_ns) - first_step;
      if (step < 0 || step >= std::ssize(work) || is_communication_kernel(t_, e)) continue;
      std::optional<Span>& all = work[to_index(step)];
      all = hull_of(all.value_or(e.span), e.span);
    }
    const auto unseen = std::find(work.begin(), work.end(), std::nullopt);
    if (unseen == work.begin() ||
        std::any_of(unseen, work.end(), [](const auto& w) { return w.has_value(); }))
      return;
    for (auto last = unseen; last != work.end(); ++last)
      *last = Span{std::prev(last)->value().end_ns, std::prev(last)->value().end_ns};
    for (std::size_t i = 0; i < work.size(); ++i) {
      StepSpan& step = steps[i];
      const std::int64_t first = work[i]->start_ns;
      const bool follows = i > 0 && step.number == steps[i - 1].number + 1;
      std::int64_t done = INT64_MIN;  // what ran before it
      if (follows)
        done = work[i - 1]->end_ns;
      else
        for (const KinetoEvent& e : t_.device)
          if (e.span.start_ns < first) done = std::max(done, e.span.end_ns);
      const std::int64_t from = std::min(first, std::max(step.span.start_ns, done));
      step.on_device = Span{from, std::max(work[i]->end_ns, step.span.end_ns)};
      if (follows) steps[i - 1].on_device->end_ns = from;
      const bool followed = i + 1 < work.size() && steps[i + 1].number == step.number + 1;
      step.cut = !followed && work[i]->end_ns > step.span.end_ns;
    }
    for (auto last = unseen; last != work.end(); ++last)
      steps[to_index(last - work.begin())].cut = true;
  }

  void add_phases() {
    rank_.phases = host_phases(t_);
    if (t_.device.empty()) return;
    rank_.pauses = host_pauses(t_, rank_.phases);
    rank_.phases = device_phases(t_, rank_.phases);
  }

  /// Exchanges as the host announced them, by start. Jobs of one rank have no kernels of
  /// communication, and their buckets are known from these only.
  void add_announced() {
    std::vector<const KinetoEvent*> marks;
    for (const KinetoEvent& m : t_.marks)
      if (m.args >= 0 &&
          (t_.names[m.name].kind == NameKind::param_comms || t_.names[m.name].host_backend))
        marks.push_back(&m);
    std::ranges::sort(marks, {}, start_of);
    for (const KinetoEvent* m : marks) {
      const CollectiveArgs& a = *t_.args_of(*m);
      if (!a.ignored)
        rank_.announced.push_back({step_.of_host(m->span.start_ns), a.op, bytes_of(a), a.dtype()});
    }
  }

  const KinetoTrace& t_;
  Job& job_;
  RankActivity rank_;
  StepFinder step_;
  GradientCalls calls_{t_};
  std::vector<std::int32_t> groups_;
  UnevenAllToAll uneven_;
};

/// Libraries that split a model over ranks, by how their annotations and operators begin.
constexpr std::pair<std::string_view, const char*> kShardingLibraries[] = {
    {"FSDP::", "FSDP2 (fully_shard)"},
    {"fsdp::", "FSDP2 (fully_shard)"},
    {"FullyShardedDataParallel", "FSDP (FullyShardedDataParallel)"},
    {"DeepSpeedZeroOptimizer", "ZeRO (DeepSpeed)"}};

}  // namespace

void add_rank(const KinetoTrace& trace, Job& job) {
  job.world_size = std::max(job.world_size, trace.world_size);
  for (std::size_t i = 0; i < trace.names.size(); ++i)
    for (const auto& [prefix, name] : kShardingLibraries)
      if (trace.names[static_cast<std::int32_t>(i)].text.starts_with(prefix))
        add_once(job.sharding_names, name);
  RankBuilder(trace, job).build();
}

}  // namespace linerate::trace
