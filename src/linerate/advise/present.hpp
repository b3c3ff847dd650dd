// The step of the strategy in use as it was measured, next to its prediction.
#pragma once

#include <optional>

#include "linerate/advise/advise_options.hpp"
#include "linerate/advise/evaluator.hpp"
#include "linerate/doc/advice.hpp"

namespace linerate::advise {

/// The recorded step in place of a strategy, for others to be compared with. It stands in if the
/// Workload's source measured the job so, and no strategy is known to exchange as the job did.
std::optional<doc::Candidate> as_recorded(const Evaluator& evaluator, const AdviseOptions& options);

/// The step of the Workload's recording, if it was of as many ranks, over a network that the
/// options leave as it is.
const doc::RecordedStep* measured_step(const Evaluator& evaluator, const AdviseOptions& options);

/// The time that messages of this candidate may take of the processors, if the job was recorded on
/// them and no one measured it. A message takes them at most while it is under way, so the bound is
/// all hidden communication. Absent: measured, or others than the processors carry messages. In
/// seconds of a step.
std::optional<double> unmeasured_messages_s(const doc::Candidate& candidate,
                                            const Evaluator& evaluator);

/// If there is a measured_step(): sets measured_step_s, present and confidence. The prediction
/// misses if the measured step lies outside its interval, by more than a quarter of what `fastest`
/// is predicted to gain. Without an interval it misses if it is further off than that gain. Without
/// a strategy in use nothing can be checked.
void compare_present(doc::Advice& advice, const doc::Candidate& in_use,
                     const doc::Candidate& fastest, const Evaluator& evaluator,
                     const AdviseOptions& options);

}  // namespace linerate::advise
