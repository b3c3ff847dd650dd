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
#include "linerate/trace/explain/program_builder.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "linerate/core/index.hpp"
#include "linerate/trace/explain/lane_draft.hpp"
#include "linerate/trace/explain/lane_points.hpp"

namespace linerate::trace {
namespace {

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
    add_collectives();
    for (std::size_t r = 0; r < job_.ranks.size(); ++r)
      lanes_.push_back(lane_draft(job_.ranks[r], places_[r], job_.cpu_device));
    for (LaneDraft& lane : lanes_) guess_from_others(lane);
    count_work();
    for (LaneDraft& lane : lanes_) find_waits(lane);
    place_missing_waits();
    for (std::size_t r = 0; r < lanes_.size(); ++r) finish_lane(r);
    add_network();
    return std::move(out_);
  }

 private:
  const Communication& at(const Member& m) const {
    return job_.ranks[to_index(m.rank)].communications[to_index(m.index)];
  }
  std::int64_t offset(std::int32_t lane) const { return matched_.clock_offset_ns[to_index(lane)]; }

  /// One ProgramCollective for each matched one, with its parts on the first rank's clock. If all
  /// ranks met, the time of a part counts from the last start: what came before was waiting.
  void add_collectives() {
    places_.resize(job_.ranks.size());
    for (std::size_t r = 0; r < job_.ranks.size(); ++r)
      places_[r].resize(job_.ranks[r].communications.size());
    for (const Matched& m : matched_.collectives) {
      const auto index = static_cast<std::int32_t>(out_.collectives.size());
      ProgramCollective c;
      c.gradients = true;
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
        places_[to_index(member.rank)][to_index(member.index)] = {
            index, static_cast<std::int32_t>(c.parts.size())};
        c.parts.push_back(
            {.lane = member.rank,
             .after_ns = c.joint ? s.end_ns + offset(member.rank) - last_start : s.length()});
      }
      const Communication& first = at(m.members.front());
      const auto& steps = job_.ranks[to_index(m.members.front().rank)].steps;
      out_.step_of.push_back(first.step >= 0 ? steps[to_index(first.step)].number : -1);
      out_.collectives.push_back(std::move(c));
    }
    most_.assign(out_.collectives.size(), {});
    waited_.assign(out_.collectives.size(), false);
  }

  /// The lane's part in this collective; null if the lane takes no part.
  const CommunicationDraft* draft_of(std::int32_t collective, const LaneDraft& lane) const {
    const auto at = lane.by_collective.find(collective);
    return at == lane.by_collective.end() ? nullptr : &lane.drafts[at->second];
  }

  /// Places the request of a communication that was held up, from a rank that was not.
  ///
  /// Collective B starts on rank 0 right after A ends, and nothing says when rank 0 asked for it.
  /// Rank 1 asked for A, began three kernels, and asked for B. So rank 0 asked for B when its third
  /// kernel after its request of A was done. The first rank that can tell decides.
  void guess_from_others(LaneDraft& lane) {
    for (CommunicationDraft& d : lane.drafts) {
      if (!d.guessed) continue;
      const CommunicationDraft& before = lane.drafts[to_index(d.behind)];
      for (const Part& part : out_.collectives[to_index(d.place.collective)].parts) {
        const LaneDraft& other = lanes_[to_index(part.lane)];
        const CommunicationDraft* same = draft_of(d.place.collective, other);
        const CommunicationDraft* same_before = draft_of(before.place.collective, other);
        if (&other == &lane || same == nullptr || same_before == nullptr || same->guessed) continue;
        const std::int64_t more = begun_before(other.work, same->issue_ns) -
                                  begun_before(other.work, same_before->issue_ns);
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
        Most& most = most_[to_index(d.place.collective)];
        if (d.count > most.count) most = {d.count, d.first, &lane};
      }
  }

  /// False if another rank went on with notably more work while the collective was in flight: then
  /// the program does not wait here. "Notably" is kWorkThatShows of the step's work.
  bool may_be_waited_for(const CommunicationDraft& d) const {
    const Most& most = most_[to_index(d.place.collective)];
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
    const auto after =
        std::upper_bound(lane.calls.begin(), lane.calls.end(), Span{pause.end_ns, INT64_MIN});
    if (after == lane.calls.begin()) return false;
    const Span& call = *(after - 1);
    const std::int64_t until = std::min(goes_on_ns, call.end_ns);
    return call.start_ns > d.issue_ns && pause.end_ns - call.start_ns > pause.length() / 2 &&
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
    std::sort(issues.begin(), issues.end());
    std::sort(by_end.begin(), by_end.end(),
              [](const CommunicationDraft* a, const CommunicationDraft* b) {
                return a->span.end_ns < b->span.end_ns;
              });
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
      lane.waits.push_back(
          {.block_ns = pause,
           .resume_ns = end,
           .point = {
               .kind = PointKind::wait, .collective = d->place.collective, .part = d->place.part}});
      waited_[to_index(d->place.collective)] = true;
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
      for (const Timed& w : seen) there.insert(w.point.collective);
      for (const CommunicationDraft& d : lane.drafts) {
        if (there.contains(d.place.collective)) continue;
        const std::optional<std::int64_t> time = needed_at(lane, seen, d, optimizer);
        if (time && *time >= d.span.end_ns)
          lane.waits.push_back({.block_ns = *time,
                                .resume_ns = *time,
                                .point = {.kind = PointKind::wait,
                                          .collective = d.place.collective,
                                          .part = d.place.part}});
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
    const auto c = to_index(d.place.collective);
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

  void finish_lane(std::size_t r);
  void add_network();
  void add_issues(LaneDraft& draft, Lane& lane, std::vector<Timed>& points);

  const Job& job_;
  const MatchResult& matched_;  // its collectives in the order of Program's
  Program out_;
  std::vector<std::vector<PartOf>> places_;  // by rank and communication
  std::vector<LaneDraft> lanes_;
  /// The most pieces of work that a rank began while a collective was under way.
  struct Most {
    std::int64_t count = 0, first = 0;
    const LaneDraft* lane = nullptr;
  };
  std::vector<Most> most_;    // by collective
  std::vector<bool> waited_;  // by collective: some rank was seen to wait for it
};

/// Adds a point for each request, and sorts the points by time. Part::lag_ns is what lies between
/// the moment at which a part could begin and its recorded start: a launch, or a thread that wakes.
void ProgramBuilder::add_issues(LaneDraft& draft, Lane& lane, std::vector<Timed>& points) {
  for (const CommunicationDraft& d : draft.drafts) {
    Part& part = out_.collectives[to_index(d.place.collective)].parts[to_index(d.place.part)];
    const std::int64_t held =
        d.behind >= 0 ? draft.drafts[to_index(d.behind)].span.end_ns : INT64_MIN;
    part.place = static_cast<std::int32_t>(lane.parts.size());
    part.behind = d.behind;
    part.lag_ns = d.span.start_ns - std::max(d.issue_ns, held);
    lane.parts.push_back(d.place);
    points.push_back(
        {.block_ns = d.issue_ns,
         .resume_ns = d.issue_ns,
         .point = {
             .kind = PointKind::issue, .collective = d.place.collective, .part = d.place.part}});
  }
  std::stable_sort(points.begin(), points.end(), [](const Timed& a, const Timed& b) {
    return std::tuple(a.block_ns, a.resume_ns, a.point.kind) <
           std::tuple(b.block_ns, b.resume_ns, b.point.kind);
  });
}

void ProgramBuilder::finish_lane(std::size_t r) {
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
/// kind shows what the network can do, so each one of the kind counts as that. The shortened spans
/// end with the recorded ones, and what overlaps counts once. Only collectives whose ranks were all
/// seen to meet count: of others it is not known how long they move data.
void ProgramBuilder::add_network() {
  std::map<std::tuple<CommOp, std::int64_t, std::int32_t>, std::int64_t> least;
  const auto each = [&](const auto& action) {
    for (std::size_t c = 0; c < out_.collectives.size(); ++c) {
      const Matched& m = matched_.collectives[c];
      if (!out_.collectives[c].joint || out_.step_of[c] < 0) continue;
      const Communication& first = at(m.members.front());
      std::int64_t& shortest =
          least.try_emplace({first.op, first.bytes, first.group}, INT64_MAX).first->second;
      for (std::size_t i = 0; i < m.members.size(); ++i)
        action(c, m.members[i], out_.collectives[c].parts[i].after_ns, shortest);
    }
  };
  each([](std::size_t, const Member&, std::int64_t ns, std::int64_t& shortest) {
    shortest = std::min(shortest, ns);
  });
  std::vector<std::map<std::int64_t, std::vector<Span>>> moving(lanes_.size());
  each([&](std::size_t c, const Member& m, std::int64_t, std::int64_t shortest) {
    const std::int64_t end = at(m).span.end_ns;
    moving[to_index(m.rank)][out_.step_of[c]].push_back({end - shortest, end});
  });
  for (std::size_t r = 0; r < moving.size(); ++r)
    for (auto& [step, spans] : moving[r])
      out_.lanes[r].network_ns[step] = length_of(union_of(std::move(spans)));
}

}  // namespace

Program program_of(const Job& job, const MatchResult& matched) {
  return ProgramBuilder(job, matched).build();
}

}  // namespace linerate::trace
