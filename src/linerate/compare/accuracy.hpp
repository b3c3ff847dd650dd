// What compressors did to accuracy: after equal steps, after equal time, and in steps to a target.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "linerate/core/text_table.hpp"
#include "linerate/doc/evaluation.hpp"
#include "linerate/doc/prediction.hpp"

namespace linerate::compare {

/// Test accuracy that counts as reached: the setup's own; else the median over seeds of fp32's last
/// one, less its spread over seeds (greatest - least). Absent if no fp32 run finished.
std::optional<double> target_of(const doc::Setup& setup);

/// Steps of the first test with at least this accuracy; absent: the run missed it.
std::optional<double> steps_to(const doc::TrainedRun& run, double target);

/// One strategy over its seeds. A run that diverged has no accuracy.
struct Learned {
  std::string strategy;
  doc::Role role = doc::Role::candidate;
  int runs = 0, diverged = 0;
  std::optional<doc::Bounded> after_steps;  // last test accuracy: median, least and greatest
  /// The same within fp32's time: of the runs with that budget; of those with equal steps if these
  /// take as long.
  std::optional<doc::Bounded> after_time;
  std::vector<double> steps_to_target;      // of the runs that reached it, equal steps alone
  int missed = 0;                           // equal steps: did not reach it, diverged or not
  std::optional<doc::Bounded> steps_ratio;  // to fp32's
};
/// Every strategy that was trained, in order of appearance.
std::vector<Learned> learned(const doc::Setup& setup);

/// Steps that take as long as `steps` of fp32: steps * fp32's step / the strategy's, at least 1;
/// `steps` itself if the two differ by no more than the noise floor. Absent if either was not
/// timed.
std::optional<std::int64_t> steps_in_equal_time(const doc::Setup& setup,
                                                const std::string& strategy, std::int64_t steps);

// The steps-to-target ratio: one rule for results files of either form and for evaluations.

/// The ratio of the medians over runs that reached the target. The interval reaches from the least
/// to the greatest ratio of any pair of runs; absent with one run of each, which has no spread.
/// Neither may be empty.
doc::Bounded steps_ratio(std::span<const double> steps, std::span<const double> uncompressed);

// Whether a strategy's steps are shorter than the baselines' by more than an A/A run differs from
// itself.

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

// An Evaluation for a terminal, and the cells that pages share with it.

/// Head and cells of one table.
struct Cells {
  std::vector<std::string> heads;
  TextRows rows;
};

/// Step, ratios to the baselines, timed regions and bytes on the wire of every timed run.
Cells timing_cells(const doc::Setup& setup);
/// What Agarwal et al. ask of a compressor, of every candidate: summable, cheap, overlapping,
/// without hyper-parameters.
Cells property_cells(const doc::Setup& setup);
/// Accuracy after equal steps and equal time, and the steps-to-target ratio.
Cells accuracy_cells(const doc::Setup& setup);

/// "noise floor (A/A): 1.2 %; a gain counts beyond it", or that there is none.
std::string noise_sentence(const doc::Setup& setup);
/// "target: test accuracy 88.1 %, tested every 50 steps"; empty if nothing was trained.
std::string target_sentence(const doc::Setup& setup);

/// Setup by setup, then how many gain.
std::string to_text(const doc::Evaluation& evaluation);

}  // namespace linerate::compare
