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

/// The next step's updates begin under collectives that a whole gradient waits for.
void check_decoupled(const Kfac& kfac, const std::string& strategy) {
  if (kfac.lm)
    throw UsageError(fmt::format(
        "strategy {}: Levenberg-Marquardt needs every direction before the first update, and this "
        "exchange updates layer by layer; take another exchange, or leave lm=on out",
        strategy));
  if (kfac.clips)
    throw UsageError(fmt::format(
        "strategy {}: the KL clip needs every gradient before the first update, and "
        "this exchange updates layer by layer; say kfac(..., clip=off), or take another "
        "exchange",
        strategy));
  if (kfac.owns_layers())
    throw UsageError(
        fmt::format("strategy {}: directions would travel under the next forward pass, in front of "
                    "each update; "
                    "take kfac(spd), kfac(mpd) or kfac(d), or another exchange",
                    strategy));
}

/// Any step may follow any other.
void join_all(const std::vector<StepBorder>& borders, doc::Plan& plan) {
  for (std::size_t from = 0; from < borders.size(); ++from)
    for (std::size_t to = 0; to < borders.size(); ++to)
      join_steps(borders[from], plan.variants[from], borders[to], static_cast<std::int32_t>(to));
}

}  // namespace

/// What a Plan is made of, the same for all of its variants.
struct Planner::Job {
  const doc::Workload& workload;
  const cost::CostModel& cost;
  const PlanOptions& options;
  int ranks = 1;
  std::optional<Curvature> curvature = {};

  /// Null where nothing does.
  const Curvature* preconditions() const { return curvature ? &*curvature : nullptr; }
};

struct Planner::Variant {
  std::string name;
  const StepKind& kind;
  bool first_step = false, weighted = false;
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
  backward_end = tail = flags_packed = last_checked = samples = damped = kNoTask;
  exchanges.clear();
  for (auto* const handles : {&forward, &backward, &ready, &settling, &updates, &averages,
                              &inverted, &inverse_sent, &preconditioned})
    handles->clear();
  averaged_by.clear();
  arrivals = {};
  placement = {};
}

Handle StepDraft::append_compute(const doc::Task& task) {
  return tail == kNoTask ? tasks.append(task) : tasks.insert_before(tail, task);
}

Handle StepDraft::append_collective(const doc::Task& task) {
  const bool decoupled = !exchanges.empty() && exchanges.back().receive != exchanges.back().send;
  return decoupled ? tasks.insert_before(exchanges.back().receive, task) : tasks.append(task);
}

std::int32_t StepDraft::add_payload(const doc::Payload& payload) {
  graph->payloads.push_back(payload);
  return static_cast<std::int32_t>(graph->payloads.size() - 1);
}

doc::Task StepDraft::broadcast_of(doc::Payload payload, std::span<const std::int32_t> members,
                                  std::int32_t group, std::int32_t root) {
  payload.begin = static_cast<std::int32_t>(graph->members.size());
  graph->members.insert(graph->members.end(), members.begin(), members.end());
  payload.end = static_cast<std::int32_t>(graph->members.size());
  payload.padded = payload.elements;
  doc::Task task;
  task.kind = doc::TaskKind::broadcast;
  task.resource = doc::Resource::network;
  task.subject = doc::Subject::payloads;
  task.wire = payload.dtype;
  task.operation = plan->operation({"move", {}});
  task.group = group;
  task.root = root;
  task.bytes = payload.bytes();
  task.first = task.last = add_payload(payload);
  return task;
}

Planner::Planner(const doc::Strategy& given, const doc::Cluster& cluster) {
  const doc::Strategy strategy = with_exchange(given);
  text_ = doc::to_text(strategy);
  const ExchangeEntry& entry = exchanges().at(strategy.exchange.name);
  exchange_ = entry.make(strategy.exchange);
  form_.wire = exchange_->wire();
  traits_ = traits_of(entry.traits, form_.wire, strategy.extras);
  for (const doc::Component& component : strategy.extras) read_extra(component, cluster);
  if (codec_) form_.ratio = codec_->ratio, form_.gather = codec_->gather;
  if (!codec_ && form_.wire) codec_ = Codec::cast(*form_.wire, cluster);
  if (kfac_ && exchange_->schedule() == Schedule::decoupled) check_decoupled(*kfac_, text_);
}

void Planner::read_extra(const doc::Component& component, const doc::Cluster& cluster) {
  const Extra extra = extras().at(component.name).extra;
  if (extra == Extra::curvature) {
    if (kfac_)
      throw UsageError(
          fmt::format("strategy {}: expected kfac once; leave all but one out", text_));
    kfac_ = Kfac::parse(component);
    return;
  }
  if (codec_ || compression_)
    throw UsageError(fmt::format(
        "strategy {}: expected one codec or compressor, found more; leave all but one out", text_));
  if (extra == Extra::codec) {
    codec_ = Codec::parse(component, cluster);
    own_ratio_ = component.find("ratio") != nullptr;
    return;
  }
  if (form_.wire)
    throw UsageError(fmt::format(
        "strategy {}: a compressor has a wire format of its own; leave wire= out", text_));
  compression_ = Compression::parse(component, cluster);
  own_ratio_ = true;
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

std::optional<Curvature> Planner::curvature(const Job& job) const {
  if (!kfac_) return std::nullopt;
  return curvature_of(*kfac_, job.workload, job.cost, job.ranks, text_);
}

StepKinds Planner::kinds() const {
  return step_kinds(compression_ ? compression_->phases() : compress::Phases{}, kfac_);
}

void Planner::add_variant(const Job& job, const Variant& variant, doc::TaskGraph& graph,
                          doc::Plan& plan, StepDraft& step) const {
  const doc::Workload& workload = job.workload;
  graph.clear();
  graph.name = variant.name;
  step.begin(plan, graph);
  const WireForm cut_by = compression_ ? compression_->typical_form(workload) : form_;
  const FusionInput fusion{workload, job.cost, cut_by, job.ranks};
  if (variant.first_step)
    exchange_->fuse_first_step(fusion, {graph, step.not_before});
  else
    exchange_->fuse(fusion, {graph, step.not_before});
  const PassInput input{workload,
                        job.cost,
                        form_,
                        codec_ ? &*codec_ : nullptr,
                        compression_ ? &*compression_ : nullptr,
                        job.options.housekeeping ? &*job.options.housekeeping : nullptr,
                        job.preconditions(),
                        exchange_->schedule(),
                        job.ranks,
                        variant.first_step,
                        variant.weighted,
                        variant.kind.phase,
                        variant.kind.update};
  for (const auto pass : {add_compute, add_collect, add_flags, add_exchanges, split_exchanges,
                          add_codec, add_compression, add_housekeeping, add_damping, add_factors,
                          add_inverses, add_preconditioning, add_update})
    pass(input, step);
  step.tasks.linearise(graph);
  if (job.ranks > 1) add_tensor_times(job.cost.cluster().tensor_s, graph);
}

void Planner::plan_steady(const doc::Workload& workload, const cost::CostModel& cost, int ranks,
                          doc::Plan& plan) const {
  // A thread's own scratch: sweeps plan thousands of graphs.
  thread_local StepDraft step;
  static const PlanOptions plain;
  Job job{workload, cost, plain, ranks};
  job.curvature = curvature(job);
  plan.ranks = ranks;
  plan.operations.clear();
  plan.groups.resize(1);
  plan.blocks.clear();
  plan.warm_up.clear();
  const StepKinds kinds = this->kinds();
  // Those of the cycle, by their first step in it.
  std::vector<std::int32_t> used;
  plan.cycle.clear();
  for (const std::int32_t kind : kinds.cycle) {
    const auto at = std::find(used.begin(), used.end(), kind);
    plan.cycle.push_back(static_cast<std::int32_t>(at - used.begin()));
    if (at == used.end()) used.push_back(kind);
  }
  plan.variants.resize(used.size());
  std::vector<StepBorder> borders;
  for (std::size_t v = 0; v < used.size(); ++v) {
    const StepKind& kind = kinds.kinds[static_cast<std::size_t>(used[v])];
    add_variant(job, {in_phase(kSteady, kind.name), kind}, plan.variants[v], plan, step);
    if (!step.updates.empty()) borders.push_back(border_of(workload, step, job.preconditions()));
  }
  join_all(borders, plan);
}

namespace {

/// The variant of every step: the first one has its own, of the first kind.
void set_schedule(const StepKinds& kinds, std::int32_t each, std::int32_t first_step,
                  std::int32_t steady, bool has_first_step, doc::Plan& plan) {
  for (const std::int32_t kind : kinds.warm_up) plan.warm_up.push_back(steady + each * kind);
  plan.cycle.clear();
  for (const std::int32_t kind : kinds.cycle) plan.cycle.push_back(steady + each * kind);
  if (!has_first_step) return;
  if (plan.warm_up.empty()) plan.warm_up = plan.cycle;
  plan.warm_up.front() = first_step;
}

void set_names(const doc::Workload& workload, bool shapes, doc::Plan& plan) {
  for (const doc::Gradient& g : workload.gradients) {
    plan.gradient_names.push_back(g.name);
    plan.gradient_layer.push_back(g.layer);
    if (shapes) plan.gradient_shapes.push_back({g.elements, g.rows});
  }
  for (const doc::Layer& l : workload.layers) plan.layer_names.push_back(l.name);
}

}  // namespace

doc::Plan Planner::plan(const doc::Workload& workload, const cost::CostModel& cost, int ranks,
                        const PlanOptions& options) const {
  if (workload.gradients.empty())
    throw InputError(workload.name.empty() ? "workload" : workload.name,
                     "has no gradients: nothing to exchange");
  if (ranks < 1) throw UsageError(fmt::format("ranks: expected at least 1, found {}", ranks));
  Job job{workload, cost, options, ranks};
  job.curvature = curvature(job);
  doc::Plan plan;
  plan.strategy = text_;
  plan.workload = workload.name;
  plan.ranks = ranks;
  set_names(workload, compression_.has_value(), plan);
  if (job.curvature) plan.blocks = shapes_of(*job.curvature);
  std::vector<StepBorder> borders;
  const StepKinds kinds = this->kinds();
  // Returns the first variant's index: one a kind of step, and behind each its weighted one.
  const auto add = [&](std::string_view base, bool first_step) {
    const auto first = static_cast<std::int32_t>(plan.variants.size());
    for (const StepKind& kind : kinds.kinds) {
      const std::string name = in_phase(base, kind.name);
      for (const bool differ : {false, true}) {
        if (differ && !options.housekeeping) continue;
        StepDraft step;
        plan.variants.emplace_back();
        add_variant(job, {differ ? weighted(name) : name, kind, first_step, differ},
                    plan.variants.back(), plan, step);
        borders.push_back(border_of(workload, step, job.preconditions()));
      }
    }
    return first;
  };
  const std::int32_t first_steps = options.first_step ? add(kFirstStep, true) : 0;
  const std::int32_t steady = add(kSteady, false);
  set_schedule(kinds, options.housekeeping ? 2 : 1, first_steps, steady, options.first_step, plan);
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
                                          const cost::CostModel& cost, int ranks) const {
  const auto& contention = cost.cluster().contention;
  std::vector<std::string> notes = exchange_->caveats(compression_ || (codec_ && !codec_->is_cast),
                                                      contention && contention->any());
  if (compression_ && !compression_->methods().front().cost)
    notes.push_back(
        fmt::format("{}: what encoding and decoding cost is not known; they count as free",
                    compression_->name()));
  const bool casts = codec_ && codec_->is_cast && size_of(form_.wire.value()) < 4;
  if (casts && !(codec_->cost.encode_bytes_per_s > 0))
    notes.push_back(
        fmt::format("wire={0}: what casting costs is not known and counts as free; linerate "
                    "calibrate --codecs {1} measures it",
                    name_of(*form_.wire), Codec::cast_name(*form_.wire)));
  if (kfac_)
    for (std::string& note : caveats_of(*kfac_, workload, cost.cluster(), ranks))
      notes.push_back(std::move(note));
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

Traits traits_of(const doc::Strategy& given) {
  const doc::Strategy strategy = with_exchange(given);
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
