// Candidates judged at one bandwidth, and which of them wins.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "linerate/advise/advise_options.hpp"
#include "linerate/advise/evaluator.hpp"

namespace linerate::advise {

/// A candidate with what its reason is made from.
struct Judged {
  doc::Candidate candidate;
  doc::Strategy strategy;
  std::optional<Outcome> outcome;  // absent: failed

  bool changes_convergence() const { return outcome && outcome->traits.changes_convergence; }
};

/// Plans, simulates and weighs one strategy; never throws for what cannot be planned (standing
/// `failed`). The reason stays empty.
Judged judge(Evaluator& evaluator, const doc::Strategy& strategy,
             std::optional<BytesPerSecond> bandwidth, const AdviseOptions& options);

/// Order of the list: standing, then time to target (or step) ascending; equal ones as given.
bool before(const doc::Candidate& a, const doc::Candidate& b);

/// a's time to target over b's. The error of a collective's cost is the same for both: ends meet
/// their like, the low end of one step the low end of the other. Ratios of steps are their own.
/// Both must be ranked.
doc::Bounded over(const doc::Candidate& a, const doc::Candidate& b);

/// do_nothing, inconclusive or change, by the rule of advise(). Both must be ranked.
doc::AdviceVerdict verdict_of(const doc::Candidate& current, const doc::Candidate& best,
                              double least_gain);

/// The strategy to use at this bandwidth: the current one while the verdict is not `change`, else
/// the first in search order that is within least_gain of the best and itself worth the change.
std::string winner(Evaluator& evaluator, const std::vector<doc::Strategy>& strategies,
                   std::optional<BytesPerSecond> bandwidth, const AdviseOptions& options);

}  // namespace linerate::advise
