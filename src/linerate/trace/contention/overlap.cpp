// Collects repetitions for slowdown.hpp. The same work must be found again, in another step, with
// and without communication. Two ways, the surer one first:
//
// 1. The place in the step: the third "aten::conv2d" of five in step 4 is the third of five in step
// 5.
// 2. The surroundings: a kernel with the same launch between the same two kernels before and after
// it.
//
// Communication counts only while data moved. Waiting for another rank slows no computation.
// Transfers come from matched collectives: their last ns on each rank (explain/transfers.hpp).
#include "linerate/trace/contention/overlap.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>

#include "linerate/core/hash.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/intervals.hpp"
#include "linerate/trace/explain/match.hpp"
#include "linerate/trace/explain/transfers.hpp"

namespace linerate::trace {
namespace {

/// A computation of a rank by its place in its step.
struct PlacedWork {
  std::size_t at = 0;  // position in RankActivity::compute
  std::int32_t step = 0;
  std::int32_t occurrence = 0;
};

/// Positions of computations that no other one contains, by start: an operator and the operators
/// inside it are one piece of work.
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
    for (const Span& window : windows_of_steps(rank)) starts_.push_back(window.start_ns);
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

/// The named computation of one rank, with when its collectives moved data. `moved_ns`: by
/// communication, -1 if unknown.
class RankWork {
 public:
  RankWork(const RankActivity& rank, const std::vector<std::int64_t>& moved_ns,
           std::uint64_t rank_number)
      : rank_(rank), rank_number_(rank_number) {
    std::vector<Span> moving, unknown;
    for (std::size_t i = 0; i < rank.communications.size(); ++i) {
      const Span& span = rank.communications[i].span;
      if (moved_ns[i] >= 0)
        moving.push_back({span.end_ns - moved_ns[i], span.end_ns});
      else
        unknown.push_back(span);
    }
    for (std::size_t i = 0; i < rank.compute_names.size(); ++i)
      if (rank.compute_names[i] == 0) unknown.push_back(rank.compute[i]);
    transfers_ = union_of(std::move(moving)), doubtful_ = union_of(std::move(unknown));
  }

  const SpanSet& transfers() const { return transfers_; }

  /// Adds the rank's repetitions, by place in the step, and by surroundings if launches are known.
  void compare(Overlap& out) {
    if (rank_.compute_names.size() != rank_.compute.size() || rank_.steps.empty()) return;
    const StepAt step_at(rank_);
    std::vector<PlacedWork> placed;
    for (const std::size_t i : outermost(rank_.compute)) {
      const std::int32_t step = step_at(rank_.compute[i].start_ns);
      if (step < 0 || rank_.compute_names[i] == 0) continue;
      placed.push_back({i, step, count_[{step, rank_.compute_names[i]}]++});
    }
    for (const PlacedWork& p : placed) add(p.at, place_of(p), out.compute);
    if (rank_.launch_sizes.size() != rank_.compute.size()) return;
    constexpr std::size_t kAround = 2;
    for (std::size_t i = kAround; i + kAround < placed.size(); ++i) {
      const std::span around(&placed[i - kAround], 2 * kAround + 1);
      if (const std::uint64_t kind = neighbourhood_of(around); kind != 0)
        add(placed[i].at, kind, out.alike);
    }
  }

 private:
  std::uint64_t place_of(const PlacedWork& p) const {
    const std::uint64_t name = rank_.compute_names[p.at];
    return hash_value(
        name, hash_value(static_cast<std::uint64_t>(p.occurrence),
                         hash_value(static_cast<std::uint64_t>(count_.at({p.step, name})))));
  }

  /// 0: a launch among them is unknown.
  std::uint64_t neighbourhood_of(std::span<const PlacedWork> around) const {
    std::uint64_t hash = hash_value(around.size());
    for (const PlacedWork& p : around) {
      if (rank_.launch_sizes[p.at] == 0) return 0;
      hash = hash_value(rank_.compute_names[p.at], hash_value(rank_.launch_sizes[p.at], hash));
    }
    return hash;
  }

  void add(std::size_t at, std::uint64_t kind, std::vector<Repetition>& out) const {
    const Span& span = rank_.compute[at];
    if (clipped(doubtful_, span).empty())
      out.push_back(
          {hash_value(rank_number_, kind), span.seconds(), seconds_of(clipped(transfers_, span))});
  }

  const RankActivity& rank_;
  std::uint64_t rank_number_;
  SpanSet transfers_, doubtful_;
  std::map<std::pair<std::int32_t, std::uint64_t>, std::int32_t> count_;  // by step and name
};

std::uint64_t kind_of(const Communication& c) {
  std::uint64_t hash = hash_value(static_cast<std::uint64_t>(c.op));
  hash = hash_value(static_cast<std::uint64_t>(c.bytes), hash);
  hash = hash_value(static_cast<std::uint64_t>(c.group), hash);
  hash = hash_value(static_cast<std::uint64_t>(c.group_size), hash);
  return hash_value(c.dtype ? static_cast<std::uint64_t>(*c.dtype) + 1 : 0, hash);
}

}  // namespace

/// Computation is compared on each rank by itself. A collective is compared once for all its ranks,
/// because it is slowed if any of them computes. So their computation is united, each since the
/// begin of the transfer on its own clock.
Overlap overlap_of(const Job& job) {
  Overlap out;
  const MatchResult matched = match_collectives(job);
  out.collective_beside_s.assign(matched.collectives.size(), -1);
  if (job.computation_unknown || !job.has_durations) return out;
  const Transfers transfers = transfers_of(job, matched);
  std::vector<SpanSet> computing;
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    std::vector<Span> all;
    for (const Communication& c : job.ranks[r].communications) all.push_back(c.span);
    RankWork work(job.ranks[r], transfers.ns[r], r);
    work.compare(out);
    computing.push_back(union_of(job.ranks[r].compute));
    out.during_transfers.push_back(intersection_of(computing.back(), work.transfers()));
    out.during_communication.push_back(intersection_of(computing.back(), union_of(std::move(all))));
  }
  for (std::size_t k = 0; k < matched.collectives.size(); ++k) {
    const Matched& m = matched.collectives[k];
    const auto first_rank = to_index(m.members.front().rank);
    const auto first_index = to_index(m.members.front().index);
    const std::int64_t moved_ns = transfers.ns[first_rank][first_index];
    if (moved_ns < 0) continue;
    std::vector<Span> computed;  // since the begin of the transfer, the same on all ranks
    for (const Member& member : m.members) {
      const auto rank = to_index(member.rank);
      const Span& span = job.ranks[rank].communications[to_index(member.index)].span;
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

SlowdownFound compute_slowdown(const Overlap& overlap) {
  SlowdownFound found = slowdown_of(overlap.compute);
  if (found.slowdown) return found;
  SlowdownFound alike = slowdown_of(overlap.alike);
  if (!alike.slowdown) return found;
  alike.slowdown->low = 1;
  return alike;
}

}  // namespace linerate::trace
