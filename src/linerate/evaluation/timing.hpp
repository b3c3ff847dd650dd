// Whether a strategy's steps are shorter than the baselines' by more than an A/A run differs from
// itself.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "linerate/doc/evaluation.hpp"

namespace linerate::evaluation {

/// Median over rounds, seconds.
double step_s(const doc::TimedRun& run);

/// Median over rounds of step / base's step in the same round: what slows a round down slows both.
/// Both have as many rounds.
double ratio_to(const doc::TimedRun& run, const doc::TimedRun& base);

/// The first run of that role, or nullptr.
const doc::TimedRun* find(const doc::Setup& setup, doc::Role role);

/// How far nine in ten rounds of the A/A run stay from a ratio of 1: the 0.9 quantile of
/// |repeat / fp32 - 1|. Absent without an A/A run.
std::optional<double> noise_floor(const doc::Setup& setup);

/// A run next to the baselines of its setup. Absent: there is no such baseline.
struct Compared {
  const doc::TimedRun* run = nullptr;
  std::optional<double> to_fp32, to_sixteen_bit;  // step / baseline's step
  /// Shorter by more than the noise floor; never without an A/A run.
  bool gains_over_fp32 = false;
  bool gains_over_both = false;  // over whichever baseline is faster
  double coding_share = 0;       // encode + decode, of the step
  double hidden_share = 0;       // of communication; 0 if there is none
};
/// Every timed run, in order.
std::vector<Compared> compare(const doc::Setup& setup);

/// Over all candidates of all setups: each (setup, candidate) counts as one.
struct Gains {
  int over_fp32 = 0, over_both = 0, all = 0;
};
Gains count_gains(const doc::Evaluation& evaluation);
/// "1 of 4 setups gain over tuned fp32, 0 of 4 over the better of fp32 and the 16-bit exchange."
std::string sentence_of(const Gains& gains);

/// The run with the least median step, the first of those that tie: its place.
std::size_t fastest(const std::vector<doc::TimedRun>& runs);

/// Bucket sizes that are worth a trial: those of 1, 5, 25 and 100 MiB that cut the gradients into
/// more than one bucket, as texts. Empty if none does: the exchange's own size is as good.
std::vector<std::string> bucket_ladder(std::int64_t gradient_bytes);

}  // namespace linerate::evaluation
