// Kinds of work differ in length and in how often they repeat. A comparison is therefore weighted
// by its typical overlap in seconds. The interval needs to know how many comparisons these weights
// are worth: (sum of weights)^2 / sum of squares, the effective number of weighted samples. A kind
// with one repetition alone and ten touched ones is worth one comparison, since all ten share its
// base.
#include "linerate/trace/contention/slowdown.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include "linerate/core/index.hpp"
#include "linerate/core/intervals.hpp"
#include "linerate/core/random.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/explain/lateness.hpp"
#include "linerate/explain/program.hpp"
#include "linerate/trace/job/by_start.hpp"
#include "linerate/trace/job/collective_names.hpp"

namespace linerate::trace {
namespace {

constexpr double kAlone = 0.1, kBeside = 0.5;

struct Comparison {
  double lost = 0;    // 1 - 1 / factor
  double weight = 0;  // seconds compared, typical of the kind
};

struct Comparisons {
  std::vector<Comparison> all;
  double weight = 0;
  double squares = 0;  // of the weights of kinds, each over the pairs that it holds

  double worth() const { return squares > 0 ? weight * weight / squares : 0; }
};

/// Adds the comparisons of one kind. Those alone may have been touched a little. Their median touch
/// is subtracted from that of the others, so that a comparison is over the difference.
void compare(std::span<const Repetition> kind, Comparisons& out) {
  std::vector<Repetition> alone, beside;
  for (const Repetition& r : kind) {
    if (r.seconds <= 0) continue;
    if (r.beside_s <= kAlone * r.seconds) alone.push_back(r);
    if (r.beside_s >= kBeside * r.seconds) beside.push_back(r);
  }
  if (alone.empty() || beside.empty()) return;
  const double base = median(mapped(alone, &Repetition::seconds));
  const double touched = median(mapped(alone, &Repetition::beside_s));
  // Weighted by what is typical of the kind: a stalled repetition counts no more than another one.
  const double weight = median(mapped(beside, &Repetition::beside_s)) - touched;
  if (weight <= 0) return;
  for (const Repetition& r : beside)
    if (const double more = r.beside_s - touched; more > 0)
      out.all.push_back({(r.seconds - base) / more, weight}), out.weight += weight;
  const double whole = weight * static_cast<double>(beside.size());
  out.squares += whole * whole / static_cast<double>(std::min(alone.size(), beside.size()));
}

/// The value below which the share `q` of all weight lies. Each comparison's value stands in the
/// middle of its weight, and between two middles the value is linear.
double weighted_quantile(const Comparisons& sorted, double q) {
  const double at = q * sorted.weight;
  double before = 0, last_middle = 0;
  const Comparison* last = nullptr;
  for (const Comparison& c : sorted.all) {
    const double middle = before + c.weight / 2;
    if (middle >= at) {
      if (!last) return c.lost;
      return last->lost + (c.lost - last->lost) * (at - last_middle) / (middle - last_middle);
    }
    last = &c, last_middle = middle;
    before += c.weight;
  }
  return sorted.all.back().lost;
}

/// The factor for a loss of 0 to 1; absent if hardly any progress is left.
std::optional<double> factor_of(double lost) {
  constexpr double kStandstill = 0.99;
  return lost < kStandstill ? std::optional(std::max(1.0, 1 / (1 - lost))) : std::nullopt;
}

}  // namespace

SlowdownFound slowdown_of(std::vector<Repetition> repetitions) {
  std::ranges::stable_sort(repetitions, {}, &Repetition::kind);
  Comparisons found;
  for (auto from = repetitions.begin(); from != repetitions.end();) {
    const auto to = std::find_if(from, repetitions.end(),
                                 [from](const Repetition& r) { return r.kind != from->kind; });
    compare({from, to}, found);
    from = to;
  }
  SlowdownFound out{.slowdown = {}, .comparisons = found.worth()};
  if (out.comparisons < kFewestComparisons) return out;
  std::ranges::sort(found.all, {}, &Comparison::lost);
  // The order statistics between which the median of as many draws lies in 90 % of cases.
  const double around = kNormal90 / 2 / std::sqrt(out.comparisons);
  const auto factor = factor_of(weighted_quantile(found, 0.5));
  const auto low = factor_of(weighted_quantile(found, 0.5 - around));
  const auto high = factor_of(weighted_quantile(found, 0.5 + around));
  if (factor && low && high && *high / *low <= kWidestSlowdown)
    out.slowdown = Slowdown{*factor, *low, *high};
  return out;
}

// Leaves times out of a job by bending each rank's clock. A hook took 5 to 8 ms and is left out
// whole. Times up to 5 ms stay, times up to 8 ms become 5 ms, and later ones come 3 ms earlier. So
// a kernel from 4 to 9 ms lasts from 4 to 6 ms. With a share of one half the clock runs at half its
// speed there. Several causes are summed.

namespace {

/// How much of a set lies before a moment, in ns, by a binary search over running sums.
class LengthBefore {
 public:
  explicit LengthBefore(const SpanSet& set) : set_(set) {
    std::int64_t sum = 0;
    for (const Span& s : set) {
      before_.push_back(sum);
      sum += s.length();
    }
  }
  std::int64_t operator()(std::int64_t ns) const {
    const Span* last = last_begun(set_, ns);
    if (last == nullptr) return 0;
    return before_[to_index(last - set_.data())] + std::min(ns, last->end_ns) - last->start_ns;
  }

 private:
  const SpanSet& set_;
  std::vector<std::int64_t> before_;
};

}  // namespace

namespace {

/// Kernels and copies.
SpanSet device_work(const RankActivity& rank) {
  return union_of(union_of(rank.compute), union_of(rank.copies));
}

/// Computation, copies and communication.
SpanSet busy_of(const RankActivity& rank) {
  return union_of(device_work(rank), communication_times(rank));
}

}  // namespace

SpanSet at_work(const RankActivity& rank, bool on_device) {
  if (!on_device) return union_of(rank.compute);
  SpanSet work;
  for (const Span& s : device_work(rank))
    if (!work.empty() && s.start_ns - work.back().end_ns < kBetweenKernelsNs)
      work.back().end_ns = s.end_ns;
    else
      work.push_back(s);
  return work;
}

std::vector<SpanSet> exposed_communication_of(const Job& job) {
  return mapped(job.ranks, [&job](const RankActivity& rank) {
    return difference_of(communication_times(rank), at_work(rank, !job.cpu_device));
  });
}

std::vector<SpanSet> between_kernels(const Job& job) {
  return mapped(job.ranks, [&job](const RankActivity& rank) {
    return difference_of(at_work(rank, !job.cpu_device), device_work(rank));
  });
}

namespace {

/// By rank: when its device had nothing to do for 10 us or more while `of_host` (from the spans of
/// its operators) went on. None if the CPU is the device, or if the host is unknown.
template <typename OfHost>
std::vector<SpanSet> idle_during(const Job& job, const OfHost& of_host) {
  return mapped(job.ranks, [&](const RankActivity& rank) {
    if (job.cpu_device || rank.steps.empty() || rank.host.empty()) return SpanSet();
    SpanSet idle = difference_of(union_of(windows_of_steps(rank)), busy_of(rank));
    std::erase_if(idle, [](const Span& s) { return s.length() < kBetweenKernelsNs; });
    return intersection_of(idle, of_host(union_of(rank.host)));
  });
}

}  // namespace

std::vector<SpanSet> waits_for_host(const Job& job) {
  return idle_during(job, [](const SpanSet& host) { return host; });
}

std::vector<SpanSet> waits_between_operators(const Job& job) {
  constexpr std::int64_t kLongestNs = 1'000'000;  // beyond, it pauses
  return idle_during(job, [](const SpanSet& host) {
    SpanSet between;
    for (std::size_t i = 1; i < host.size(); ++i)
      if (host[i].start_ns - host[i - 1].end_ns < kLongestNs)
        between.push_back({host[i - 1].end_ns, host[i].start_ns});
    return between;
  });
}

namespace {

/// The most that a rank sent of gradients in one of its steps; 0: unknown.
std::int64_t most_sent(const RankActivity& rank) {
  std::vector<std::int64_t> sums(rank.steps.size(), 0);
  std::vector<bool> known(rank.steps.size(), true);
  for (const Communication& c : rank.communications) {
    if (c.step < 0 || !c.gradients || !carries_gradients(c.op)) continue;
    const auto step = to_index(c.step);
    if (c.bytes < 0) known[step] = false;
    sums[step] += std::max<std::int64_t>(0, c.bytes);
  }
  std::int64_t most = 0;
  for (std::size_t s = 0; s < sums.size(); ++s)
    if (known[s]) most = std::max(most, sums[s]);
  return most;
}

}  // namespace

std::vector<SpanSet> hook_times(const Job& job) {
  const auto dense = static_cast<double>(dense_bytes(job));
  return mapped(job.ranks, [&](const RankActivity& rank) {
    if (!job.sharding.empty()) return SpanSet();  // what it sums is not what backward made
    const auto sent = static_cast<double>(most_sent(rank));
    if (sent == 0 || sent > kHookSendsLess * dense) return SpanSet();
    return union_of(union_of(rank.exchange_work),
                    difference_of(union_of(rank.exchange_calls), busy_of(rank)));
  });
}

Job without(Job job, const std::vector<LeftOut>& all) {
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    std::vector<std::pair<LengthBefore, double>> lost;
    for (const LeftOut& l : all)
      if (r < l.spans.size() && !l.spans[r].empty() && l.share > 0)
        lost.emplace_back(LengthBefore(l.spans[r]), l.share);
    if (lost.empty()) continue;
    map_times(job.ranks[r], [&lost](std::int64_t ns) {
      double before = 0;
      for (const auto& [length, share] : lost) before += share * static_cast<double>(length(ns));
      return ns - std::llround(before);
    });
  }
  return job;
}

// Collects repetitions for slowdown.hpp. The same work must be found again, in another step, with
// and without communication. Two ways, the surer one first:
//
// 1. The place in the step: the third "aten::conv2d" of five in step 4 is the third of five in step
// 5.
// 2. The surroundings: a kernel with the same launch between the same two kernels before and after
// it.
//
// Communication counts only while data moved. Waiting for another rank slows no computation.
// Transfers come from matched collectives: their last ns on each rank (explain/lateness.hpp).

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
  std::ranges::sort(order, [&all](std::size_t a, std::size_t b) {
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
    std::vector<Span> steps = windows_of_steps(rank_);  // each up to the begin of the next one
    std::ranges::sort(steps);
    std::vector<PlacedWork> placed;
    for (const std::size_t i : outermost(rank_.compute)) {
      const Span* window = last_begun(steps, rank_.compute[i].start_ns);
      if (window == nullptr || rank_.compute_names[i] == 0) continue;
      const auto step = static_cast<std::int32_t>(window - steps.data());
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
    RankWork work(job.ranks[r], transfers.ns[r], r);
    work.compare(out);
    computing.push_back(union_of(job.ranks[r].compute));
    out.during_transfers.push_back(intersection_of(computing.back(), work.transfers()));
    out.during_communication.push_back(
        intersection_of(computing.back(), communication_times(job.ranks[r])));
  }
  for (std::size_t k = 0; k < matched.collectives.size(); ++k) {
    const Matched& m = matched.collectives[k];
    const Member& first = m.members.front();
    const std::int64_t moved_ns = transfers.ns[to_index(first.rank)][to_index(first.index)];
    if (moved_ns < 0) continue;
    std::vector<Span> computed;  // since the begin of the transfer, the same on all ranks
    for (const Member& member : m.members) {
      const auto rank = to_index(member.rank);
      const Span& span = communication_of(job, member).span;
      const std::int64_t begin_ns = span.end_ns - moved_ns;
      for (const Span& c : clipped(computing[rank], {begin_ns, span.end_ns}))
        computed.push_back({c.start_ns - begin_ns, c.end_ns - begin_ns});
    }
    const double beside_s = seconds_of(union_of(std::move(computed)));
    out.collective_beside_s[k] = beside_s;
    const Communication& c = communication_of(job, first);
    if (c.bytes > 0) out.communication.push_back({kind_of(c), in_seconds(moved_ns), beside_s});
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
