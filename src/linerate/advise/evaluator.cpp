// One strategy at one bandwidth: planned, simulated, and if it is asked for completed with
// intervals. A search asks for hundreds of values and completes only what it shows, as an interval
// takes more simulations.
#include "linerate/advise/evaluator.hpp"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "linerate/doc/step_speed.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/sim/simulator.hpp"

namespace linerate::advise {
namespace {

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
                     std::optional<Seconds> latency, OnProgress on_progress)
    : workload_(workload),
      model_(doc::slowed_by(cluster, workload), options_of(std::nullopt, latency)),
      ranks_(ranks),
      latency_(latency),
      simulators_(workers_for(workload)),
      progress_(std::move(on_progress)) {}

// Without a bandwidth the Cluster's own network, whose curves are kept.
cost::CostModel Evaluator::model_at(std::optional<BytesPerSecond> bandwidth) const {
  return bandwidth ? model_.with(options_of(bandwidth, latency_)) : model_;
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

}  // namespace linerate::advise
