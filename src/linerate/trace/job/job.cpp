#include "linerate/trace/job/job.hpp"

#include <algorithm>

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

void shift(RankActivity& rank, std::int64_t by_ns) {
  const auto move = [by_ns](Span& s) { s.start_ns += by_ns, s.end_ns += by_ns; };
  for (Span& s : rank.compute) move(s);
  for (Span& s : rank.copies) move(s);
  for (StepSpan& s : rank.steps) move(s.span);
  for (Communication& c : rank.communications) move(c.span);
}

}  // namespace linerate::trace
