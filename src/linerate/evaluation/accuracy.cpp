// What an Evaluation's trainings say about each strategy. A strategy is trained over several seeds,
// for as many steps as fp32 and for as long as fp32. Steps to the target come from runs with equal
// steps alone: a run that is cut by time has fewer or more of them.
#include "linerate/evaluation/accuracy.hpp"

#include <algorithm>
#include <cmath>

#include "linerate/core/statistics.hpp"
#include "linerate/evaluation/steps_ratio.hpp"
#include "linerate/evaluation/timing.hpp"

namespace linerate::evaluation {
namespace {

doc::Bounded over_seeds(const std::vector<double>& values) {
  const auto [least, greatest] = std::minmax_element(values.begin(), values.end());
  return {median(values), *least, *greatest};
}

/// The last test accuracy of every run that got to its end.
std::optional<doc::Bounded> last_accuracy(const doc::Setup& setup, const std::string& strategy,
                                          doc::Budget budget) {
  std::vector<double> values;
  for (const doc::TrainedRun& run : setup.trained)
    if (run.strategy == strategy && run.budget == budget && run.diverged.empty() &&
        !run.points.empty())
      values.push_back(run.points.back().test_accuracy);
  if (values.empty()) return std::nullopt;
  return over_seeds(values);
}

const doc::TrainedRun* trained_fp32(const doc::Setup& setup) {
  const auto found =
      std::find_if(setup.trained.begin(), setup.trained.end(),
                   [](const doc::TrainedRun& r) { return r.role == doc::Role::fp32; });
  return found == setup.trained.end() ? nullptr : &*found;
}

// Counts a run. `diverged` counts runs of both budgets, `missed` those of equal steps.
void add_run(Learned& to, const doc::TrainedRun& run, const std::optional<double>& target) {
  to.diverged += !run.diverged.empty();
  if (run.budget == doc::Budget::time) return;
  ++to.runs;
  if (!target) return;
  if (const auto steps = steps_to(run, *target))
    to.steps_to_target.push_back(*steps);
  else
    ++to.missed;
}

// Sets the ratio to fp32's steps, if some run of fp32 reached the target.
void add_ratios(std::vector<Learned>& all) {
  const auto base = std::find_if(all.begin(), all.end(),
                                 [](const Learned& l) { return l.role == doc::Role::fp32; });
  if (base == all.end() || base->steps_to_target.empty()) return;
  const std::vector<double> uncompressed = base->steps_to_target;
  for (Learned& l : all)
    if (!l.steps_to_target.empty()) l.steps_ratio = steps_ratio(l.steps_to_target, uncompressed);
}

}  // namespace

// An example: fp32 ends at 88.0, 88.3 and 88.6 % over three seeds. The target is the median less
// the spread, 88.3 - .6 = 87.7 %. A strategy that stays within fp32's own spread so reaches it.
std::optional<double> target_of(const doc::Setup& setup) {
  if (setup.target_accuracy) return setup.target_accuracy;
  const doc::TrainedRun* base = trained_fp32(setup);
  if (!base) return std::nullopt;
  const auto last = last_accuracy(setup, base->strategy, doc::Budget::steps);
  if (!last) return std::nullopt;
  return std::max(0.0, last->value - (*last->high - *last->low));
}

std::optional<double> steps_to(const doc::TrainedRun& run, double target) {
  for (const doc::AccuracyPoint& p : run.points)
    if (p.test_accuracy >= target) return static_cast<double>(p.step);
  return std::nullopt;
}

std::vector<Learned> learned(const doc::Setup& setup) {
  const std::optional<double> target = target_of(setup);
  std::vector<Learned> all;
  for (const doc::TrainedRun& run : setup.trained) {
    auto found = std::find_if(all.begin(), all.end(),
                              [&](const Learned& l) { return l.strategy == run.strategy; });
    if (found == all.end()) {
      found = all.insert(all.end(), Learned{});
      found->strategy = run.strategy;
      found->role = run.role;
      found->after_steps = last_accuracy(setup, run.strategy, doc::Budget::steps);
      found->after_time = last_accuracy(setup, run.strategy, doc::Budget::time);
      if (!found->after_time && steps_in_equal_time(setup, run.strategy, run.steps) == run.steps)
        found->after_time = found->after_steps;
    }
    add_run(*found, run, target);
  }
  add_ratios(all);
  return all;
}

// If a compressed step takes 50 ms and fp32's 100 ms, 1000 steps of fp32 take as long as 2000
// compressed ones.
std::optional<std::int64_t> steps_in_equal_time(const doc::Setup& setup,
                                                const std::string& strategy, std::int64_t steps) {
  const doc::TimedRun* base = find(setup, doc::Role::fp32);
  const auto run = std::find_if(setup.timed.begin(), setup.timed.end(),
                                [&](const doc::TimedRun& r) { return r.strategy == strategy; });
  if (!base || run == setup.timed.end()) return std::nullopt;
  const double ratio = ratio_to(*run, *base);
  if (std::abs(ratio - 1) <= noise_floor(setup).value_or(0)) return steps;
  return std::max<std::int64_t>(1, std::llround(static_cast<double>(steps) / ratio));
}

}  // namespace linerate::evaluation
