// The kinds of steps of a strategy. Three things change from step to step: the compressor's phase,
// the other collectives that run, and what K-FAC updates. Each combination is a kind. The schedule
// repeats after the least common multiple of their lengths.
#include "linerate/plan/step_kinds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"

namespace linerate::plan {
namespace {

std::vector<CurvatureUpdate> updates_of(const std::optional<Kfac>& kfac) {
  return kfac ? kfac->updates() : std::vector<CurvatureUpdate>(1);
}

std::string joined(const std::string& phase, std::string_view update) {
  return phase + (phase.empty() || update.empty() ? "" : ".") + std::string(update);
}

/// Which of the other collectives run in a step. Steps are alike if the same collectives run in
/// them.
///
/// An example: one collective runs every 2 steps and one every 3 steps, so 6 steps repeat. Their
/// kinds are "", "every-2", "every-3", "every-2", "" and "every-2-3". Collectives that run in every
/// step make no difference.
class Periods {
 public:
  explicit Periods(const std::vector<int>& every) : every_(every.begin(), every.end()) {
    every_.erase(1);
    for (const int steps : every_) steps_ = std::lcm(steps_, std::int64_t{steps});
    std::map<std::string, std::int32_t> known;
    for (std::int64_t step = 0; step < steps_; ++step) {
      const std::string name = name_of_step(step);
      const auto [at, is_new] = known.try_emplace(name, static_cast<std::int32_t>(kinds_.size()));
      if (is_new) kinds_.emplace_back(step, name);
      of_step_.push_back(at->second);
    }
  }

  std::int64_t steps() const { return steps_; }
  /// A step of each kind, and its name: "every-2-4"; empty: what runs in every step.
  const std::vector<std::pair<std::int64_t, std::string>>& kinds() const { return kinds_; }
  std::int32_t kind_of(std::int64_t step) const { return of_step_[to_index(step % steps_)]; }

 private:
  std::string name_of_step(std::int64_t step) const {
    std::string name;
    for (const int steps : every_)
      if ((step + 1) % steps == 0) name += fmt::format("{}-{}", name.empty() ? "every" : "", steps);
    return name;
  }

  std::set<int> every_;
  std::int64_t steps_ = 1;
  std::vector<std::pair<std::int64_t, std::string>> kinds_;
  std::vector<std::int32_t> of_step_;
};

}  // namespace

// Kinds are numbered by phase, then by period, then by update, so kind_of() needs no search. An
// example with K-FAC's factors every 10 and inverses every 100 steps: the cycle has 100 steps and
// three kinds.
StepKinds step_kinds(const compress::Phases& phases, const std::optional<Kfac>& kfac,
                     const std::vector<int>& every) {
  const std::vector<CurvatureUpdate> updates = updates_of(kfac);
  const Periods periods(every);
  const bool alone = phases.count() == 1;
  StepKinds result;
  for (int phase = 0; phase < phases.count(); ++phase)
    for (const auto& [in_period, name] : periods.kinds())
      for (const CurvatureUpdate& update : updates)
        result.kinds.push_back(
            {joined(joined(alone ? "" : phases.name(phase), name), name_of(update)),
             alone ? -1 : phase, update, in_period});
  const auto kind_of = [&](std::int64_t step) {
    const CurvatureUpdate update = kfac ? kfac->update_of_step(step) : CurvatureUpdate{};
    const auto at = std::find(updates.begin(), updates.end(), update) - updates.begin();
    const auto of_period = periods.kind_of(step);
    const auto each = static_cast<std::int32_t>(updates.size());
    const auto of_periods = static_cast<std::int32_t>(periods.kinds().size());
    return (phases.of_step(step) * of_periods + of_period) * each + static_cast<std::int32_t>(at);
  };
  std::int64_t warm = 0;
  for (const compress::Phase& phase : phases.warm_up) warm += phase.steps;
  constexpr std::int64_t kLongest = 10'000'000;
  const std::int64_t cycle =
      std::lcm(periods.steps(), std::lcm(static_cast<std::int64_t>(phases.cycle.size()),
                                         kfac ? kfac->inverse_interval : std::int64_t{1}));
  if (periods.steps() > 1 && cycle > kLongest)
    throw UsageError(
        fmt::format("the strategy and the Workload's other_collectives repeat together only after "
                    "{} steps, expected at most {}; change every, or the strategy's intervals",
                    cycle, kLongest));
  for (std::int64_t step = 0; step < warm + cycle; ++step)
    (step < warm ? result.warm_up : result.cycle).push_back(kind_of(step));
  return result;
}

}  // namespace linerate::plan
