#include "linerate/calibrate/trace_overlap.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "linerate/core/hash.hpp"
#include "linerate/core/intervals.hpp"
#include "linerate/trace/explain/match.hpp"
#include "linerate/trace/explain/transfers.hpp"

namespace linerate::calibrate {
namespace {

using trace::Communication;
using trace::RankActivity;

/// A computation of a rank by its place in its step.
struct Placed {
  std::size_t at = 0;  // position in RankActivity::compute
  std::int32_t step = 0;
  std::int32_t occurrence = 0;
};

/// Positions of computations that no other one contains, by start.
std::vector<std::size_t> outermost(const std::vector<Span>& all) {
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&all](std::size_t a, std::size_t b) {
    return std::pair(all[a].start_ns, -all[a].end_ns) < std::pair(all[b].start_ns, -all[b].end_ns);
  });
  std::int64_t end_ns = INT64_MIN;
  std::erase_if(order, [&](std::size_t i) {
    if (all[i].end_ns <= end_ns) return true;
    end_ns = all[i].end_ns;
    return false;
  });
  return order;
}

/// Which step a moment belongs to: up to the begin of the next one; -1 before the first.
class StepAt {
 public:
  explicit StepAt(const RankActivity& rank) {
    for (const trace::StepSpan& s : rank.steps) starts_.push_back(s.span.start_ns);
    std::sort(starts_.begin(), starts_.end());
  }
  std::int32_t operator()(std::int64_t ns) const {
    return static_cast<std::int32_t>(std::upper_bound(starts_.begin(), starts_.end(), ns) -
                                     starts_.begin()) -
           1;
  }

 private:
  std::vector<std::int64_t> starts_;
};

void add_computation(const RankActivity& rank, const std::vector<std::int64_t>& moved_ns,
                     std::uint64_t rank_number, std::vector<Repetition>& out) {
  if (rank.compute_names.size() != rank.compute.size() || rank.steps.empty()) return;
  std::vector<Span> moving, unknown;
  for (std::size_t i = 0; i < rank.communications.size(); ++i) {
    const Span& span = rank.communications[i].span;
    if (moved_ns[i] >= 0)
      moving.push_back({span.end_ns - moved_ns[i], span.end_ns});
    else
      unknown.push_back(span);
  }
  for (std::size_t i = 0; i < rank.compute.size(); ++i)
    if (rank.compute_names[i] == 0) unknown.push_back(rank.compute[i]);
  const SpanSet transfers = union_of(std::move(moving)), doubtful = union_of(std::move(unknown));
  const StepAt step_at(rank);
  std::map<std::pair<std::int32_t, std::uint64_t>, std::int32_t> count;  // by step and name
  std::vector<Placed> placed;
  for (const std::size_t i : outermost(rank.compute)) {
    const std::int32_t step = step_at(rank.compute[i].start_ns);
    if (step < 0 || rank.compute_names[i] == 0) continue;
    placed.push_back({i, step, count[{step, rank.compute_names[i]}]++});
  }
  for (const Placed& p : placed) {
    const Span& span = rank.compute[p.at];
    if (!clipped(doubtful, span).empty()) continue;
    const std::uint64_t name = rank.compute_names[p.at];
    const std::uint64_t place =
        hash_value(static_cast<std::uint64_t>(p.occurrence),
                   hash_value(static_cast<std::uint64_t>(count[{p.step, name}])));
    out.push_back({hash_value(rank_number, hash_value(name, place)), span.seconds(),
                   seconds_of(clipped(transfers, span))});
  }
}

std::uint64_t kind_of(const Communication& c) {
  std::uint64_t hash = hash_value(static_cast<std::uint64_t>(c.op));
  hash = hash_value(static_cast<std::uint64_t>(c.bytes), hash);
  hash = hash_value(static_cast<std::uint64_t>(c.group), hash);
  hash = hash_value(static_cast<std::uint64_t>(c.group_size), hash);
  return hash_value(c.dtype ? static_cast<std::uint64_t>(*c.dtype) + 1 : 0, hash);
}

}  // namespace

TraceOverlap overlap_of(const trace::Job& job) {
  TraceOverlap out;
  const trace::MatchResult matched = trace::match_collectives(job);
  out.collective_beside_s.assign(matched.collectives.size(), -1);
  if (job.computation_unknown || !job.has_durations) return out;
  const trace::Transfers transfers = trace::transfers_of(job, matched);
  std::vector<SpanSet> computing;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    add_computation(job.ranks[r], transfers.ns[r], r, out.compute);
    computing.push_back(union_of(job.ranks[r].compute));
  }
  for (std::size_t k = 0; k < matched.collectives.size(); ++k) {
    const trace::Matched& m = matched.collectives[k];
    const auto first_rank = static_cast<std::size_t>(m.members.front().rank);
    const auto first_index = static_cast<std::size_t>(m.members.front().index);
    const std::int64_t moved_ns = transfers.ns[first_rank][first_index];
    if (moved_ns < 0) continue;
    std::vector<Span> computed;  // since the begin of the transfer, the same on all ranks
    for (const trace::Member& member : m.members) {
      const auto rank = static_cast<std::size_t>(member.rank);
      const Span& span =
          job.ranks[rank].communications[static_cast<std::size_t>(member.index)].span;
      const std::int64_t begin_ns = span.end_ns - moved_ns;
      for (const Span& c : clipped(computing[rank], {begin_ns, span.end_ns}))
        computed.push_back({c.start_ns - begin_ns, c.end_ns - begin_ns});
    }
    const double beside_s = seconds_of(union_of(std::move(computed)));
    out.collective_beside_s[k] = beside_s;
    const Communication& c = job.ranks[first_rank].communications[first_index];
    if (c.bytes > 0)
      out.communication.push_back({kind_of(c), static_cast<double>(moved_ns) * 1e-9, beside_s});
  }
  return out;
}

}  // namespace linerate::calibrate
