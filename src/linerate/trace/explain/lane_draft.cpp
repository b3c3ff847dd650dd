// When did a rank ask for a communication? Some traces say it (Communication::ready_ns). In others
// only the start is recorded. A start may be late, because the previous communication still held
// the stream or the back end's thread.
//
// Example. All-reduce A runs from 1 to 5 ms, and B from 5.01 to 7 ms. B started 10 us after A
// ended, so A held it up. If the last kernel before B ended at 3 ms, B was asked for at 3 ms or
// before. The draft says 3 ms and marks it as guessed; program_builder.cpp improves on it with the
// traces of other ranks. If B had started at 5.5 ms, nothing held it up, and its start is its
// request.
#include "linerate/trace/explain/lane_draft.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "linerate/core/index.hpp"

namespace linerate::trace {
namespace {

/// If no record says when a communication was asked for, one that starts so soon after another was
/// held up by it. Threads of a CPU's back end take longer to hand over than a device's stream.
constexpr std::int64_t kHandOver_ns = 20'000, kHandOverOfThreads_ns = 200'000;

/// The end of the last work that was done by `time`; INT64_MIN if none was. No kernel makes data
/// ready after it, so a communication that begins at `time` was asked for by then.
std::int64_t latest_work_done(const SpanSet& busy, std::int64_t time) {
  const auto after = std::upper_bound(busy.begin(), busy.end(), time,
                                      [](std::int64_t t, const Span& s) { return t < s.end_ns; });
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
          d.issue_ns =
              std::min(d.span.start_ns, std::max(lane.drafts[to_index(other)].issue_ns,
                                                 latest_work_done(lane.busy, d.span.start_ns)));
        }
      }
    }
    ends.insert({d.span.end_ns, static_cast<std::int32_t>(i)});
  }
}

}  // namespace

std::int64_t begun_before(const std::vector<Span>& work, std::int64_t time) {
  return std::lower_bound(work.begin(), work.end(), time,
                          [](const Span& s, std::int64_t t) { return s.start_ns < t; }) -
         work.begin();
}

/// `done_ns` are running sums, so that the work between any two pieces takes one subtraction.
LaneDraft lane_draft(const RankActivity& rank, const std::vector<PartOf>& places, bool cpu) {
  LaneDraft lane;
  lane.work = rank.compute;
  lane.work.insert(lane.work.end(), rank.copies.begin(), rank.copies.end());
  std::erase_if(lane.work, [](const Span& s) { return s.length() <= 0; });
  std::sort(lane.work.begin(), lane.work.end());
  lane.busy = union_of(lane.work);
  lane.calls = rank.calls;
  lane.done_ns.push_back(0);
  for (const Span& s : lane.work) lane.done_ns.push_back(lane.done_ns.back() + s.length());
  lane.work_of_step_ns = static_cast<double>(lane.done_ns.back()) /
                         static_cast<double>(std::max<std::size_t>(1, rank.steps.size()));
  for (std::size_t i = 0; i < rank.communications.size(); ++i)
    lane.drafts.push_back({.place = places[i], .span = rank.communications[i].span});
  for (std::size_t i = 0; i < lane.drafts.size(); ++i)
    lane.by_collective[lane.drafts[i].place.collective] = i;
  find_issues(lane, rank, cpu);
  return lane;
}

}  // namespace linerate::trace
