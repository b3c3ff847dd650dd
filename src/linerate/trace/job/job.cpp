#include "linerate/trace/job/job.hpp"

#include <algorithm>
#include <numeric>

namespace linerate::trace {

std::int32_t group_index(Job& job, const std::string& group) {
  const auto at = std::find(job.groups.begin(), job.groups.end(), group) - job.groups.begin();
  if (at == std::ssize(job.groups)) job.groups.push_back(group);
  return static_cast<std::int32_t>(at);
}

void sort_by_start(std::vector<Communication>& communications) {
  std::stable_sort(communications.begin(), communications.end(),
                   [](const Communication& a, const Communication& b) {
                     return a.span.start_ns < b.span.start_ns;
                   });
}

std::vector<std::size_t> in_order_of_issue(const RankActivity& rank) {
  const std::vector<Communication>& all = rank.communications;
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (std::all_of(all.begin(), all.end(), [](const Communication& c) { return c.issued >= 0; }))
    std::stable_sort(order.begin(), order.end(), [&all](std::size_t a, std::size_t b) {
      return all[a].issued < all[b].issued;
    });
  return order;
}

void shift(RankActivity& rank, std::int64_t by_ns) {
  const auto move = [by_ns](Span& s) { s.start_ns += by_ns, s.end_ns += by_ns; };
  for (Span& s : rank.compute) move(s);
  for (Span& s : rank.copies) move(s);
  for (Span& s : rank.host) move(s);
  for (Span& s : rank.calls) move(s);
  for (StepSpan& s : rank.steps) move(s.span);
  for (PhaseSpan& s : rank.phases) move(s.span);
  for (Communication& c : rank.communications) {
    move(c.span);
    if (c.ready_ns != kNotReady) c.ready_ns += by_ns;
  }
  for (BackwardPass& p : rank.passes) move(p.span);
}

}  // namespace linerate::trace
