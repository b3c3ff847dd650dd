#include "linerate/trace/contention/alone.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "linerate/trace/job/map_times.hpp"

namespace linerate::trace {
namespace {

/// How much of a set lies before a moment.
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
    return before_[static_cast<std::size_t>(after - set_.begin()) - 1] + std::min(ns, last.end_ns) -
           last.start_ns;
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

std::vector<SpanSet> between_kernels(const Job& job) {
  std::vector<SpanSet> all;
  for (const RankActivity& rank : job.ranks)
    all.push_back(difference_of(at_work(rank, !job.cpu_device),
                                union_of(union_of(rank.compute), union_of(rank.copies))));
  return all;
}

std::vector<SpanSet> waits_for_host(const Job& job) {
  std::vector<SpanSet> all(job.ranks.size());
  if (job.cpu_device) return all;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const RankActivity& rank = job.ranks[r];
    if (rank.steps.empty() || rank.host.empty()) continue;
    std::vector<Span> work = rank.compute;
    work.insert(work.end(), rank.copies.begin(), rank.copies.end());
    for (const Communication& c : rank.communications) work.push_back(c.span);
    SpanSet idle = difference_of(union_of(windows_of_steps(rank)), union_of(std::move(work)));
    std::erase_if(idle, [](const Span& s) { return s.length() < kBetweenKernelsNs; });
    all[r] = intersection_of(idle, union_of(rank.host));
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
