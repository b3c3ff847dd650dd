#include "linerate/trace/job/partial_steps.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "linerate/core/index.hpp"

namespace linerate::trace {
namespace {

/// By number of the step: has it as many communications as any step of its rank? (The usual one
/// may be a part: of a short recording that ends early most steps are.)
using FullSteps = std::map<std::int64_t, bool>;

FullSteps full_steps(const RankActivity& rank) {
  std::vector<std::int64_t> counts(rank.steps.size(), 0);
  for (const Communication& c : rank.communications)
    if (c.step >= 0) ++counts[to_index(c.step)];
  FullSteps steps;
  if (counts.empty()) return steps;
  const std::int64_t most = *std::max_element(counts.begin(), counts.end());
  for (std::size_t i = 0; i < counts.size(); ++i) steps[rank.steps[i].number] = counts[i] == most;
  return steps;
}

}  // namespace

void find_partial_steps(Job& job) {
  FullSteps on_any;  // on some rank
  std::vector<FullSteps> ranks;
  for (const RankActivity& rank : job.ranks) {
    ranks.push_back(full_steps(rank));
    for (const auto& [number, full] : ranks.back()) on_any[number] |= full;
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto partial = [&](const StepSpan& s) {
      return !ranks[r].at(s.number) && on_any.at(s.number);
    };
    std::vector<StepSpan>& steps = job.ranks[r].steps;
    for (auto s = steps.rbegin(); s != steps.rend() && partial(*s); ++s) s->partial = true;
    for (auto s = steps.begin(); s != steps.end() && partial(*s); ++s) s->partial = true;
  }
}

}  // namespace linerate::trace
