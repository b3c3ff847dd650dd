// Makes Plans of one Workload for one network after another. A Plan has a variant for each kind of
// step. Kinds differ in the compressor's phase, in what K-FAC updates and in the other collectives.
// In training each has a weighted variant, too. What does not depend on the network is made once:
// names, schedule, and the computation. For each Plan and each variant, make() copies the
// computation, lets the exchange cut buckets, and runs the passes of passes.hpp over them. At last
// the draft becomes a TaskGraph.
#include "linerate/plan/plan_series.hpp"

#include <fmt/format.h>

#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/plan/fuse_turns.hpp"
#include "linerate/plan/pass/step_end.hpp"
#include "linerate/plan/pass/tensor_times.hpp"

namespace linerate::plan {
namespace {

/// Adds edges between any two variants, because any step may follow any other.
void join_all(const std::vector<StepBorder>& borders, doc::Plan& plan) {
  for (std::size_t from = 0; from < borders.size(); ++from)
    for (std::size_t to = 0; to < borders.size(); ++to)
      join_steps(borders[from], plan.variants[from], borders[to], static_cast<std::int32_t>(to));
}

/// The intervals, in steps, of the Workload's other collectives. Training sends none of them.
std::vector<int> every_of(const doc::Workload& workload, const PlanOptions& options) {
  std::vector<int> every;
  if (!options.housekeeping)
    for (const doc::OtherCollective& o : workload.other_collectives) every.push_back(o.every);
  return every;
}

}  // namespace

/// One Plan of the series.
struct PlanSeries::Request {
  const cost::CostModel& cost;
  int ranks = 1;
  std::optional<Curvature> curvature = {};

  /// Null if it has no K-FAC.
  const Curvature* preconditions() const { return curvature ? &*curvature : nullptr; }
};

std::string weighted(std::string_view variant) {
  return std::string(variant).append(doc::kWeighted);
}

std::string in_phase(std::string_view variant, std::string_view phase) {
  return phase.empty() ? std::string(variant) : fmt::format("{}.{}", variant, phase);
}

/// A series of one.
doc::Plan Planner::plan(const doc::Workload& workload, const cost::CostModel& cost, int ranks,
                        const PlanOptions& options) const {
  PlanSeries series(*this, workload, options);
  series.plan(cost, ranks);
  return std::move(series).last();
}

PlanSeries::PlanSeries(const Planner& planner, const doc::Workload& workload,
                       const PlanOptions& options)
    : planner_(planner),
      workload_(workload),
      options_(options),
      kinds_(planner.kinds(every_of(workload, options))) {
  if (workload.gradients.empty())
    throw InputError(workload.name.empty() ? "workload" : workload.name,
                     "has no gradients: nothing to exchange");
  planner.check_turns(workload);
  prepared_ = planner.exchange_->prepare(workload);
  plan_.strategy = planner.text();
  plan_.workload = workload.name;
  set_names();
  const std::int32_t first_steps = options.first_step ? add_variants(kFirstStep, true) : 0;
  const std::int32_t steady = add_variants(kSteady, false);
  set_schedule(first_steps, steady);
  computation_.begin(plan_, plan_.variants.front());
  add_compute(workload, options.housekeeping.has_value(), computation_);
  operations_ = plan_.operations;
}

void PlanSeries::set_names() {
  for (const doc::Gradient& g : workload_.gradients) {
    plan_.gradient_names.push_back(g.name);
    plan_.gradient_layer.push_back(g.layer);
    if (planner_.compression_) plan_.gradient_shapes.push_back({g.elements, g.rows.value_or(1)});
  }
  for (const doc::Layer& l : workload_.layers) plan_.layer_names.push_back(l.name);
}

/// Adds a variant for each kind of step. In training each is followed by its weighted one, for
/// steps in which batches of ranks differ in size. Returns the index of the first.
std::int32_t PlanSeries::add_variants(std::string_view base, bool first_step) {
  const auto first = static_cast<std::int32_t>(variants_.size());
  for (std::size_t k = 0; k < kinds_.kinds.size(); ++k) {
    const std::string name = in_phase(base, kinds_.kinds[k].name);
    for (const bool differ : {false, true}) {
      if (differ && !options_.housekeeping) continue;
      variants_.push_back({static_cast<std::int32_t>(k), first_step, differ});
      plan_.variants.emplace_back().name = differ ? weighted(name) : name;
    }
  }
  return first;
}

/// Sets the variant of every step. `each` is the number of variants of a kind. The first step has a
/// variant of its own, of the first kind: the order of gradients is not known yet.
void PlanSeries::set_schedule(std::int32_t first_steps, std::int32_t steady) {
  const std::int32_t each = options_.housekeeping ? 2 : 1;
  for (const std::int32_t kind : kinds_.warm_up) plan_.warm_up.push_back(steady + each * kind);
  plan_.cycle.clear();
  for (const std::int32_t kind : kinds_.cycle) plan_.cycle.push_back(steady + each * kind);
  if (!options_.first_step) return;
  if (plan_.warm_up.empty()) plan_.warm_up = plan_.cycle;
  plan_.warm_up.front() = first_steps;
}

const doc::Plan& PlanSeries::plan(const cost::CostModel& cost, int ranks) {
  if (ranks < 1) throw UsageError(fmt::format("ranks: expected at least 1, found {}", ranks));
  const Request request{cost, ranks, planner_.curvature(workload_, cost, ranks)};
  make_steps(request, *planner_.exchange_);
  if (planner_.may_send_at_once() && ranks > 1) keep_what_ends_first(request);
  join_all(borders_, plan_);
  doc::validate(plan_);
  return plan_;
}

// Makes every variant with this exchange, and remembers where each one ends.
void PlanSeries::make_steps(const Request& request, const Exchange& exchange) {
  plan_.ranks = request.ranks;
  plan_.operations = operations_;
  plan_.groups.resize(1);
  if (request.curvature) plan_.blocks = shapes_of(*request.curvature);
  const bool decoupled = exchange.schedule() == Schedule::decoupled;
  borders_.resize(decoupled ? variants_.size() : 0);
  end_s_.clear();
  for (std::size_t v = 0; v < variants_.size(); ++v) {
    make(request, exchange, variants_[v], plan_.variants[v]);
    if (decoupled) find_border(workload_, step_, request.preconditions(), borders_[v]);
  }
}

/// Plans once more with gradients that leave in one message after backward, and keeps the sooner of
/// the two Plans. K-FAC can make this quicker: its factors also use the network under backward. All
/// steps use the same buckets, since training lays out their memory anew when buckets change.
void PlanSeries::keep_what_ends_first(const Request& request) {
  const double own_s = mean_of_cycle();
  if (other_.variants.empty()) other_ = plan_;
  std::swap(plan_, other_);
  make_steps(request, *planner_.at_once_);
  if (!(mean_of_cycle() < own_s)) std::swap(plan_, other_);
}

double PlanSeries::mean_of_cycle() const {
  double all_s = 0;
  for (const std::int32_t v : plan_.cycle) all_s += end_s_[to_index(v)];
  return all_s / static_cast<double>(plan_.cycle.size());
}

/// `graph` is one of the Plan's and keeps its name.
void PlanSeries::make(const Request& request, const Exchange& exchange, const Variant& variant,
                      doc::TaskGraph& graph) {
  const Planner& p = planner_;
  graph.next_step.clear();
  graph.payloads.clear();
  graph.members.clear();
  step_ = computation_;
  step_.graph = &graph;
  const WireForm cut_by = p.compression_ ? p.compression_->typical_form(workload_) : p.form_;
  const FusionInput fusion{workload_, request.cost, cut_by, request.ranks, prepared_.get()};
  fuse_turns(exchange, fusion, variant.first_step, {graph, step_.not_before});
  const StepKind& kind = kinds_.kinds[to_index(variant.kind)];
  const PassInput input{workload_,
                        request.cost,
                        p.form_,
                        p.codec_ ? &*p.codec_ : nullptr,
                        p.compression_ ? &*p.compression_ : nullptr,
                        options_.housekeeping ? &*options_.housekeeping : nullptr,
                        request.preconditions(),
                        exchange.schedule(),
                        request.ranks,
                        variant.first_step,
                        variant.weighted,
                        kind.phase,
                        kind.update,
                        kind.in_period};
  for (const auto pass : {add_collect, add_flags, add_exchanges, split_exchanges, add_codec,
                          add_compression, add_turns, add_housekeeping, add_factors, add_inverses,
                          add_preconditioning, add_update, add_other_collectives})
    pass(input, step_);
  if (p.may_send_at_once()) end_s_.push_back(step_end_s(input, step_));
  step_.tasks.linearise(graph);
  if (request.ranks > 1) add_tensor_times(request.cost.cluster().tensor_s, graph);
}

}  // namespace linerate::plan
