// What an Advice says besides its ranking.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "linerate/advise/advise_options.hpp"
#include "linerate/advise/evaluator.hpp"
#include "linerate/advise/ranking.hpp"
#include "linerate/doc/advice.hpp"

namespace linerate::advise {

/// The compression that changes its steps, without settings of the exchange; empty: none.
std::string compression_of(const doc::Strategy& strategy);

/// Says whether compression pays. It counts the judged compressors and casts whose step is shorter
/// than that of `dense`. `dense` is the best that takes the steps of an uncompressed run. And it
/// says the ratio that would be enough. `full_use`: ratio_for_full_use().
std::vector<std::string> about_compression(const std::vector<Judged>& judged,
                                           const doc::Candidate& dense,
                                           std::optional<double> full_use,
                                           const AdviseOptions& options);

/// Adds notes on what was not known, extrapolated or refused, and on steps given for what is no
/// candidate. `judged`: best first, as the Advice's candidates.
void add_notes(doc::Advice& advice, const std::vector<Judged>& judged, const AdviseOptions& options,
               const Evaluator& evaluator);

/// Notes that say the same of several strategies become one, which begins with all their names.
std::vector<std::string> joined_alike(const std::vector<std::string>& notes);

// The step of the strategy in use as it was measured, next to its prediction.

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
