#include "linerate/replan/run_planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "linerate/calibrate/quick_probe.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/statistics.hpp"

namespace linerate::replan {
namespace {

/// Strategies that ignore costs still get a Cluster to read.
doc::Cluster nominal_cluster(int ranks) {
  doc::Cluster cluster;
  cluster.name = "nominal";
  cluster.source = "no measurement: this strategy plans by size alone";
  cluster.ranks = ranks;
  cluster.network = {.bandwidth_bytes_per_s = 1.25e9, .latency_s = 50e-6};
  return cluster;
}

/// Beside gradients and what stands for them: flags, buffers, counts.
bool is_bookkeeping(doc::Content content) {
  return content == doc::Content::flags || content == doc::Content::buffers ||
         content == doc::Content::samples || content == doc::Content::counts;
}

/// What the plan moves gradients, factors and inverses with.
std::vector<Collective> collectives_of(const doc::Plan& plan) {
  std::vector<Collective> kinds;
  for (const doc::TaskGraph& graph : plan.variants)
    for (const doc::Task& task : graph.tasks) {
      if (!is_communication(task.kind)) continue;
      if (is_bookkeeping(graph.payloads[static_cast<std::size_t>(task.first)].content)) continue;
      const Collective kind = collective_of(task.kind);
      if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
    }
  return kinds;
}

/// Per parameter the median over the steps that had it; negative where none had.
std::vector<double> medians(const std::vector<std::vector<double>>& window) {
  std::vector<double> result;
  for (std::size_t p = 0; p < window.front().size(); ++p) {
    std::vector<double> seen;
    for (const std::vector<double>& step : window)
      if (step[p] >= 0) seen.push_back(step[p]);
    result.push_back(seen.empty() ? -1 : median(seen));
  }
  return result;
}

}  // namespace

RunPlanner::RunPlanner(comm::Communicator& communicator, std::vector<PlannedParameter> parameters,
                       Options options)
    : communicator_(communicator),
      parameters_(std::move(parameters)),
      options_(std::move(options)),
      traits_(plan::traits_of(options_.strategy)) {
  if (!traits_.runs.train)
    throw UsageError(
        fmt::format("strategy {}: it cannot train: {}; simulate it with linerate whatif",
                    doc::to_text(options_.strategy), traits_.why_not_train));
  workload_.name = "training";
  workload_.source = "linerate::torch_adapter::DataParallel";
  const auto count = static_cast<std::int32_t>(parameters_.size());
  for (std::int32_t p = count - 1; p >= 0; --p) workload_.gradients.push_back(gradient_of(p, 0));
  if (options_.second_order) {
    // Each a task of its own, so that a factor can stand in front of its layer.
    for (const std::string& name : options_.second_order->layers)
      workload_.layers.push_back({.name = name, .forward_s = 0});
    workload_.blocks = options_.second_order->blocks;
  }
  make_plan();
}

doc::Gradient RunPlanner::gradient_of(std::int32_t p, double ready_s) const {
  const PlannedParameter& parameter = parameters_[static_cast<std::size_t>(p)];
  return {.name = parameter.name,
          .elements = parameter.elements,
          .dtype = parameter.dtype,
          .layer = parameter.layer,
          .registration = p,
          .ready_s = ready_s,
          .rows = parameter.rows};
}

bool RunPlanner::after_step(std::span<const double> ready_s) {
  ++steps_;
  if (settled_) return false;
  const bool first = steps_ == 1;
  if (!first) window_.emplace_back(ready_s.begin(), ready_s.end());
  const int measured = plans_by(plan::PlansBy::times) ? options_.measured_steps : 0;
  const bool last = steps_ == 1 + measured;
  if (!first && !last) return false;
  if (first && plans_by(plan::PlansBy::cost) && !options_.cluster)
    options_.cluster =
        calibrate::quick_probe(communicator_, workload_.gradient_bytes(), collectives_of(*plan_));
  agree_on_order(first ? std::vector<double>(ready_s.begin(), ready_s.end()) : medians(window_));
  settled_ = last;
  window_.clear();
  if (!plans_by(plan::PlansBy::order)) return false;  // no order is better than another
  make_plan();
  return true;
}

/// Order of rank 0; times are means over ranks, never decreasing. A parameter without a time comes
/// last, in the order of the plan before.
void RunPlanner::agree_on_order(std::vector<double> ready_s) {
  std::vector<std::int32_t> order = order_;
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const double x = ready_s[static_cast<std::size_t>(a)], y = ready_s[static_cast<std::size_t>(b)];
    return (x >= 0) != (y >= 0) ? x >= 0 : x < y;
  });
  const auto count = static_cast<std::int64_t>(order.size());
  communicator_.broadcast({order.data(), {count}, DType::i32}, 0, "gradient order")->wait();
  std::vector<double> sums(ready_s);
  for (double& s : sums) s = std::max(s, 0.0);
  communicator_
      .all_reduce({sums.data(), {count}, DType::f64}, comm::Reduce::sum, "gradient ready times")
      ->wait();
  workload_.gradients.clear();
  double latest = 0;
  for (const std::int32_t p : order) {
    latest = std::max(latest, sums[static_cast<std::size_t>(p)] / communicator_.size());
    workload_.gradients.push_back(gradient_of(p, latest));
  }
  workload_.backward_s = latest;
}

/// With the first step's variants: a step may have to be run again by them.
void RunPlanner::make_plan() {
  order_.clear();
  for (const doc::Gradient& g : workload_.gradients) order_.push_back(g.registration);
  doc::Cluster cluster = options_.cluster.value_or(nominal_cluster(communicator_.size()));
  if (options_.second_order && options_.second_order->cost && !cluster.second_order)
    cluster.second_order = options_.second_order->cost;
  plan_ = std::make_shared<const doc::Plan>(plan::make_plan(
      workload_, cluster, options_.strategy, communicator_.size(),
      {.first_step = true, .housekeeping = plan::Housekeeping{options_.buffer_bytes}}));
}

}  // namespace linerate::replan
