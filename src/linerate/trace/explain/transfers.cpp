#include "linerate/trace/explain/transfers.hpp"

#include <algorithm>

#include "linerate/core/index.hpp"

namespace linerate::trace {

/// Ends on devices may differ by 100 us or by a tenth of the longest duration, whichever is more.
/// On CPUs it is 3 ms or a quarter.
Transfers transfers_of(const Job& job, const MatchResult& matched) {
  Transfers out;
  for (const RankActivity& r : job.ranks) out.ns.emplace_back(r.communications.size(), -1);
  if (!job.has_durations) return out;
  for (const Matched& m : matched.collectives) {
    CommOp op = CommOp::unknown;
    std::int64_t least = INT64_MAX, longest = 0, end_low = INT64_MAX, end_high = INT64_MIN;
    for (const Member& member : m.members) {
      const auto rank = to_index(member.rank);
      const Communication& c = job.ranks[rank].communications[to_index(member.index)];
      if (op == CommOp::unknown) op = c.op;
      least = std::min(least, c.span.length());
      longest = std::max(longest, c.span.length());
      end_low = std::min(end_low, c.span.end_ns + matched.clock_offset_ns[rank]);
      end_high = std::max(end_high, c.span.end_ns + matched.clock_offset_ns[rank]);
    }
    if (!m.complete || !synchronises(op)) continue;
    // A synchronising collective ends everywhere at once; the limit is generous for thread
    // wake-ups on CPUs.
    const std::int64_t allowed = std::max<std::int64_t>(job.cpu_device ? 3'000'000 : 100'000,
                                                        longest / (job.cpu_device ? 4 : 10));
    if (end_high - end_low > allowed) {
      ++out.diverging;
      continue;
    }
    for (const Member& member : m.members)
      out.ns[to_index(member.rank)][to_index(member.index)] = least;
  }
  return out;
}

}  // namespace linerate::trace
