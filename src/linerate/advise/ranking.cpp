// Which strategy wins. Candidates are compared by step x steps to the target. Two ends of an
// interval move together: if collectives cost more than expected, they do so for both candidates.
// So over() compares low with low and high with high. An example: a takes 90 ms (85 .. 95) and b
// takes 100 ms (94 .. 106). Their ratio is .900 (.896 .. .904), not 85/106 .. 95/94, and a change
// from b to a is sure.
//
// winner() prefers the plain: the first candidate in search order that is within least_gain of the
// best. An example with least_gain 2 %: 95, 93 and 92.5 ms in this order. 92.5 ms is the best. 95
// ms is more than 2 % longer, and 93 ms is not, so the second candidate wins.
#include "linerate/advise/ranking.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "linerate/advise/search_space.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/doc/step_speed.hpp"
#include "linerate/plan/planner.hpp"

namespace linerate::advise {
namespace {

// One strategy at one bandwidth: planned, simulated, and if it is asked for completed with
// intervals. A search asks for hundreds of values and completes only what it shows, as an interval
// takes more simulations.

cost::CostOptions options_of(std::optional<BytesPerSecond> bandwidth,
                             std::optional<Seconds> latency) {
  cost::CostOptions options;
  options.all_reduce = cost::kRingOrTree;
  options.bandwidth = bandwidth;
  options.latency = latency;
  return options;
}

// Threads, one a core, if a run takes long enough to be worth one.
std::size_t workers_for(const doc::Workload& workload) {
  constexpr std::size_t kFewGradients = 1000;
  if (workload.gradients.size() < kFewGradients) return 1;
  return std::max(1u, std::thread::hardware_concurrency());
}

// The strategy without its settings: the exchange, its wire type and what follows it.
std::string family_of(doc::Strategy strategy) {
  std::erase_if(strategy.exchange.options,
                [](const auto& option) { return option.first != "wire"; });
  return doc::to_text(strategy);
}

// Sets time to target and standing. A strategy whose effect on convergence is unknown stays
// unranked.
void weigh(Judged& judged, const AdviseOptions& options) {
  doc::Candidate& c = judged.candidate;
  if (!judged.changes_convergence()) {
    c.target_s = c.step_s;
    return;
  }
  c.standing = doc::Standing::unranked;
  const StepsToTarget* known = find_steps(options.steps, judged.strategy);
  if (!known || known->ratio.value <= 0) return;
  c.steps_to_target = known->ratio;
  if (known->missed > 0) return;  // a strategy that may never arrive has no time to target
  c.target_s = by_ends(*c.step_s, known->ratio, std::multiplies<double>());
  c.standing = doc::Standing::ranked;
}

// Fills the candidate from its run.
void take_outcome(Judged& judged, const Evaluator& evaluator) {
  doc::Candidate& c = judged.candidate;
  c.step_s = judged.outcome->step_s;
  c.communication_s = judged.outcome->communication_s;
  c.memory_bytes = memory_of(judged.outcome->plan).total();
  c.trains = judged.outcome->traits.runs.train;
  weigh(judged, evaluator.options());
  const std::optional<double> room = evaluator.options().memory_bytes
                                         ? evaluator.options().memory_bytes
                                         : evaluator.cluster().memory_bytes;
  if (room && c.memory_bytes > *room) c.standing = doc::Standing::does_not_fit;
}

/// The candidates whose intervals winner() asks for: the strategy in use, and those that come close
/// to the best. None if the strategy in use comes close to the best itself, since then nothing is
/// changed.
std::vector<std::size_t> in_question(const std::vector<Judged>& judged,
                                     const AdviseOptions& options) {
  const std::string current = doc::to_text(options.current);
  double best = INFINITY, in_use = INFINITY;
  for (const Judged& j : judged) {
    if (j.candidate.standing != doc::Standing::ranked) continue;
    best = std::min(best, j.candidate.target_s->value);
    if (j.candidate.strategy == current) in_use = j.candidate.target_s->value;
  }
  std::vector<std::size_t> some;
  if (best / in_use >= 1 - options.least_gain) return some;
  for (std::size_t i = 0; i < judged.size(); ++i) {
    const doc::Candidate& c = judged[i].candidate;
    if (c.standing == doc::Standing::ranked &&
        (c.strategy == current || best >= c.target_s->value * (1 - options.least_gain)))
      some.push_back(i);
  }
  return some;
}

double key_of(const doc::Candidate& c) {
  if (c.target_s) return c.target_s->value;
  return c.step_s ? c.step_s->value : 0;
}

// The simulator is asked along one quantity, bandwidth or compression ratio, until the answer
// changes. The change is then bracketed by bisection, in the geometric middle, since both
// quantities span decades.
//
// An example: at 10 Gbit/s ddp wins. Going up in factors of sqrt(2), ddp wins at 14.1 and another
// strategy at 20 Gbit/s. The bisection asks at 16.8, 15.4 and so on, until the bracket is within 1
// %. A run at a rate that was asked before is taken from `known`.

constexpr double kWidth = 1.01, kReach = 1000, kMostRatio = 1e4;
const double kStride = std::sqrt(2.0);

// Halves (low, high) while it is wider than kWidth. `is_low(x)` holds at low and fails at high, and
// so it does for every bracket in between.
template <typename IsLow>
std::pair<double, double> bisect(double low, double high, IsLow is_low) {
  while (high / low > kWidth) {
    const double middle = std::sqrt(low * high);
    (is_low(middle) ? low : high) = middle;
  }
  return {low, high};
}

/// How often bisect() asks at most if high / low is this factor. Each question takes the square
/// root of the factor; the logarithm halves.
std::size_t halvings(double factor) {
  return static_cast<std::size_t>(std::ceil(std::log2(std::log(factor) / std::log(kWidth)))) + 1;
}

}  // namespace

void Progress::did_one() {
  const std::lock_guard lock(mutex_);
  ++done_;
  total_ = std::max(total_, done_);
  if (on_progress_) on_progress_(done_, total_);
}

// An example: 500 runs were expected and 120 are done when a part ends that needed 60 of 200 runs.
// The parts after it take 240 at most, so 360 are expected in all.
void Progress::expect(std::size_t runs) {
  const std::lock_guard lock(mutex_);
  total_ = done_ + runs;
  if (done_ > 0 && on_progress_) on_progress_(done_, total_);
}

Evaluator::Evaluator(const doc::Workload& workload, const doc::Cluster& cluster, int ranks,
                     const AdviseOptions& options, OnProgress on_progress)
    : workload_(workload),
      model_(doc::slowed_by(cluster, workload), options_of(std::nullopt, options.latency)),
      ranks_(ranks),
      options_(options),
      simulators_(workers_for(workload)),
      progress_(std::move(on_progress)) {}

// Without a bandwidth the Cluster's own network, whose curves are kept.
cost::CostModel Evaluator::model_at(std::optional<BytesPerSecond> bandwidth) const {
  return bandwidth ? model_.with(options_of(bandwidth, options_.latency)) : model_;
}

// Plans have no first step: advice is on the steps that repeat. A worker has its own simulator,
// whose memory it reuses.
Outcome Evaluator::run(const doc::Strategy& strategy, std::optional<BytesPerSecond> bandwidth,
                       std::size_t worker, Detail detail) {
  // Counts the run at its end, even if it throws.
  const std::unique_ptr<Progress, void (*)(Progress*)> counted(&progress_,
                                                               [](Progress* p) { p->did_one(); });
  const cost::CostModel model = model_at(bandwidth);
  Outcome outcome;
  const plan::Planner planner(strategy, cluster());
  outcome.plan = planner.plan(workload_, model, ranks_, {.first_step = false});
  outcome.traits = planner.traits();
  outcome.notes = planner.coding_caveats(workload_);
  outcome.coding_is_bound = planner.coding_is_bound();
  outcome.coding_spread = planner.coding_spread();
  if (detail == Detail::value)
    outcome.step_s.value = simulators_[worker].step_s(outcome.plan, model);
  else
    complete(outcome, bandwidth, worker);
  return outcome;
}

// The interval holds what is not known of collectives, of T_1 and of coding. Coding takes further
// simulations.
void Evaluator::complete(Outcome& outcome, std::optional<BytesPerSecond> bandwidth,
                         std::size_t worker) {
  const cost::CostModel model = model_at(bandwidth);
  const sim::SimResult result = simulators_[worker].simulate(outcome.plan, model);
  const sim::PredictedStep predicted = sim::predicted_step(
      result, outcome.plan, workload_, model, simulators_[worker], outcome.coding_spread);
  outcome.step_s = predicted.step_s;
  outcome.crowded_s = predicted.crowded_s;
  outcome.communication_s = result.communication_s;
}

// A rank that computes 1.2 times slower and is 5 ms late takes 125 ms for a step of 100 ms.
doc::Bounded slowest_rank_s(const Evaluator& evaluator) {
  const doc::Workload& workload = evaluator.workload();
  const auto slowest = [&](double alone) {
    double most = alone;
    for (const doc::RankSpeed& s : evaluator.cluster().rank_speeds)
      if (s.rank >= 0 && s.rank < evaluator.ranks())
        most = std::max(most, alone * s.compute_factor + s.delay_s);
    return most;
  };
  doc::Bounded s{slowest(workload.one_rank_step_s())};
  if (workload.step_low_s) s.low = slowest(*workload.step_low_s);
  if (workload.step_high_s) s.high = slowest(*workload.step_high_s);
  return s;
}

Judged judge(Evaluator& evaluator, const doc::Strategy& strategy,
             std::optional<BytesPerSecond> bandwidth, std::size_t worker, Detail detail) {
  Judged judged{{}, strategy, {}};
  doc::Candidate& c = judged.candidate;
  c.strategy = doc::to_text(strategy);
  c.family = family_of(strategy);
  try {
    judged.outcome = evaluator.run(strategy, bandwidth, worker, detail);
  } catch (const UsageError& e) {
    c.standing = doc::Standing::failed;
    c.trains = false;
    c.reason = e.what();
    return judged;
  }
  take_outcome(judged, evaluator);
  return judged;
}

std::vector<Judged> judge_all(Evaluator& evaluator, const std::vector<doc::Strategy>& strategies,
                              std::optional<BytesPerSecond> bandwidth, Detail detail) {
  std::vector<Judged> judged(strategies.size());
  side_by_side(strategies.size(), evaluator.workers(), [&](std::size_t i, std::size_t worker) {
    judged[i] = judge(evaluator, strategies[i], bandwidth, worker, detail);
  });
  return judged;
}

bool before(const doc::Candidate& a, const doc::Candidate& b) {
  if (a.standing != b.standing) return a.standing < b.standing;
  return key_of(a) < key_of(b);
}

doc::Bounded over(const doc::Candidate& a, const doc::Candidate& b) {
  const doc::Bounded &step = *a.step_s, &other = *b.step_s;
  const doc::Bounded steps = a.steps_to_target.value_or(doc::Bounded{1});
  const doc::Bounded others = b.steps_to_target.value_or(doc::Bounded{1});
  doc::Bounded ratio{a.target_s->value / b.target_s->value};
  const auto all = {step, other, steps, others};
  if (std::none_of(all.begin(), all.end(), [](const doc::Bounded& x) { return x.low || x.high; }))
    return ratio;
  const auto [least, most] =
      std::minmax({step.value / other.value, step.low_or_value() / other.low_or_value(),
                   step.high_or_value() / other.high_or_value()});
  ratio.low = least * steps.low_or_value() / others.high_or_value();
  ratio.high = most * steps.high_or_value() / others.low_or_value();
  return ratio;
}

doc::AdviceVerdict verdict_of(const doc::Candidate& current, const doc::Candidate& best,
                              double least_gain) {
  const doc::Bounded ratio = over(best, current);
  if (ratio.value >= 1 - least_gain) return doc::AdviceVerdict::do_nothing;
  if (ratio.high_or_value() >= 1) return doc::AdviceVerdict::inconclusive;
  return doc::AdviceVerdict::change;
}

// A change of convergence by an unknown factor has no time to target.
std::vector<doc::Strategy> rankable(std::vector<doc::Strategy> strategies,
                                    const AdviseOptions& options) {
  std::erase_if(strategies, [&options](const doc::Strategy& s) {
    return plan::traits_of(s).changes_convergence && !find_steps(options.steps, s);
  });
  return strategies;
}

std::string winner(const std::vector<Judged>& judged, const AdviseOptions& options) {
  const std::string current = doc::to_text(options.current);
  const doc::Candidate* best = nullptr;
  const doc::Candidate* in_use = nullptr;
  for (const Judged& j : judged) {
    const doc::Candidate& c = j.candidate;
    if (c.standing != doc::Standing::ranked) continue;
    if (!best || c.target_s->value < best->target_s->value) best = &c;
    if (c.strategy == current) in_use = &c;
  }
  if (!best) return "";
  // Only what is clearly better than the one in use is worth a change to it.
  const auto is_worth = [&](const doc::Candidate& c) {
    return !in_use || verdict_of(*in_use, c, options.least_gain) == doc::AdviceVerdict::change;
  };
  if (!is_worth(*best)) return current;
  for (const Judged& j : judged) {
    const doc::Candidate& c = j.candidate;
    if (c.standing == doc::Standing::ranked && &c != in_use && is_worth(c) &&
        best->target_s->value > c.target_s->value * (1 - options.least_gain))
      return c.strategy;
  }
  return best->strategy;
}

// All are run for the value alone first. Intervals cost more runs, and few candidates need theirs.
std::string winner(Evaluator& evaluator, const std::vector<doc::Strategy>& strategies,
                   std::optional<BytesPerSecond> bandwidth) {
  const AdviseOptions& options = evaluator.options();
  std::vector<Judged> judged =
      judge_all(evaluator, rankable(strategies, options), bandwidth, Detail::value);
  const std::vector<std::size_t> open = in_question(judged, options);
  side_by_side(open.size(), evaluator.workers(), [&](std::size_t i, std::size_t worker) {
    Judged& j = judged[open[i]];
    evaluator.complete(*j.outcome, bandwidth, worker);
    take_outcome(j, evaluator);
  });
  return winner(judged, options);
}

std::size_t most_bandwidth_runs(const std::vector<doc::Strategy>& strategies,
                                const AdviseOptions& options) {
  const auto strides = static_cast<std::size_t>(std::ceil(std::log(kReach) / std::log(kStride)));
  return (1 + 2 * (strides + halvings(kStride))) * rankable(strategies, options).size();
}

// On the way down the roles are swapped: the bracket's low end is the rate at which another
// strategy wins.
std::vector<doc::TurningPoint> bandwidth_turning_points(
    Evaluator& evaluator, const std::vector<doc::Strategy>& strategies) {
  const double here = evaluator.line_bytes_per_s();
  if (!(here > 0)) return {};
  std::map<double, std::string> known;
  const auto wins_at = [&](double rate) -> const std::string& {
    const auto [at, is_new] = known.try_emplace(rate);
    if (is_new) at->second = winner(evaluator, strategies, BytesPerSecond{rate});
    return at->second;
  };
  const std::string now = wins_at(here);
  std::vector<doc::TurningPoint> points;
  for (const double factor : {1 / kStride, kStride}) {
    double near = here;
    for (double far = here * factor; far > here / kReach && far < here * kReach; far *= factor) {
      if (wins_at(far) == now) {
        near = far;
        continue;
      }
      const bool down = factor < 1;
      const auto [low, high] = bisect(std::min(near, far), std::max(near, far),
                                      [&](double rate) { return (wins_at(rate) == now) != down; });
      points.push_back({"bandwidth_bit_per_s", low * kBitsPerByte, high * kBitsPerByte,
                        wins_at(low), wins_at(high)});
      break;
    }
  }
  return points;
}

std::size_t most_full_use_runs() { return 2 + halvings(kMostRatio); }

// Whatever is left at the highest ratio does not shrink with the bytes: latency, or waiting for
// late ranks.
std::optional<double> ratio_for_full_use(Evaluator& evaluator) {
  doc::Strategy coded{evaluator.options().current.exchange, {{std::string(plan::kCodec), {}}}};
  std::erase_if(coded.exchange.options, [](const auto& option) { return option.first == "wire"; });
  auto& settings = coded.extras.front().options;
  const double most = kFullUse * evaluator.workload().one_rank_step_s();
  const auto is_long = [&](double ratio) {
    settings = {{"ratio", fmt::format("{:.9g}", ratio)}};
    const Judged j = judge(evaluator, coded, evaluator.options().bandwidth);
    return !j.outcome || j.outcome->step_s.value > most;
  };
  if (is_long(kMostRatio)) return std::nullopt;
  return is_long(1) ? bisect(1, kMostRatio, is_long).second : 1;
}

}  // namespace linerate::advise
