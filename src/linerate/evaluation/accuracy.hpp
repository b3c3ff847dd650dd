// What compressors did to accuracy: after equal steps, after equal time, and in steps to a target.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "linerate/doc/bounded.hpp"
#include "linerate/doc/evaluation.hpp"

namespace linerate::evaluation {

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

}  // namespace linerate::evaluation
