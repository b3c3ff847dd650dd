#include "linerate/advise/evaluator.hpp"

#include "linerate/plan/planner.hpp"
#include "linerate/sim/step_exposure.hpp"

namespace linerate::advise {
namespace {

cost::CostOptions options_of(std::optional<BytesPerSecond> bandwidth,
                             std::optional<Seconds> latency) {
  cost::CostOptions options;
  options.bandwidth = bandwidth;
  options.latency = latency;
  return options;
}

}  // namespace

Evaluator::Evaluator(const doc::Workload& workload, const doc::Cluster& cluster, int ranks,
                     std::optional<Seconds> latency)
    : workload_(workload),
      model_(cluster, options_of(std::nullopt, latency)),
      ranks_(ranks),
      latency_(latency) {}

cost::CostModel Evaluator::model_at(std::optional<BytesPerSecond> bandwidth) const {
  return bandwidth ? model_.with(options_of(bandwidth, latency_)) : model_;
}

Outcome Evaluator::run(const doc::Strategy& strategy, std::optional<BytesPerSecond> bandwidth) {
  const cost::CostModel model = model_at(bandwidth);
  Outcome outcome;
  const plan::Planner planner(strategy, cluster());
  outcome.plan = planner.plan(workload_, model, ranks_, {.first_step = false});
  outcome.traits = planner.traits();
  const sim::SimResult result = simulator_.simulate(outcome.plan, model);
  outcome.step_s = result.step();
  outcome.communication_s = result.communication_s;
  return outcome;
}

double Evaluator::exposed_communication_s(const Outcome& outcome,
                                          std::optional<BytesPerSecond> bandwidth) const {
  return sim::exposed_communication_s(outcome.plan, model_at(bandwidth));
}

}  // namespace linerate::advise
