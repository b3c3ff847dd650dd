// Ranks that are slower than the others, and what the step would be without their lateness. They
// are taken out one after the other, the slowest first. An example: rank 3 is 20 ms late and rank 1
// is 15 ms. Alone, rank 3 at full speed saves 5 ms, as rank 1 holds the step up then. Both together
// save 20 ms. So the list says what each gains with those above it.
#include "linerate/advise/stragglers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "linerate/core/text.hpp"

namespace linerate::advise {
namespace {

constexpr std::size_t kMostNamed = 4;

// Late by computing slower or by a fixed delay. The slowest four: a longer list is a job that is
// slow everywhere.
std::vector<doc::Straggler> slow_ranks(const Evaluator& evaluator) {
  const double alone = evaluator.workload().one_rank_step_s();
  std::vector<doc::Straggler> slow;
  for (const doc::RankSpeed& s : evaluator.cluster().rank_speeds) {
    const double late = alone * (s.compute_factor - 1) + s.delay_s;
    if (late > 0 && s.rank >= 0 && s.rank < evaluator.ranks())
      slow.push_back({s.rank, late, 0, ""});
  }
  std::stable_sort(slow.begin(), slow.end(),
                   [](const auto& a, const auto& b) { return a.late_s > b.late_s; });
  if (slow.size() > kMostNamed) slow.resize(kMostNamed);
  return slow;
}

std::string names_of(const std::vector<doc::Straggler>& slow) {
  std::vector<std::string> ranks;
  for (const doc::Straggler& s : slow) ranks.push_back(std::to_string(s.rank));
  return (ranks.size() == 1 ? "rank " : "ranks ") + join(ranks, ", ");
}

}  // namespace

std::vector<doc::Straggler> stragglers(Evaluator& evaluator, const Outcome& current,
                                       const AdviseOptions& options) {
  std::vector<doc::Straggler> slow = slow_ranks(evaluator);
  doc::Cluster cluster = evaluator.cluster();
  for (std::size_t i = 0; i < slow.size(); ++i) {
    std::erase_if(cluster.rank_speeds,
                  [&](const doc::RankSpeed& s) { return s.rank == slow[i].rank; });
    Evaluator without(evaluator.workload(), cluster, evaluator.ranks(), evaluator.latency());
    slow[i].step_s = without.run(options.current, options.bandwidth).step_s.value;
    const double gain = 1 - slow[i].step_s / current.step_s.value;
    slow[i].reason = fmt::format(
        "takes {} longer for itself in each step than the Workload says; without that{} the step "
        "is {} shorter.",
        format_time(slow[i].late_s), i == 0 ? "" : " and those above",
        format_percent(std::max(0.0, gain)));
  }
  return slow;
}

// If mending ranks gains more than any strategy, that is the first sentence of the advice.
void lead_with_stragglers(doc::Advice& a, const doc::Candidate& current, double least_gain) {
  if (a.stragglers.empty() || !current.target_s) return;
  const double now = current.step_s->value;
  const double without = a.stragglers.back().step_s;
  const doc::Candidate& fastest = a.candidates.front();
  const double by_strategy =
      fastest.target_s ? 1 - fastest.target_s->value / current.target_s->value : 0;
  const double gain = 1 - without / now;
  if (gain < least_gain || gain <= by_strategy) return;
  a.sentence = fmt::format(
      "Mend {} first. With ranks of equal speed {} {} {} instead of {}, {} less time. No "
      "strategy gains as much. {}",
      names_of(a.stragglers), a.current,
      a.confidence == doc::Confidence::low ? "may take" : "takes", format_time(without),
      format_time(now), format_percent(gain), a.sentence);
}

}  // namespace linerate::advise
