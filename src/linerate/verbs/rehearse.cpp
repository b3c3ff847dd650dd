// A rehearsal next to its prediction. The measured side runs the Plan with real messages and
// computation that waits. The predicted side simulates the same Plan, priced without contention and
// without late ranks, because a wait neither slows down nor is slowed.
#include "linerate/verbs/rehearse.hpp"

#include <fmt/format.h>

#include <utility>

#include "linerate/calibrate/fit.hpp"
#include "linerate/comm/fingerprint.hpp"
#include "linerate/cost/collective_times.hpp"
#include "linerate/cost/estimate.hpp"
#include "linerate/cost/network_kinds.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/sim/simulate.hpp"

namespace linerate::verbs {
namespace {

// The Cluster as a rehearsal sees it.
doc::Cluster without_contention(doc::Cluster cluster) {
  cluster.contention.reset();
  cluster.rank_speeds.clear();
  return cluster;
}

/// The options with which whatif and advise price collectives that nobody measured.
cost::CostOptions prices_at(std::optional<BytesPerSecond> bandwidth) {
  cost::CostOptions options;
  options.all_reduce = cost::kRingOrTree;
  options.bandwidth = bandwidth;
  return options;
}

// Predicts the Plan's Timeline and adds notes. The one-rank step is the Plan's own computation.
void predict(const PricedPlan& priced, Rehearsed& r) {
  r.predicted = sim::predicted_timeline(*r.plan, doc::Workload{}, *priced.model);
  r.predicted->one_rank_step_s = exec::computation_s(*r.plan);
  const auto width_of = [&](const doc::Cluster& known) {
    const cost::CostModel model(known, priced.model->options());
    const sim::SimResult result = sim::simulate(*r.plan, model);
    return result.step().high_or_value() - result.step().low_or_value();
  };
  if (std::string note = cost::nominal_note(priced.model->cluster(), r.plan->ranks, width_of);
      !note.empty())
    r.notes.insert(r.notes.begin(), std::move(note));
  for (std::string& note : cost::extrapolation_notes(*priced.model, r.plan->ranks))
    r.notes.push_back(std::move(note));
}

}  // namespace

// Rank 0's fit is sent to all, so that rounding cannot make plans differ.
doc::Cluster probe_network(comm::Communicator& communicator,
                           const calibrate::CollectiveProbeOptions& options) {
  doc::Cluster cluster =
      calibrate::fit_cluster(calibrate::probe_collectives(communicator, options).tables, {});
  cluster.name = fmt::format("{} ranks over {}", communicator.size(), communicator.transport());
  return doc::cluster_from_json(
      comm::broadcast_text(communicator, doc::to_json(cluster), "cluster"), "the probed network");
}

PricedPlan with_prices(doc::Plan plan, const std::optional<doc::Cluster>& cluster) {
  PricedPlan priced{std::make_shared<const doc::Plan>(std::move(plan)), {}, {}};
  if (cluster) priced.model.emplace(without_contention(*cluster), prices_at({}));
  return priced;
}

PricedPlan plan_strategy(comm::Communicator& communicator, const doc::Workload& workload,
                         const doc::Cluster& cluster, const doc::Strategy& strategy,
                         std::optional<BytesPerSecond> bandwidth) {
  PricedPlan planned;
  comm::require_success(communicator, "planning", [&] {
    planned.model.emplace(without_contention(cluster), prices_at(bandwidth));
    const plan::Planner planner(strategy, planned.model->cluster());
    planned.plan = std::make_shared<const doc::Plan>(
        planner.plan(workload, *planned.model, communicator.size(), {}));
    planned.notes = planner.coding_caveats(workload);
  });
  return planned;
}

Rehearsed rehearse(comm::Communicator& communicator, const PricedPlan& priced,
                   const exec::RehearsalOptions& options) {
  Rehearsed r;
  r.plan = priced.plan;
  r.measured = exec::rehearse(communicator, priced.plan, options);
  if (communicator.rank() != 0) return r;
  r.notes = priced.notes;
  if (priced.model) predict(priced, r);
  // Without a prediction the measured Timeline stands in, and the figures that would come from it
  // are dropped.
  const doc::Timeline& predicted = r.predicted ? *r.predicted : r.measured;
  compare::Comparison joined = compare::compare(predicted, r.measured, {.warm_up = 0});
  r.step = std::move(joined.step);
  r.exposed = std::move(joined.exposed);
  if (!r.predicted)
    for (compare::ComparedRow* row : {&r.step, &r.exposed}) {
      row->predicted_s.reset();
      row->noise.reset();
    }
  return r;
}

}  // namespace linerate::verbs
