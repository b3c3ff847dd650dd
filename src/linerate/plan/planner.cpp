#include "linerate/plan/planner.hpp"

#include <fmt/format.h>

#include "linerate/core/error.hpp"
#include "linerate/plan/exchange_registry.hpp"
#include "linerate/plan/step_graph.hpp"

namespace linerate::plan {
namespace {

bool layers_are_timed(const doc::Workload& workload) {
  return !workload.layers.empty() && workload.layers.front().forward_s.has_value() &&
         !workload.gradients.empty() && workload.gradients.front().layer >= 0;
}

}  // namespace

Planner::Planner(const doc::Strategy& strategy, const doc::Cluster& cluster)
    : text_(doc::to_text(strategy)),
      name_(strategy.exchange.name),
      exchange_(exchanges().at(strategy.exchange.name)(strategy.exchange)) {
  payload_.wire = exchange_->wire();
  for (const doc::Component& component : strategy.extras) {
    switch (extras().at(component.name)) {
      case Extra::codec:
        if (codec_) throw UsageError(fmt::format("strategy {}: codec is given twice", text_));
        codec_ = Codec::parse(component, cluster);
        own_ratio_ = component.find("ratio") != nullptr;
    }
  }
  if (codec_) payload_.ratio = codec_->ratio, payload_.gather = codec_->gather;
}

void Planner::set_compression_ratio(double ratio) {
  if (own_ratio_)
    throw UsageError(fmt::format(
        "strategy {}: its codec has a ratio already; leave ratio= out to sweep it", text_));
  if (!(ratio >= 1))
    throw UsageError(fmt::format("compression ratio: expected at least 1, found {}", ratio));
  payload_.ratio = ratio;
  if (codec_) codec_->ratio = ratio;
}

void Planner::plan_steady(const doc::Workload& workload, const cost::CostModel& cost, int ranks,
                          doc::TaskGraph& graph) const {
  graph.clear();
  std::vector<double> not_before;
  exchange_->fuse({workload, cost, payload_, ranks}, {graph, not_before});
  build(workload, ranks, graph, not_before);
}

void Planner::build(const doc::Workload& workload, int ranks, doc::TaskGraph& graph,
                    std::span<const double> not_before) const {
  const StepGraphInput input{workload, payload_, codec_, not_before, ranks};
  if (exchange_->schedule() == Schedule::decoupled)
    build_decoupled(input, graph);
  else
    build_overlapped(input, exchange_->schedule(), graph);
}

doc::Plan Planner::plan(const doc::Workload& workload, const cost::CostModel& cost, int ranks,
                        bool first_step) const {
  if (workload.gradients.empty())
    throw InputError(workload.name.empty() ? "workload" : workload.name,
                     "has no gradients: nothing to exchange");
  if (ranks < 1) throw UsageError(fmt::format("ranks: expected at least 1, found {}", ranks));
  doc::Plan plan;
  plan.strategy = text_;
  plan.workload = workload.name;
  plan.ranks = ranks;
  if (codec_) plan.cost_keys = {fmt::format("codec(ratio={})", payload_.ratio)};
  for (const doc::Gradient& g : workload.gradients) plan.gradient_names.push_back(g.name);
  for (const doc::Layer& l : workload.layers) plan.layer_names.push_back(l.name);
  doc::TaskGraph first;
  std::vector<double> not_before;
  if (first_step &&
      exchange_->fuse_first_step({workload, cost, payload_, ranks}, {first, not_before})) {
    build(workload, ranks, first, not_before);
    first.name = "first-step";
    plan.variants.push_back(std::move(first));
    plan.warm_up = {0};
    plan.cycle = {1};
  }
  doc::TaskGraph& steady = plan.variants.emplace_back();
  plan_steady(workload, cost, ranks, steady);
  steady.name = "steady";
  doc::validate(plan);
  return plan;
}

std::vector<std::string> Planner::caveats(const doc::Workload& workload,
                                          const cost::CostModel& cost) const {
  std::vector<std::string> notes;
  if (name_ == "optimal" && codec_)
    notes.push_back("optimal: encoding delays readiness, which the search does not see");
  if (name_ == "optimal" && cost.cluster().contention)
    notes.push_back(
        "optimal: contention makes transfer times depend on time; the search is exact "
        "only without it");
  if (exchange_->schedule() == Schedule::decoupled && !layers_are_timed(workload))
    notes.push_back(
        "dear: the Workload does not time its layers' forward pass; it is split over the buckets "
        "as backward is");
  if (!workload.step_s && !workload.forward_s)
    notes.push_back(
        "the Workload knows neither its step nor its forward time: only backward, "
        "update and exchange are in the prediction");
  return notes;
}

doc::Plan make_plan(const doc::Workload& workload, const doc::Cluster& cluster,
                    const doc::Strategy& strategy, int ranks, const PlanOptions& options) {
  const Planner planner(strategy, cluster);
  if (options.cost) return planner.plan(workload, *options.cost, ranks, options.first_step);
  return planner.plan(workload, cost::CostModel(cluster), ranks, options.first_step);
}

}  // namespace linerate::plan
