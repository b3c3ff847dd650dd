// Infers where each rank waits. A trace says when a communication ran and when a rank was at work,
// and not that the rank stood still because of the communication. The inference is in five steps:
//
// 1. lane_draft() finds when each communication was asked for, and what held up its start.
// 2. guess_from_others() fills in the requests that a rank's own trace does not show.
// 3. find_waits() takes a pause that ends together with a communication for a wait.
// 4. place_missing_waits() adds the waits of ranks that came too late to pause at all.
// 5. finish_lane() orders the points and measures the own time between them.
//
// Example of step 3. Ranks 0 and 1 issue an all-reduce at 1 ms, which ends at 6 ms on both. Rank 0
// idles from 2 to 6 ms. If rank 1 idles from 3 to 6 ms, both waited for it. If rank 1 began four
// more kernels between 3 and 6 ms, the program does not wait there, and rank 0's pause is its own.
// So the rank that did most while a collective was in flight bounds the place of the wait.
//
// Example of step 4. Rank 2 issues at 5 ms, two kernels later than the others do, and the
// collective is over before rank 2 gets to the wait. Its trace shows no pause. Ranks 0 and 1 began
// three kernels between the issue and the wait, so rank 2's wait stands after its third kernel,
// too. In the recording it takes no time. In a replay in which rank 2 is faster, it does.
#include "linerate/explain/program.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "linerate/core/index.hpp"
#include "linerate/trace/job/by_start.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {
namespace {

/// A point with its times, before the time between points is measured.
struct Timed {
  std::int64_t block_ns = 0, resume_ns = 0;
  Point point;
};

/// One communication of one lane on its way into the program.
struct CommunicationDraft {
  std::int32_t index = 0;  // of the rank's communications
  Span span;
  Part part = {};
  std::int64_t issue_ns = 0;
  std::int64_t first = 0;  // pieces of work begun before the issue
  std::int64_t count = 0;  // begun after the issue, before the end
  bool guessed = false;    // held up, and nothing says when it was asked for
};

struct LaneDraft {
  std::vector<Span> work;             // by start
  std::vector<std::int64_t> done_ns;  // length of the first i pieces
  double work_of_step_ns = 0;
  SpanSet busy;
  std::vector<Span> calls;                 // RankActivity::calls
  std::vector<CommunicationDraft> drafts;  // by start
  std::vector<Timed> waits;
};

// When did a rank ask for a communication? Some traces say it (Communication::ready_ns). In others
// only the start is recorded. A start may be late, because the previous communication still held
// the stream or the back end's thread.
//
// Example. All-reduce A runs from 1 to 5 ms, and B from 5.01 to 7 ms. B started 10 us after A
// ended, so A held it up. If the last kernel before B ended at 3 ms, B was asked for at 3 ms or
// before. The draft says 3 ms and marks it as guessed; program_builder.cpp improves on it with the
// traces of other ranks. If B had started at 5.5 ms, nothing held it up, and its start is its
// request.

/// If no record says when a communication was asked for, one that starts so soon after another was
/// held up by it. Threads of a CPU's back end take longer to hand over than a device's stream.
constexpr std::int64_t kHandOver_ns = 20'000, kHandOverOfThreads_ns = 200'000;

/// The end of the last work that was done by `time`; INT64_MIN if none was. No kernel makes data
/// ready after it, so a communication that begins at `time` was asked for by then.
std::int64_t latest_work_done(const SpanSet& busy, std::int64_t time) {
  const auto after = std::ranges::upper_bound(busy, time, {}, &Span::end_ns);
  return after == busy.begin() ? INT64_MIN : (after - 1)->end_ns;
}

/// Finds when each draft was asked for, and the draft that held up its start. Drafts are visited by
/// start. The candidate is the draft that ended last before a start. If the request is known, the
/// candidate held up the start if it ended after the request. Else the gap between the two decides.
void find_issues(LaneDraft& lane, const RankActivity& rank, bool cpu) {
  std::set<std::pair<std::int64_t, std::int32_t>> ends;  // end, draft
  for (std::size_t i = 0; i < lane.drafts.size(); ++i) {
    CommunicationDraft& d = lane.drafts[i];
    const std::int64_t ready = rank.communications[i].ready_ns;
    const bool call_known = ready != kNotReady;
    d.issue_ns = call_known ? std::min(ready, d.span.start_ns) : d.span.start_ns;
    const auto after = ends.upper_bound({d.span.start_ns, INT32_MAX});
    if (after != ends.begin()) {
      const auto& [end, other] = *std::prev(after);
      const std::int64_t allowed = cpu ? kHandOverOfThreads_ns : kHandOver_ns;
      const bool held_up =
          call_known ? end > d.issue_ns : d.span.start_ns - end <= allowed && other >= 0;
      if (held_up) d.part.behind = other;
      d.guessed = held_up && !call_known;
      if (d.guessed)
        d.issue_ns =
            std::min(d.span.start_ns, std::max(lane.drafts[to_index(other)].issue_ns,
                                               latest_work_done(lane.busy, d.span.start_ns)));
    }
    ends.insert({d.span.end_ns, static_cast<std::int32_t>(i)});
  }
}

/// How many pieces of work, by start, began before `time`.
std::int64_t begun_before(const std::vector<Span>& work, std::int64_t time) {
  return std::ranges::lower_bound(work, time, {}, start_of) - work.begin();
}

/// `cpu`: its back end's threads hand over more slowly. No piece of work is counted yet, and no
/// collective is known. `done_ns` are running sums, so that the work between any two pieces takes
/// one subtraction.
LaneDraft lane_draft(const RankActivity& rank, bool cpu) {
  LaneDraft lane;
  lane.work = rank.compute;
  lane.work.insert(lane.work.end(), rank.copies.begin(), rank.copies.end());
  std::erase_if(lane.work, [](const Span& s) { return s.length() <= 0; });
  std::ranges::sort(lane.work);
  lane.busy = union_of(lane.work);
  lane.calls = rank.calls;
  lane.done_ns.push_back(0);
  for (const Span& s : lane.work) lane.done_ns.push_back(lane.done_ns.back() + s.length());
  lane.work_of_step_ns = static_cast<double>(lane.done_ns.back()) /
                         static_cast<double>(std::max<std::size_t>(1, rank.steps.size()));
  for (std::size_t i = 0; i < rank.communications.size(); ++i)
    lane.drafts.push_back(
        {.index = static_cast<std::int32_t>(i), .span = rank.communications[i].span});
  find_issues(lane, rank, cpu);
  return lane;
}

// Own time is what remains of a lane without its waits. A stretch of it is split twice: into work
// and idle time by what was recorded, and into phases of the step.
//
// Example. A wait ends at 10 ms and the next request is at 16 ms. Kernels ran from 11 to 14 ms, all
// in backward, and the optimizer began at 15 ms. Then the own time before the request is 6 ms.
// Backward has 3 ms of work and 2 ms of idle time, the optimizer has 1 ms of idle time.

/// The own time within a stretch. Each phase of it, and the time between phases, is parted into the
/// time at work and the rest.
OwnTime own_time_in(const Span& stretch, const SpanSet& busy,
                    const std::vector<PhaseSpan>& phases) {
  OwnTime own;
  std::int64_t from = stretch.start_ns;
  const auto add_until = [&](std::int64_t end_ns, StepPhase phase) {
    const Span part{from, std::min(end_ns, stretch.end_ns)};
    if (part.length() <= 0) return;
    const std::int64_t work = length_of(clipped(busy, part));
    own.work[to_index(phase)] += work;
    own.idle[to_index(phase)] += part.length() - work;
    from = part.end_ns;
  };
  auto phase =
      std::ranges::upper_bound(phases, from, {}, [](const PhaseSpan& p) { return p.span.end_ns; });
  for (; phase != phases.end() && from < stretch.end_ns; ++phase) {
    add_until(phase->span.start_ns, StepPhase::unknown);
    add_until(phase->span.end_ns, phase->phase);
  }
  add_until(stretch.end_ns, StepPhase::unknown);
  return own;
}

/// A border at the begin of each step, and one at the end of each run of steps that follow each
/// other. Steps that touch share a border: StepWindow::to of the first is `from` of the second.
void add_borders(const RankActivity& rank, Lane& lane, std::vector<Timed>& points) {
  const auto border = [&](std::int64_t time) {
    lane.borders_ns.push_back(time);
    points.push_back({time, time, {PointKind::border}});
  };
  const std::vector<Span> windows = windows_of_steps(rank);
  for (std::size_t i = 0; i < rank.steps.size(); ++i) {
    const Span& window = windows[i];
    if (lane.borders_ns.empty() || lane.borders_ns.back() != window.start_ns)
      border(window.start_ns);
    const std::size_t from = lane.borders_ns.size() - 1;
    border(window.end_ns);
    lane.steps.push_back({rank.steps[i].number, from, from + 1});
  }
}

/// Merges borders into the points, both by time. A border inside a wait has no place in own time,
/// so it follows the wait and says where in the wait it was. A border at 5 ms is at a quarter of a
/// wait from 4 to 8 ms. If a replay shortens the wait to 2 ms, the border stays at a quarter of it.
std::vector<Timed> with_borders(const std::vector<Timed>& points,
                                const std::vector<Timed>& borders) {
  std::vector<Timed> all;
  std::size_t next = 0;
  const auto take = [&](const Timed* wait, std::int64_t until) {
    for (; next < borders.size() && borders[next].block_ns < until; ++next) {
      Timed b = borders[next];
      if (wait != nullptr) {
        b.point.within = static_cast<double>(b.block_ns - wait->block_ns) /
                         static_cast<double>(wait->resume_ns - wait->block_ns);
        b.block_ns = b.resume_ns = wait->resume_ns;
      }
      all.push_back(b);
    }
  };
  for (const Timed& p : points) {
    take(nullptr, p.block_ns);
    all.push_back(p);
    take(&p, p.resume_ns);
  }
  take(nullptr, INT64_MAX);
  return all;
}

/// Fills in steps, borders, points and start of a lane. `points` are ordered by time; the borders
/// of the rank's steps are added among them. Each point gets the own time since the point before
/// it. The lane starts at the first point, on the rank's own clock.
void set_points(const std::vector<Timed>& points, const RankActivity& rank, const SpanSet& busy,
                Lane& lane) {
  std::vector<Timed> borders;
  add_borders(rank, lane, borders);
  const std::vector<Timed> all = with_borders(points, borders);
  if (all.empty()) return;
  std::int64_t at = all.front().block_ns;
  lane.start_ns = at;
  for (const Timed& t : all) {
    lane.points.push_back(t.point);
    lane.points.back().before = own_time_in({at, t.block_ns}, busy, rank.phases);
    at = std::max(at, t.resume_ns);
  }
}

/// Share of a step's work that another rank must have done beyond a pause to show that nothing
/// waited there. Small pieces do not count, because ranks differ in them: copies of the next batch.
constexpr double kWorkThatShows = 0.02;

std::vector<std::int64_t> optimizer_starts(const RankActivity& rank) {
  std::vector<std::int64_t> starts;
  for (const PhaseSpan& p : rank.phases)
    if (p.phase == StepPhase::optimizer) starts.push_back(p.span.start_ns);
  return starts;
}

class ProgramBuilder {
 public:
  ProgramBuilder(const Job& job, const MatchResult& matched) : job_(job), matched_(matched) {}

  Program build() {
    for (const RankActivity& rank : job_.ranks) lanes_.push_back(lane_draft(rank, job_.cpu_device));
    add_collectives();
    for (LaneDraft& lane : lanes_) guess_from_others(lane);
    count_work();
    for (LaneDraft& lane : lanes_) find_waits(lane);
    place_missing_waits();
    for (std::size_t r = 0; r < lanes_.size(); ++r) finish_lane(r);
    add_network();
    return std::move(out_);
  }

 private:
  const Communication& at(const Member& m) const { return communication_of(job_, m); }
  std::int64_t offset(std::int32_t lane) const { return matched_.clock_offset_ns[to_index(lane)]; }

  /// One ProgramCollective for each matched one, with its parts on the first rank's clock. If all
  /// ranks met, the time of a part counts from the last start: what came before was waiting.
  void add_collectives() {
    for (const Matched& m : matched_.collectives) {
      const Communication& first = at(m.members.front());
      const auto& steps = job_.ranks[to_index(m.members.front().rank)].steps;
      ProgramCollective c{.members = m.members,
                          .gradients = true,
                          .step = first.step >= 0 ? steps[to_index(first.step)].number : -1};
      std::int64_t last_start = INT64_MIN, first_end = INT64_MAX;
      for (const Member& member : m.members) {
        const Span& s = at(member).span;
        last_start = std::max(last_start, s.start_ns + offset(member.rank));
        first_end = std::min(first_end, s.end_ns + offset(member.rank));
        c.gradients &= at(member).gradients && carries_gradients(at(member).op);
        c.synchronises |= synchronises(at(member).op);
      }
      c.joint = m.complete && first_end >= last_start;
      for (const Member& member : m.members) {
        const Span& s = at(member).span;
        Part& part = draft_of(member).part;
        part.collective = static_cast<std::int32_t>(out_.collectives.size());
        part.after_ns = c.joint ? s.end_ns + offset(member.rank) - last_start : s.length();
      }
      out_.collectives.push_back(std::move(c));
    }
    most_.assign(out_.collectives.size(), {});
    waited_.assign(out_.collectives.size(), false);
  }

  CommunicationDraft& draft_of(const Member& m) {
    return lanes_[to_index(m.rank)].drafts[to_index(m.index)];
  }

  /// Places the request of a communication that was held up, from a rank that was not.
  ///
  /// Collective B starts on rank 0 right after A ends, and nothing says when rank 0 asked for it.
  /// Rank 1 asked for A, began three kernels, and asked for B. So rank 0 asked for B when its third
  /// kernel after its request of A was done. The first rank that can tell decides.
  void guess_from_others(LaneDraft& lane) {
    for (CommunicationDraft& d : lane.drafts) {
      if (!d.guessed) continue;
      const CommunicationDraft& before = lane.drafts[to_index(d.part.behind)];
      const auto& members_before = out_.collectives[to_index(before.part.collective)].members;
      for (const Member& m : out_.collectives[to_index(d.part.collective)].members) {
        const LaneDraft& other = lanes_[to_index(m.rank)];
        const auto same_before =
            std::ranges::lower_bound(members_before, m.rank, {}, &Member::rank);
        if (&other == &lane || draft_of(m).guessed || same_before == members_before.end() ||
            same_before->rank != m.rank)
          continue;
        const std::int64_t more = begun_before(other.work, draft_of(m).issue_ns) -
                                  begun_before(other.work, draft_of(*same_before).issue_ns);
        const std::int64_t last = begun_before(lane.work, before.issue_ns) + more - 1;
        if (more > 0 && last < std::ssize(lane.work))
          d.issue_ns =
              std::clamp(lane.work[to_index(last)].end_ns, before.issue_ns, d.span.start_ns);
        else if (more == 0)
          d.issue_ns = before.issue_ns;
        d.guessed = false;
        break;
      }
    }
  }

  /// For each communication: how many pieces of work its rank began while it was in flight. The
  /// largest number of each collective is kept in `most_`. Guessed requests do not count.
  void count_work() {
    for (LaneDraft& lane : lanes_)
      for (CommunicationDraft& d : lane.drafts) {
        d.first = begun_before(lane.work, d.issue_ns);
        d.count = begun_before(lane.work, d.span.end_ns) - d.first;
        if (d.guessed) continue;
        Most& most = most_[to_index(d.part.collective)];
        if (d.count > most.count) most = {d.count, d.first, &lane};
      }
  }

  /// False if another rank went on with notably more work while the collective was in flight: then
  /// the program does not wait here. "Notably" is kWorkThatShows of the step's work.
  bool may_be_waited_for(const CommunicationDraft& d) const {
    const Most& most = most_[to_index(d.part.collective)];
    if (d.guessed || d.count >= most.count) return true;
    const auto done = [&most](std::int64_t count) {
      return most.lane->done_ns[to_index(most.first + count)];
    };
    return static_cast<double>(done(most.count) - done(d.count)) <
           kWorkThatShows * most.lane->work_of_step_ns;
  }

  /// Whether the pause is an operator's own and no wait. Only for a CPU that is the device, whose
  /// outermost operators are recorded (`calls`).
  ///
  /// Most of the pause lies in an operator that began after the request. Such an operator does not
  /// wait for the communication in DDP. In FSDP it does, and then goes on as soon as the data are
  /// there. So the time between the end of the communication and the next sign of life decides.
  /// Beyond 200 us and 5 % of the pause the operator paused by itself.
  static bool operator_pauses(const LaneDraft& lane, const CommunicationDraft& d, Span pause,
                              std::int64_t goes_on_ns) {
    constexpr std::int64_t kGoesOn_ns = 200'000;  // threads hand over within it
    constexpr double kGoesOnOfPause = 0.05;       // and on a busy machine within this
    const Span* call = last_begun(lane.calls, pause.end_ns - 1);
    if (call == nullptr) return false;
    const std::int64_t until = std::min(goes_on_ns, call->end_ns);
    return call->start_ns > d.issue_ns && pause.end_ns - call->start_ns > pause.length() / 2 &&
           static_cast<double>(until - pause.end_ns) >
               kGoesOn_ns + kGoesOnOfPause * static_cast<double>(pause.length());
  }

  /// A pause that ends with a communication is a wait for it.
  ///
  /// Communications are visited by their end. The pause before an end begins when the lane last did
  /// something: it worked, it asked for another communication, or it left an earlier wait. The
  /// pause is a wait if the communication was asked for before it. Each stretch of idle time is
  /// given away once, so waits of a lane do not overlap.
  void find_waits(LaneDraft& lane) {
    std::vector<std::int64_t> issues;
    std::vector<const CommunicationDraft*> by_end;
    for (const CommunicationDraft& d : lane.drafts) {
      issues.push_back(d.issue_ns);
      if (may_be_waited_for(d)) by_end.push_back(&d);
    }
    std::ranges::sort(issues);
    std::ranges::sort(by_end, {}, [](const CommunicationDraft* d) { return d->span.end_ns; });
    std::size_t after = 0;  // the busy span after the pause
    for (const CommunicationDraft* d : by_end) {
      const std::int64_t end = d->span.end_ns;
      while (after < lane.busy.size() && lane.busy[after].start_ns < end) ++after;
      std::int64_t pause = after == 0 ? INT64_MIN : lane.busy[after - 1].end_ns;
      if (pause >= end) continue;  // at work when it ended
      // A rank that asked for another one was not waiting then.
      const auto issue = std::upper_bound(issues.begin(), issues.end(), end - 1);
      if (issue != issues.begin()) pause = std::max(pause, *(issue - 1));
      if (!lane.waits.empty()) pause = std::max(pause, lane.waits.back().resume_ns);
      if (d->issue_ns > pause || pause > end) continue;
      const std::int64_t goes_on = after < lane.busy.size() ? lane.busy[after].start_ns : INT64_MAX;
      if (operator_pauses(lane, *d, {pause, end}, goes_on)) continue;
      lane.waits.push_back({pause, end, {PointKind::wait, d->index}});
      waited_[to_index(d->part.collective)] = true;
    }
  }

  /// Waits that took no time on this rank. A wait that would stand before the end of the
  /// communication contradicts the recording and is not added.
  void place_missing_waits() {
    for (std::size_t r = 0; r < lanes_.size(); ++r) {
      LaneDraft& lane = lanes_[r];
      const std::vector<std::int64_t> optimizer = optimizer_starts(job_.ranks[r]);
      const std::vector<Timed> seen = lane.waits;
      std::set<std::int32_t> there;
      for (const Timed& w : seen) there.insert(w.point.part);
      for (const CommunicationDraft& d : lane.drafts) {
        if (there.contains(d.index)) continue;
        const std::optional<std::int64_t> time = needed_at(lane, seen, d, optimizer);
        if (time && *time >= d.span.end_ns)
          lane.waits.push_back({*time, *time, {PointKind::wait, d.index}});
      }
    }
  }

  /// When the rank needs the result of `d`, on its own clock. If another rank waited, it is after
  /// as much work since the issue as on the rank that did most in that time. A wait that the lane
  /// has between these two pieces of work takes the place: it is the same moment of the program. If
  /// no rank waited, gradients are needed by the next optimizer, and other data at no known time.
  std::optional<std::int64_t> needed_at(const LaneDraft& lane, const std::vector<Timed>& seen,
                                        const CommunicationDraft& d,
                                        const std::vector<std::int64_t>& optimizer) const {
    const auto c = to_index(d.part.collective);
    if (waited_[c]) {
      const auto at = to_index(d.first + most_[c].count);
      const std::int64_t last =
          at < lane.work.size()
              ? lane.work[at].start_ns
              : std::max(d.span.end_ns, lane.busy.empty() ? INT64_MIN : lane.busy.back().end_ns);
      const std::int64_t done = at == 0 || at > lane.work.size() ? last : lane.work[at - 1].end_ns;
      for (const Timed& w : seen)  // by time
        if (w.block_ns >= done && w.resume_ns >= d.span.end_ns && w.resume_ns <= last)
          return w.resume_ns;
      return last;
    }
    if (!out_.collectives[c].gradients) return std::nullopt;
    const auto next = std::lower_bound(optimizer.begin(), optimizer.end(), d.issue_ns);
    return next == optimizer.end() ? std::nullopt : std::optional(*next);
  }

  /// Adds a point for each request, and sorts the points by time. Part::lag_ns is what lies between
  /// the moment at which a part could begin and its recorded start: a launch, or a thread that
  /// wakes.
  void add_issues(LaneDraft& draft, Lane& lane, std::vector<Timed>& points) {
    for (const CommunicationDraft& d : draft.drafts) {
      const std::int64_t held =
          d.part.behind >= 0 ? draft.drafts[to_index(d.part.behind)].span.end_ns : INT64_MIN;
      lane.parts.push_back(d.part);
      lane.parts.back().lag_ns = d.span.start_ns - std::max(d.issue_ns, held);
      points.push_back({d.issue_ns, d.issue_ns, {PointKind::issue, d.index}});
    }
    std::ranges::stable_sort(points, {}, [](const Timed& t) {
      return std::tuple(t.block_ns, t.resume_ns, t.point.kind);
    });
  }

  void finish_lane(std::size_t r) {
    LaneDraft& draft = lanes_[r];
    const RankActivity& rank = job_.ranks[r];
    Lane lane;
    std::vector<Timed> points = std::move(draft.waits);
    add_issues(draft, lane, points);
    set_points(points, rank, draft.busy, lane);
    if (!lane.points.empty()) lane.start_ns += offset(static_cast<std::int32_t>(r));
    out_.lanes.push_back(std::move(lane));
  }

  /// How long the data of each step moves at least, by lane: the floor under every ceiling.
  ///
  /// Collectives of one kind have operation, bytes and group in common. The shortest transfer of a
  /// kind shows what the network can do, so each one of the kind counts as that. The shortened
  /// spans end with the recorded ones, and what overlaps counts once. Only collectives whose ranks
  /// were all seen to meet count: of others it is not known how long they move data.
  void add_network() {
    std::map<std::tuple<CommOp, std::int64_t, std::int32_t>, std::int64_t> least;
    const auto each = [&](const auto& action) {
      for (const ProgramCollective& c : out_.collectives) {
        if (!c.joint || c.step < 0) continue;
        const Communication& first = at(c.members.front());
        std::int64_t& shortest =
            least.try_emplace({first.op, first.bytes, first.group}, INT64_MAX).first->second;
        for (const Member& m : c.members) action(c, m, shortest);
      }
    };
    each([this](const ProgramCollective&, const Member& m, std::int64_t& shortest) {
      shortest = std::min(shortest, draft_of(m).part.after_ns);
    });
    std::vector<std::map<std::int64_t, std::vector<Span>>> moving(lanes_.size());
    each([&](const ProgramCollective& c, const Member& m, std::int64_t shortest) {
      const std::int64_t end = at(m).span.end_ns;
      moving[to_index(m.rank)][c.step].push_back({end - shortest, end});
    });
    for (std::size_t r = 0; r < moving.size(); ++r)
      for (auto& [step, spans] : moving[r])
        out_.lanes[r].network_ns[step] = length_of(union_of(std::move(spans)));
  }

  const Job& job_;
  const MatchResult& matched_;  // its collectives in the order of Program's
  Program out_;
  std::vector<LaneDraft> lanes_;
  /// The most pieces of work that a rank began while a collective was under way.
  struct Most {
    std::int64_t count = 0, first = 0;
    const LaneDraft* lane = nullptr;
  };
  std::vector<Most> most_;    // by collective
  std::vector<bool> waited_;  // by collective: some rank was seen to wait for it
};

}  // namespace

Program program_of(const Job& job, const MatchResult& matched) {
  return ProgramBuilder(job, matched).build();
}

}  // namespace linerate::trace
