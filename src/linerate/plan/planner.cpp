#include "linerate/plan/planner.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/plan/pass/compute.hpp"
#include "linerate/plan/pass/tensor_times.hpp"
#include "linerate/plan/step_border.hpp"

namespace linerate::plan {
namespace {

void join(Traits& whole, const Traits& part) {
  whole.plans_by = std::max(whole.plans_by, part.plans_by);
  whole.changes_convergence |= part.changes_convergence;
  whole.needs_summable |= part.needs_summable;
  whole.runs = whole.runs && part.runs;
  if (whole.why_not_train.empty()) whole.why_not_train = part.why_not_train;
}

Traits traits_of(const Traits& exchange, std::optional<DType> wire,
                 const std::vector<doc::Component>& behind) {
  Traits traits = exchange;
  traits.changes_convergence |= wire && size_of(*wire) < size_of(DType::f32);
  for (const doc::Component& component : behind) join(traits, extras().at(component.name).traits);
  return traits;
}

/// Any step may follow any other.
void join_all(const std::vector<StepBorder>& borders, doc::Plan& plan) {
  for (std::size_t from = 0; from < borders.size(); ++from)
    for (std::size_t to = 0; to < borders.size(); ++to)
      join_steps(borders[from], plan.variants[from], borders[to], plan.variants[to],
                 static_cast<std::int32_t>(to));
}

}  // namespace

struct Planner::Variant {
  std::string name;
  int ranks = 1;
  bool first_step = false, weighted = false;
  int phase = -1;
};

std::string weighted(std::string_view variant) { return std::string(variant) + "-weighted"; }

std::string in_phase(std::string_view variant, std::string_view phase) {
  return phase.empty() ? std::string(variant) : fmt::format("{}.{}", variant, phase);
}

void StepDraft::begin(doc::Plan& into, doc::TaskGraph& variant) {
  plan = &into;
  graph = &variant;
  tasks.clear();
  not_before.clear();
  forward.clear();
  ready.clear();
  backward_end = tail = flags_packed = last_checked = kNoTask;
  exchanges.clear();
  settling.clear();
  updates.clear();
}

Planner::Planner(const doc::Strategy& strategy, const doc::Cluster& cluster)
    : text_(doc::to_text(strategy)) {
  const ExchangeEntry& entry = exchanges().at(strategy.exchange.name);
  exchange_ = entry.make(strategy.exchange);
  form_.wire = exchange_->wire();
  traits_ = traits_of(entry.traits, form_.wire, strategy.extras);
  for (const doc::Component& component : strategy.extras) {
    if (codec_ || compression_)
      throw UsageError(fmt::format(
          "strategy {}: expected one codec or compressor, found {}; leave all but one out", text_,
          strategy.extras.size()));
    switch (extras().at(component.name).extra) {
      case Extra::codec:
        codec_ = Codec::parse(component, cluster);
        own_ratio_ = component.find("ratio") != nullptr;
        break;
      case Extra::automatic:
      case Extra::compressor:
        if (form_.wire)
          throw UsageError(fmt::format(
              "strategy {}: a compressor has a wire format of its own; leave wire= out", text_));
        compression_ = Compression::parse(component, cluster);
        own_ratio_ = true;
    }
  }
  if (codec_) form_.ratio = codec_->ratio, form_.gather = codec_->gather;
  if (!codec_ && form_.wire) codec_ = Codec::cast(*form_.wire, cluster);
}

void Planner::set_compression_ratio(double ratio) {
  if (own_ratio_)
    throw UsageError(fmt::format(
        "strategy {}: its compression has a ratio of its own; sweep codec, without ratio=", text_));
  if (!(ratio >= 1))
    throw UsageError(fmt::format("compression ratio: expected at least 1, found {}", ratio));
  form_.ratio = ratio;
  if (ratio == 1 && (!codec_ || codec_->is_cast)) return;
  if (!codec_ || codec_->is_cast) codec_ = Codec{};
  codec_->set_ratio(ratio);
  join(traits_, extras().at(kCodec).traits);
}

void Planner::add_variant(const doc::Workload& workload, const cost::CostModel& cost,
                          const Variant& variant, const PlanOptions& options, doc::TaskGraph& graph,
                          doc::Plan& plan, StepDraft& step) const {
  graph.clear();
  graph.name = variant.name;
  step.begin(plan, graph);
  const WireForm cut_by = compression_ ? compression_->typical_form(workload) : form_;
  const FusionInput fusion{workload, cost, cut_by, variant.ranks};
  if (variant.first_step)
    exchange_->fuse_first_step(fusion, {graph, step.not_before});
  else
    exchange_->fuse(fusion, {graph, step.not_before});
  const PassInput input{workload,
                        cost,
                        form_,
                        codec_ ? &*codec_ : nullptr,
                        compression_ ? &*compression_ : nullptr,
                        options.housekeeping ? &*options.housekeeping : nullptr,
                        exchange_->schedule(),
                        variant.ranks,
                        variant.first_step,
                        variant.weighted,
                        variant.phase};
  for (const auto pass : {add_compute, add_collect, add_flags, add_exchanges, split_exchanges,
                          add_codec, add_compression, add_housekeeping, add_update})
    pass(input, step);
  step.tasks.linearise(graph);
  if (variant.ranks > 1) add_tensor_times(cost.cluster().tensor_s, graph);
}

void Planner::plan_steady(const doc::Workload& workload, const cost::CostModel& cost, int ranks,
                          doc::Plan& plan) const {
  // A thread's own scratch: sweeps plan thousands of graphs.
  thread_local StepDraft step;
  static const PlanOptions plain;
  plan.ranks = ranks;
  plan.operations.clear();
  plan.groups.resize(1);
  plan.warm_up.clear();
  const compress::Phases phases = compression_ ? compression_->phases() : compress::Phases{};
  const auto cycle = static_cast<std::int32_t>(phases.cycle.size());
  plan.cycle.resize(phases.cycle.size());
  plan.variants.resize(phases.cycle.size());
  std::vector<StepBorder> borders;
  for (std::int32_t c = 0; c < cycle; ++c) {
    plan.cycle[static_cast<std::size_t>(c)] = c;
    const int phase = phases.count() - cycle + c;
    const bool alone = phases.count() == 1;
    const Variant variant{in_phase(kSteady, alone ? "" : phases.name(phase)), ranks, false, false,
                          alone ? -1 : phase};
    add_variant(workload, cost, variant, plain, plan.variants[static_cast<std::size_t>(c)], plan,
                step);
    if (!step.updates.empty()) borders.push_back(border_of(workload, step));
  }
  join_all(borders, plan);
}

namespace {

/// The variant of every step: the first one has its own, in the first phase.
void set_schedule(const compress::Phases& phases, std::int32_t each, std::int32_t first_step,
                  std::int32_t steady, bool has_first_step, doc::Plan& plan) {
  std::int32_t phase = 0;
  for (const compress::Phase& warm : phases.warm_up)
    plan.warm_up.insert(plan.warm_up.end(), static_cast<std::size_t>(warm.steps),
                        steady + each * phase++);
  plan.cycle.clear();
  for (std::size_t c = 0; c < phases.cycle.size(); ++c)
    plan.cycle.push_back(steady + each * phase++);
  if (!has_first_step) return;
  const bool warms_up = !plan.warm_up.empty();
  if (!warms_up) plan.warm_up.assign(phases.cycle.size(), 0);
  for (std::size_t s = 0; !warms_up && s < plan.warm_up.size(); ++s)
    plan.warm_up[s] = plan.cycle[s];
  plan.warm_up.front() = first_step;
}

}  // namespace

doc::Plan Planner::plan(const doc::Workload& workload, const cost::CostModel& cost, int ranks,
                        const PlanOptions& options) const {
  if (workload.gradients.empty())
    throw InputError(workload.name.empty() ? "workload" : workload.name,
                     "has no gradients: nothing to exchange");
  if (ranks < 1) throw UsageError(fmt::format("ranks: expected at least 1, found {}", ranks));
  doc::Plan plan;
  plan.strategy = text_;
  plan.workload = workload.name;
  plan.ranks = ranks;
  for (const doc::Gradient& g : workload.gradients) {
    plan.gradient_names.push_back(g.name);
    plan.gradient_layer.push_back(g.layer);
    if (compression_) plan.gradient_shapes.push_back({g.elements, g.rows});
  }
  for (const doc::Layer& l : workload.layers) plan.layer_names.push_back(l.name);
  std::vector<StepBorder> borders;
  const compress::Phases phases = compression_ ? compression_->phases() : compress::Phases{};
  // Returns the first variant's index: one a phase, and behind each its weighted one.
  const auto add = [&](std::string_view base, bool first_step) {
    const auto first = static_cast<std::int32_t>(plan.variants.size());
    for (int phase = 0; phase < phases.count(); ++phase) {
      const bool alone = phases.count() == 1;
      const std::string name = in_phase(base, alone ? "" : phases.name(phase));
      for (const bool differ : {false, true}) {
        if (differ && !options.housekeeping) continue;
        StepDraft step;
        plan.variants.emplace_back();
        const Variant variant{differ ? weighted(name) : name, ranks, first_step, differ,
                              alone ? -1 : phase};
        add_variant(workload, cost, variant, options, plan.variants.back(), plan, step);
        borders.push_back(border_of(workload, step));
      }
    }
    return first;
  };
  const std::int32_t first_steps = options.first_step ? add(kFirstStep, true) : 0;
  const std::int32_t steady = add(kSteady, false);
  set_schedule(phases, options.housekeeping ? 2 : 1, first_steps, steady, options.first_step, plan);
  join_all(borders, plan);
  doc::validate(plan);
  return plan;
}

std::optional<Compressed> Planner::compressed(const doc::Workload& workload) const {
  const std::int64_t dense = workload.gradient_bytes();
  if (compression_) {
    const WireForm form = compression_->typical_form(workload);
    const Method& method = compression_->methods().front();
    return Compressed{form.ratio, form.gather, method.encode_s(dense), method.decode_s(dense)};
  }
  if (!codec_ || codec_->is_cast) return std::nullopt;
  return Compressed{form_.ratio, codec_->gather, codec_->encode_s(dense), codec_->decode_s(dense)};
}

std::vector<std::string> Planner::caveats(const doc::Workload& workload,
                                          const cost::CostModel& cost) const {
  std::vector<std::string> notes = exchange_->caveats(compression_ || (codec_ && !codec_->is_cast),
                                                      cost.cluster().contention.has_value());
  if (compression_ && !compression_->methods().front().cost)
    notes.push_back(
        fmt::format("{}: what encoding and decoding cost is not known; they count as free",
                    compression_->name()));
  if (exchange_->schedule() == Schedule::decoupled &&
      !(every_layer_timed(workload) && gradients_know_layers(workload)))
    notes.push_back(fmt::format(
        "{}: the Workload does not time its layers' forward pass; it is split over the buckets "
        "as backward is",
        text_.substr(0, text_.find_first_of("(+"))));
  if (!workload.step_s && !workload.forward_s)
    notes.push_back(
        "the Workload knows neither its step nor its forward time: only backward, "
        "update and exchange are in the prediction");
  return notes;
}

Traits traits_of(const doc::Strategy& strategy) {
  const ExchangeEntry& entry = exchanges().at(strategy.exchange.name);
  return traits_of(entry.traits, entry.make(strategy.exchange)->wire(), strategy.extras);
}

doc::Plan make_plan(const doc::Workload& workload, const doc::Cluster& cluster,
                    const doc::Strategy& strategy, int ranks, const PlanOptions& options) {
  const Planner planner(strategy, cluster);
  if (options.cost) return planner.plan(workload, *options.cost, ranks, options);
  return planner.plan(workload, cost::CostModel(cluster), ranks, options);
}

}  // namespace linerate::plan
