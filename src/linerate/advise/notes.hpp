// What an Advice says besides its ranking: notes (notes.cpp), ceilings and late ranks
// (ceilings.cpp), and the words of another framework (framework.cpp).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "linerate/advise/advise_options.hpp"
#include "linerate/advise/ranking.hpp"
#include "linerate/advise/search_space.hpp"
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
void add_notes(doc::Advice& advice, const std::vector<Judged>& judged, const Evaluator& evaluator);

/// Notes that say the same of several strategies become one, which begins with all their names.
std::vector<std::string> joined_alike(const std::vector<std::string>& notes);

// The step of the strategy in use as it was measured, next to its prediction.

/// The recorded step in place of a strategy, for others to be compared with. It stands in if the
/// Workload's source measured the job so, and no strategy is known to exchange as the job did.
std::optional<doc::Candidate> as_recorded(const Evaluator& evaluator);

/// The step of the Workload's recording, if it was of as many ranks, over a network that the
/// options leave as it is.
const doc::RecordedStep* measured_step(const Evaluator& evaluator);

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
                     const doc::Candidate& fastest, const Evaluator& evaluator);

// What the best possible form of each remedy would give.

/// The ceiling of the job as it was recorded (measured_step()), as `linerate explain` says it.
std::optional<doc::Ceiling> recorded_ceiling(const Evaluator& evaluator);

/// recorded_ceiling(), and for the current strategy: infinite bandwidth, perfect overlap, and, if
/// the Cluster states them, no late ranks and no contention. For each codec, with the exchange that
/// makes most of it, free encoding and decoding; without a codec, for one of ratio 10,000. No real
/// form of the remedy can do better.
std::vector<doc::Ceiling> ceilings(Evaluator& evaluator, const Outcome& current,
                                   const std::vector<doc::Strategy>& strategies);

/// Runs of the Evaluator that they take at most.
std::size_t most_ceiling_runs(const std::vector<doc::Strategy>& strategies,
                              const doc::Strategy& current);

// Ranks that hold the others up, and what a job without them gains.

/// Those of the Cluster's rank_speeds that are slower than the Workload says, slowest first, at
/// most four. Their time is in every candidate; here is the current strategy without them.
std::vector<doc::Straggler> stragglers(Evaluator& evaluator, const Outcome& current);

/// The Advice's sentence begins with them if a job without them gains least_gain and more than the
/// fastest candidate does.
void lead_with_stragglers(doc::Advice& advice, const doc::Candidate& current, double least_gain);

// Strategies in the words of another framework, and which of them it has.

/// As one writes it with PyTorch's DistributedDataParallel: "DDP(model, bucket_cap_mb=50) with
/// fp16_compress_hook". Absent: DDP, its hooks and its options cannot do it.
std::optional<std::string> in_pytorch(const doc::Strategy& strategy);

/// Takes what the framework does not have out of the space, and adds what it has besides; the
/// strategy in use stays. Returns what it took out. Throws UsageError for a strategy of
/// AdviseOptions::more that it does not have.
std::vector<doc::Strategy> restrict_to(Framework framework, const AdviseOptions& options,
                                       SearchSpace& space);

/// Names candidates and texts in the framework's words. A sentence says how much the best of
/// `beyond` would gain, and notes say which of the framework's options no prediction prices.
void put_into_words(Evaluator& evaluator, const std::vector<doc::Strategy>& beyond,
                    doc::Advice& advice);

}  // namespace linerate::advise
