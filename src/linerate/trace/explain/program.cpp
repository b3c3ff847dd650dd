#include "linerate/trace/explain/program.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "linerate/doc/exposed_communication.hpp"

namespace linerate::trace {
namespace {

/// Without a record of when a communication was asked for, one that starts so soon behind another
/// was held up by it.
constexpr std::int64_t kHandOver_ns = 20'000, kHandOverOfThreads_ns = 200'000;
/// Share of a step's work that another rank must have done beyond a pause to show that nothing
/// waited there: counts of small pieces, such as copies of the next batch, differ between ranks.
constexpr double kWorkThatShows = 0.02;

/// One communication of one lane on its way into the program.
struct Draft {
  PartOf place;
  Span span;
  std::int64_t issue_ns = 0;
  std::int32_t behind = -1;  // position among the lane's drafts
  std::int64_t first = 0;    // pieces of work begun before the issue
  std::int64_t count = 0;    // begun behind the issue, before the end
  bool call_known = false;
  bool guessed = false;  // held up, and nothing says when it was asked for
};

/// A point with its times, before the time between points is measured.
struct Timed {
  std::int64_t block_ns = 0, resume_ns = 0;
  Point point;
};

struct LaneDraft {
  std::vector<Span> work;             // by start
  std::vector<std::int64_t> done_ns;  // length of the first i pieces
  double work_of_step_ns = 0;
  SpanSet busy;
  std::vector<Draft> drafts;  // by start
  std::map<std::int32_t, std::size_t> by_collective;
  std::vector<Timed> waits;
};

std::int64_t begun_before(const std::vector<Span>& work, std::int64_t time) {
  return std::lower_bound(work.begin(), work.end(), time,
                          [](const Span& s, std::int64_t t) { return s.start_ns < t; }) -
         work.begin();
}

/// When a communication that another one of its rank held up was asked for at the latest: behind
/// the last work that was done before it began.
std::int64_t latest_work_done(const SpanSet& busy, std::int64_t time) {
  const auto after = std::upper_bound(busy.begin(), busy.end(), time,
                                      [](std::int64_t t, const Span& s) { return t < s.end_ns; });
  return after == busy.begin() ? INT64_MIN : (after - 1)->end_ns;
}

/// Issues, and what held a start up: by start, so that what ran before is known.
void find_issues(LaneDraft& lane, const RankActivity& rank, bool cpu) {
  std::set<std::pair<std::int64_t, std::int32_t>> ends;  // end, draft
  for (std::size_t i = 0; i < lane.drafts.size(); ++i) {
    Draft& d = lane.drafts[i];
    const std::int64_t ready = rank.communications[i].ready_ns;
    d.call_known = ready != kNotReady;
    d.issue_ns = d.call_known ? std::min(ready, d.span.start_ns) : d.span.start_ns;
    const auto after = ends.upper_bound({d.span.start_ns, INT32_MAX});
    if (after != ends.begin()) {
      const auto& [end, other] = *std::prev(after);
      const std::int64_t allowed = cpu ? kHandOverOfThreads_ns : kHandOver_ns;
      const bool held_up =
          d.call_known ? end > d.issue_ns : d.span.start_ns - end <= allowed && other >= 0;
      if (held_up) {
        d.behind = other;
        if (!d.call_known) {
          d.guessed = true;
          d.issue_ns = std::min(d.span.start_ns,
                                std::max(lane.drafts[static_cast<std::size_t>(other)].issue_ns,
                                         latest_work_done(lane.busy, d.span.start_ns)));
        }
      }
    }
    ends.insert({d.span.end_ns, static_cast<std::int32_t>(i)});
  }
}

std::vector<std::int64_t> optimizer_starts(const RankActivity& rank) {
  std::vector<std::int64_t> starts;
  for (const PhaseSpan& p : rank.phases)
    if (p.phase == Phase::optimizer) starts.push_back(p.span.start_ns);
  return starts;
}

class Builder {
 public:
  Builder(const Job& job, const MatchResult& matched) : job_(job), matched_(matched) {}

  Program build() {
    add_collectives();
    for (std::size_t r = 0; r < job_.ranks.size(); ++r) draft_lane(r);
    for (LaneDraft& lane : lanes_) guess_from_others(lane);
    count_work();
    for (LaneDraft& lane : lanes_) find_waits(lane);
    place_missing_waits();
    for (std::size_t r = 0; r < lanes_.size(); ++r) finish_lane(r);
    return std::move(out_);
  }

 private:
  const Communication& at(const Member& m) const {
    return job_.ranks[static_cast<std::size_t>(m.rank)]
        .communications[static_cast<std::size_t>(m.index)];
  }
  std::int64_t offset(std::int32_t lane) const {
    return matched_.clock_offset_ns[static_cast<std::size_t>(lane)];
  }

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
        places_[static_cast<std::size_t>(member.rank)][static_cast<std::size_t>(member.index)] = {
            index, static_cast<std::int32_t>(c.parts.size())};
        c.parts.push_back(
            {.lane = member.rank,
             .after_ns = c.joint ? s.end_ns + offset(member.rank) - last_start : s.length()});
      }
      const Communication& first = at(m.members.front());
      const auto& steps = job_.ranks[static_cast<std::size_t>(m.members.front().rank)].steps;
      out_.step_of.push_back(first.step >= 0 ? steps[static_cast<std::size_t>(first.step)].number
                                             : -1);
      out_.collectives.push_back(std::move(c));
    }
    most_.assign(out_.collectives.size(), {});
    waited_.assign(out_.collectives.size(), false);
  }

  void draft_lane(std::size_t r) {
    const RankActivity& rank = job_.ranks[r];
    LaneDraft lane;
    lane.work = rank.compute;
    lane.work.insert(lane.work.end(), rank.copies.begin(), rank.copies.end());
    std::erase_if(lane.work, [](const Span& s) { return s.length() <= 0; });
    std::sort(lane.work.begin(), lane.work.end());
    lane.busy = union_of(lane.work);
    lane.done_ns.push_back(0);
    for (const Span& s : lane.work) lane.done_ns.push_back(lane.done_ns.back() + s.length());
    lane.work_of_step_ns = static_cast<double>(lane.done_ns.back()) /
                           static_cast<double>(std::max<std::size_t>(1, rank.steps.size()));
    for (std::size_t i = 0; i < rank.communications.size(); ++i)
      lane.drafts.push_back({.place = places_[r][i], .span = rank.communications[i].span});
    for (std::size_t i = 0; i < lane.drafts.size(); ++i)
      lane.by_collective[lane.drafts[i].place.collective] = i;
    find_issues(lane, rank, job_.cpu_device);
    lanes_.push_back(std::move(lane));
  }

  /// The same part on another lane that knows when it was asked for.
  const Draft* draft_of(std::int32_t collective, const LaneDraft& lane) const {
    const auto at = lane.by_collective.find(collective);
    return at == lane.by_collective.end() ? nullptr : &lane.drafts[at->second];
  }

  /// As much work behind the one that held it up as on a rank where nothing did.
  void guess_from_others(LaneDraft& lane) {
    for (Draft& d : lane.drafts) {
      if (!d.guessed) continue;
      const Draft& before = lane.drafts[static_cast<std::size_t>(d.behind)];
      for (const Part& part :
           out_.collectives[static_cast<std::size_t>(d.place.collective)].parts) {
        const LaneDraft& other = lanes_[static_cast<std::size_t>(part.lane)];
        const Draft* same = draft_of(d.place.collective, other);
        const Draft* same_before = draft_of(before.place.collective, other);
        if (&other == &lane || same == nullptr || same_before == nullptr || same->guessed) continue;
        const std::int64_t more = begun_before(other.work, same->issue_ns) -
                                  begun_before(other.work, same_before->issue_ns);
        const std::int64_t last = begun_before(lane.work, before.issue_ns) + more - 1;
        if (more > 0 && last < std::ssize(lane.work))
          d.issue_ns = std::clamp(lane.work[static_cast<std::size_t>(last)].end_ns, before.issue_ns,
                                  d.span.start_ns);
        else if (more == 0)
          d.issue_ns = before.issue_ns;
        d.guessed = false;
        break;
      }
    }
  }

  void count_work() {
    for (LaneDraft& lane : lanes_)
      for (Draft& d : lane.drafts) {
        d.first = begun_before(lane.work, d.issue_ns);
        d.count = begun_before(lane.work, d.span.end_ns) - d.first;
        if (d.guessed) continue;
        Most& most = most_[static_cast<std::size_t>(d.place.collective)];
        if (d.count > most.count) most = {d.count, d.first, &lane};
      }
  }

  /// No rank of it went on with notably more work while it was under way.
  bool may_be_waited_for(const Draft& d) const {
    const Most& most = most_[static_cast<std::size_t>(d.place.collective)];
    if (d.guessed || d.count >= most.count) return true;
    const auto done = [&most](std::int64_t count) {
      return most.lane->done_ns[static_cast<std::size_t>(most.first + count)];
    };
    return static_cast<double>(done(most.count) - done(d.count)) <
           kWorkThatShows * most.lane->work_of_step_ns;
  }

  void find_waits(LaneDraft& lane) {
    std::vector<std::int64_t> issues;
    std::vector<const Draft*> by_end;
    for (const Draft& d : lane.drafts) {
      issues.push_back(d.issue_ns);
      if (may_be_waited_for(d)) by_end.push_back(&d);
    }
    std::sort(issues.begin(), issues.end());
    std::sort(by_end.begin(), by_end.end(),
              [](const Draft* a, const Draft* b) { return a->span.end_ns < b->span.end_ns; });
    std::size_t after = 0;  // the busy span behind the pause
    for (const Draft* d : by_end) {
      const std::int64_t end = d->span.end_ns;
      while (after < lane.busy.size() && lane.busy[after].start_ns < end) ++after;
      std::int64_t pause = after == 0 ? INT64_MIN : lane.busy[after - 1].end_ns;
      if (pause >= end) continue;  // at work when it ended
      // A rank that asked for another one was not waiting then.
      const auto issue = std::upper_bound(issues.begin(), issues.end(), end - 1);
      if (issue != issues.begin()) pause = std::max(pause, *(issue - 1));
      if (!lane.waits.empty()) pause = std::max(pause, lane.waits.back().resume_ns);
      if (d->issue_ns > pause || pause > end) continue;
      lane.waits.push_back(
          {.block_ns = pause,
           .resume_ns = end,
           .point = {
               .kind = PointKind::wait, .collective = d->place.collective, .part = d->place.part}});
      waited_[static_cast<std::size_t>(d->place.collective)] = true;
    }
  }

  /// Where a rank did not have to wait: as much work behind the issue as where another one did, or
  /// with another wait that it has there; for gradients that no rank waited for, at the optimizer.
  void place_missing_waits() {
    for (std::size_t r = 0; r < lanes_.size(); ++r) {
      LaneDraft& lane = lanes_[r];
      const std::vector<std::int64_t> optimizer = optimizer_starts(job_.ranks[r]);
      const std::vector<Timed> seen = lane.waits;
      std::set<std::int32_t> there;
      for (const Timed& w : seen) there.insert(w.point.collective);
      for (const Draft& d : lane.drafts) {
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

  std::optional<std::int64_t> needed_at(const LaneDraft& lane, const std::vector<Timed>& seen,
                                        const Draft& d,
                                        const std::vector<std::int64_t>& optimizer) const {
    const auto c = static_cast<std::size_t>(d.place.collective);
    if (waited_[c]) {
      const auto at = static_cast<std::size_t>(d.first + most_[c].count);
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
  void add_issues(LaneDraft& draft, Lane& lane, std::vector<Timed>& points);
  void add_borders(const RankActivity& rank, Lane& lane, std::vector<Timed>& points) const;

  const Job& job_;
  const MatchResult& matched_;
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

/// Measures stretches of a rank's own time, one behind the other.
class OwnTimeMeter {
 public:
  OwnTimeMeter(const SpanSet& busy, const std::vector<PhaseSpan>& phases)
      : busy_(busy), phases_(phases) {}

  OwnTime between(std::int64_t from, std::int64_t to) {
    OwnTime own;
    while (from < to) {
      while (b_ < busy_.size() && busy_[b_].end_ns <= from) ++b_;
      while (p_ < phases_.size() && phases_[p_].span.end_ns <= from) ++p_;
      std::int64_t until = to;
      const bool working = b_ < busy_.size() && busy_[b_].start_ns <= from;
      if (b_ < busy_.size())
        until = std::min(until, working ? busy_[b_].end_ns : busy_[b_].start_ns);
      const bool known = p_ < phases_.size() && phases_[p_].span.start_ns <= from;
      if (p_ < phases_.size())
        until = std::min(until, known ? phases_[p_].span.end_ns : phases_[p_].span.start_ns);
      const auto phase = static_cast<std::size_t>(known ? phases_[p_].phase : Phase::unknown);
      (working ? own.work : own.idle)[phase] += until - from;
      from = until;
    }
    return own;
  }

 private:
  const SpanSet& busy_;
  const std::vector<PhaseSpan>& phases_;
  std::size_t b_ = 0, p_ = 0;
};

/// Begins of steps, and the end of each run of steps.
void Builder::add_borders(const RankActivity& rank, Lane& lane, std::vector<Timed>& points) const {
  const auto border = [&](std::int64_t time) {
    lane.borders_ns.push_back(time);
    points.push_back({.block_ns = time, .resume_ns = time, .point = {.kind = PointKind::border}});
  };
  for (std::size_t i = 0; i < rank.steps.size(); ++i) {
    const bool followed =
        i + 1 < rank.steps.size() && rank.steps[i + 1].number == rank.steps[i].number + 1;
    const Span window = doc::window_of_step(
        rank.steps[i].span, followed ? std::optional(rank.steps[i + 1].span) : std::nullopt);
    if (lane.borders_ns.empty() || lane.borders_ns.back() != window.start_ns)
      border(window.start_ns);
    const std::size_t from = lane.borders_ns.size() - 1;
    border(window.end_ns);
    lane.steps.push_back({rank.steps[i].number, from, from + 1});
  }
}

/// Held-up starts, and the points at which communications are asked for.
void Builder::add_issues(LaneDraft& draft, Lane& lane, std::vector<Timed>& points) {
  for (const Draft& d : draft.drafts) {
    Part& part = out_.collectives[static_cast<std::size_t>(d.place.collective)]
                     .parts[static_cast<std::size_t>(d.place.part)];
    const std::int64_t held =
        d.behind >= 0 ? draft.drafts[static_cast<std::size_t>(d.behind)].span.end_ns : INT64_MIN;
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

/// Borders among the points; those within a wait stand behind it and say where in it they were.
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

void Builder::finish_lane(std::size_t r) {
  LaneDraft& draft = lanes_[r];
  const RankActivity& rank = job_.ranks[r];
  Lane lane;
  std::vector<Timed> points = std::move(draft.waits), borders;
  add_issues(draft, lane, points);
  add_borders(rank, lane, borders);
  const std::vector<Timed> all = with_borders(points, borders);
  if (!all.empty()) {
    OwnTimeMeter meter(draft.busy, rank.phases);
    std::int64_t at = all.front().block_ns;
    lane.start_ns = at + offset(static_cast<std::int32_t>(r));
    for (const Timed& t : all) {
      lane.points.push_back(t.point);
      lane.points.back().before = meter.between(at, t.block_ns);
      at = std::max(at, t.resume_ns);
    }
  }
  out_.lanes.push_back(std::move(lane));
}

}  // namespace

std::int64_t OwnTime::idle_ns() const {
  return std::accumulate(idle.begin(), idle.end(), std::int64_t{0});
}
std::int64_t OwnTime::total_ns() const {
  return idle_ns() + std::accumulate(work.begin(), work.end(), std::int64_t{0});
}
OwnTime& OwnTime::operator+=(const OwnTime& other) {
  for (std::size_t i = 0; i < kPhases; ++i) work[i] += other.work[i], idle[i] += other.idle[i];
  return *this;
}

Program program_of(const Job& job, const MatchResult& matched) {
  return Builder(job, matched).build();
}

}  // namespace linerate::trace
