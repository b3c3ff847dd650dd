// Leaves times out of a job by bending each rank's clock. A hook took 5 to 8 ms and is left out
// whole. Times up to 5 ms stay, times up to 8 ms become 5 ms, and later ones come 3 ms earlier. So
// a kernel from 4 to 9 ms lasts from 4 to 6 ms. With a share of one half the clock runs at half its
// speed there. Several causes are summed.
#include "linerate/trace/contention/alone.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "linerate/core/index.hpp"
#include "linerate/trace/job/dense_bytes.hpp"
#include "linerate/trace/job/map_times.hpp"

namespace linerate::trace {
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
    const auto after =
        std::upper_bound(set_.begin(), set_.end(), ns,
                         [](std::int64_t time, const Span& s) { return time < s.start_ns; });
    if (after == set_.begin()) return 0;
    const Span& last = *(after - 1);
    return before_[to_index(after - set_.begin()) - 1] + std::min(ns, last.end_ns) - last.start_ns;
  }

 private:
  const SpanSet& set_;
  std::vector<std::int64_t> before_;
};

}  // namespace

SpanSet at_work(const RankActivity& rank, bool on_device) {
  if (!on_device) return union_of(rank.compute);
  SpanSet work;
  for (const Span& s : union_of(union_of(rank.compute), union_of(rank.copies)))
    if (!work.empty() && s.start_ns - work.back().end_ns < kBetweenKernelsNs)
      work.back().end_ns = s.end_ns;
    else
      work.push_back(s);
  return work;
}

std::vector<SpanSet> exposed_communication_of(const Job& job) {
  std::vector<SpanSet> all;
  for (const RankActivity& rank : job.ranks) {
    std::vector<Span> sent;
    for (const Communication& c : rank.communications) sent.push_back(c.span);
    all.push_back(difference_of(union_of(std::move(sent)), at_work(rank, !job.cpu_device)));
  }
  return all;
}

std::vector<SpanSet> between_kernels(const Job& job) {
  std::vector<SpanSet> all;
  for (const RankActivity& rank : job.ranks)
    all.push_back(difference_of(at_work(rank, !job.cpu_device),
                                union_of(union_of(rank.compute), union_of(rank.copies))));
  return all;
}

namespace {

/// Computation, copies and communication.
SpanSet busy_of(const RankActivity& rank) {
  std::vector<Span> busy = rank.compute;
  busy.insert(busy.end(), rank.copies.begin(), rank.copies.end());
  for (const Communication& c : rank.communications) busy.push_back(c.span);
  return union_of(std::move(busy));
}

/// By rank: when its device had nothing to do for 10 us or more while `of_host` (from the spans of
/// its operators) went on. None if the CPU is the device, or if the host is unknown.
template <typename OfHost>
std::vector<SpanSet> idle_during(const Job& job, const OfHost& of_host) {
  std::vector<SpanSet> all(job.ranks.size());
  if (job.cpu_device) return all;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const RankActivity& rank = job.ranks[r];
    if (rank.steps.empty() || rank.host.empty()) continue;
    SpanSet idle = difference_of(union_of(windows_of_steps(rank)), busy_of(rank));
    std::erase_if(idle, [](const Span& s) { return s.length() < kBetweenKernelsNs; });
    all[r] = intersection_of(idle, of_host(union_of(rank.host)));
  }
  return all;
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
  std::vector<SpanSet> all(job.ranks.size());
  if (!job.sharding.empty()) return all;  // what it sums is not what backward made
  const auto dense = static_cast<double>(dense_bytes(job));
  for (std::size_t r = 0; r < all.size(); ++r) {
    const RankActivity& rank = job.ranks[r];
    const auto sent = static_cast<double>(most_sent(rank));
    if (sent == 0 || sent > kHookSendsLess * dense) continue;
    all[r] = union_of(union_of(rank.exchange_work),
                      difference_of(union_of(rank.exchange_calls), busy_of(rank)));
  }
  return all;
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

}  // namespace linerate::trace
