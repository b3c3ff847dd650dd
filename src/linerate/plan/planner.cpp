// Reads a strategy: an exchange, and after each '+' a codec, a compressor or K-FAC. Components that
// contradict each other are refused here, before anything is planned. PlanSeries makes the Plans.
#include "linerate/plan/planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/step_speed.hpp"
#include "linerate/doc/validate.hpp"
#include "linerate/plan/codec.hpp"

namespace linerate::plan {
namespace {

constexpr std::string_view kAlone =
    "With such costs nothing is computed while a bucket is coded and sent, as with PyTorch's "
    "communication hooks. linerate calibrate --codecs measures your own";

// The whole plans by the most that one of its parts plans by, and trains if all its parts do. Every
// part can be simulated and rehearsed.
void join(Traits& whole, const Traits& part) {
  whole.plans_by = std::max(whole.plans_by, part.plans_by);
  whole.changes_convergence |= part.changes_convergence;
  whole.needs_summable |= part.needs_summable;
  whole.runs.train &= part.runs.train;
  if (whole.why_not_train.empty()) whole.why_not_train = part.why_not_train;
}

Traits traits_of(const Traits& exchange, std::optional<DType> wire,
                 const std::vector<doc::Component>& behind) {
  Traits traits = exchange;
  traits.changes_convergence |= wire && size_of(*wire) < size_of(DType::f32);
  for (const doc::Component& component : behind) join(traits, extras().at(component.name).traits);
  return traits;
}

/// Refuses K-FAC options under a decoupled exchange. The next step's updates begin under
/// collectives that a clip over the whole gradient, or directions of a layer's owner, would wait
/// for.
void check_decoupled(const Kfac& kfac, const std::string& strategy) {
  if (kfac.clips)
    throw UsageError(fmt::format(
        "strategy {}: the KL clip needs every gradient before the first update, and "
        "this exchange updates layer by layer; say kfac(..., clip=off), or take another "
        "exchange",
        strategy));
  if (kfac.owns_layers())
    throw UsageError(
        fmt::format("strategy {}: directions would travel during the next forward pass, before "
                    "each update; take kfac(spd), kfac(mpd) or kfac(d), or another exchange",
                    strategy));
}

// Makes Plans of one Workload for one network after another. A Plan has a variant for each kind of
// step. Kinds differ in the compressor's phase, in what K-FAC updates and in the other collectives.
// In training each has a weighted variant, too. What does not depend on the network is made once:
// names, schedule, and the computation. For each Plan and each variant, make() copies the
// computation, lets the exchange cut buckets, and runs the passes of passes.hpp over them. At last
// the draft becomes a TaskGraph.

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

// A cast of wire= is a codec too, unless a codec is given. K-FAC that searches its order may send
// gradients at once instead; whether it does is decided for each Plan.
Planner::Planner(const doc::Strategy& given, const doc::Cluster& cluster) {
  const doc::Strategy strategy = with_exchange(given);
  text_ = doc::to_text(strategy);
  const ExchangeEntry& entry = exchanges().at(strategy.exchange.name);
  exchange_ = entry.make(strategy.exchange);
  form_.wire = exchange_->wire();
  traits_ = traits_of(entry.traits, form_.wire, strategy.extras);
  for (const doc::Component& component : strategy.extras) read_extra(component, cluster);
  if (codec_) form_.ratio = codec_->ratio, form_.gather = codec_->gather;
  if (!codec_ && form_.wire) codec_ = CodecModel::cast(*form_.wire, cluster);
  if (kfac_ && exchange_->schedule() == Schedule::decoupled) check_decoupled(*kfac_, text_);
  if (kfac_ && kfac_->searches_order() && exchange_->schedule() == Schedule::overlapped)
    at_once_ = exchanges().at("bulk").make({"bulk", {}});
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
    codec_ = CodecModel::parse(component, cluster);
    own_ratio_ = component.find("ratio") != nullptr;
    return;
  }
  if (form_.wire)
    throw UsageError(fmt::format(
        "strategy {}: a compressor has a wire format of its own; leave wire= out", text_));
  compression_ = CompressionModel::parse(component, cluster);
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
  if (!codec_ || codec_->is_cast) codec_ = CodecModel{};
  codec_->set_ratio(ratio);
  join(traits_, extras().at(kCodec).traits);
}

void Planner::check_turns(const doc::Workload& workload) const {
  const bool decoupled = exchange_->schedule() == Schedule::decoupled;
  if (workload.turns() == 1 || (!kfac_ && !compression_ && !decoupled)) return;
  throw UsageError(
      fmt::format("strategy {}: {} trains {} models in turn, each updated before the next backward "
                  "pass, and {}; take an exchange such as ddp alone",
                  text_, workload.in_words(), workload.turns(),
                  decoupled ? "this exchange updates in the step that follows"
                            : "compressors and K-FAC are planned for one"));
}

std::optional<Compressed> Planner::compressed(const doc::Workload& workload) const {
  if (compression_) {
    const WireForm form = compression_->typical_form(workload);
    const Method& method = compression_->methods().front();
    const doc::CodedTensors coded = compression_->coded(workload);
    return Compressed{form.ratio, form.gather, method.encode_s(coded), method.decode_s(coded)};
  }
  const doc::CodedTensors dense{workload.gradient_bytes(),
                                static_cast<std::int64_t>(workload.gradients.size())};
  if (!codec_ || codec_->is_cast) return std::nullopt;
  return Compressed{form_.ratio, codec_->gather, codec_->cost.encode_s(dense),
                    codec_->cost.decode_s(dense)};
}

std::string Planner::coding_name() const {
  if (compression_) return compression_->name();
  return codec_ && !codec_->is_cast ? doc::to_text(codec_->operation) : std::string();
}

std::string Planner::left_dense(const doc::Workload& workload) const {
  return compression_ ? plan::left_dense(compression_->name(), workload) : std::string();
}

// What people should know of the price of coding; empty if it is this Cluster's own.
std::string Planner::coding_cost_caveat() const {
  if (compression_) {
    const Method& method = compression_->methods().front();
    return method.cost ? method.about_cost
                       : fmt::format(
                             "{}: it is not known what encoding and decoding cost, so they count "
                             "as taking no time",
                             compression_->name());
  }
  if (!codec_) return {};
  const bool is_free = codec_->cost.encode_s({1}) + codec_->cost.decode_s({1}) == 0;
  if (!codec_->is_cast)
    return is_free ? fmt::format(
                         "{}: encode= and decode= are not given, so coding counts as taking no "
                         "time. This is the most that such a compressor can gain",
                         coding_name())
                   : std::string();
  if (size_of(form_.wire.value()) >= size_of(DType::f32)) return {};
  return is_free ? fmt::format(
                       "wire={0}: it is not known what casting costs, so it counts as taking no "
                       "time; linerate calibrate --codecs {0} measures it",
                       CodecModel::cast_name(*form_.wire))
                 : codec_->about_cost;
}

const doc::CodecCost* Planner::coding_cost() const {
  if (codec_) return &codec_->cost;
  if (!compression_) return nullptr;
  const auto& cost = compression_->methods().front().cost;
  return cost ? &*cost : nullptr;
}

bool Planner::coding_is_bound() const {
  return compression_ && coding_cost() && is_bound_from_below(*coding_cost());
}

double Planner::coding_spread() const { return coding_cost() ? coding_cost()->spread : 1; }

bool Planner::codes_alone() const {
  const doc::CodecCost* const cost = coding_cost();
  if (!cost || cost->on != doc::CodingPlace::alone) return false;
  if (exchange_->schedule() == Schedule::decoupled) return false;
  return compression_ ? !cost->is_own() : !codec_->about_cost.empty();
}

std::vector<std::string> Planner::coding_caveats(const doc::Workload& workload) const {
  std::vector<std::string> notes;
  for (std::string note :
       {coding_cost_caveat(), codes_alone() ? std::string(kAlone) : "", left_dense(workload)})
    if (!note.empty()) notes.push_back(std::move(note));
  return notes;
}

std::vector<std::string> Planner::caveats(const doc::Workload& workload,
                                          const cost::CostModel& cost, int ranks) const {
  const auto& contention = cost.cluster().contention;
  std::vector<std::string> notes = exchange_->caveats(compression_ || (codec_ && !codec_->is_cast),
                                                      contention && contention->any());
  for (std::string& note : coding_caveats(workload)) notes.push_back(std::move(note));
  if (kfac_)
    for (std::string& note : caveats_of(*kfac_, workload, cost.cluster(), ranks))
      notes.push_back(std::move(note));
  if (exchange_->schedule() == Schedule::decoupled && !layers_are_timed(workload))
    notes.push_back(
        fmt::format("{}: the Workload does not time the forward pass of its layers; it is split "
                    "over the buckets as backward is",
                    text_.substr(0, text_.find_first_of("(+"))));
  if (!workload.other_collectives.empty() && traits_.plans_by == PlansBy::cost)
    notes.push_back(fmt::format(
        "{}: its buckets are chosen for the gradients alone, and other_collectives come in between",
        text_));
  if (!workload.step_s && !workload.forward_s)
    notes.push_back(
        "the Workload has neither its step nor its forward time, so only backward, update and "
        "exchange are in the prediction");
  return notes;
}

void require_gradients(const doc::Workload& workload) {
  if (workload.gradients.empty())
    throw InputError(workload.name.empty() ? "workload" : workload.name,
                     "has no gradients: nothing to exchange");
}

Traits traits_of(const doc::Strategy& given) {
  const doc::Strategy strategy = with_exchange(given);
  const ExchangeEntry& entry = exchanges().at(strategy.exchange.name);
  return traits_of(entry.traits, entry.make(strategy.exchange)->wire(), strategy.extras);
}

doc::Plan make_plan(const doc::Workload& workload, const doc::Cluster& cluster,
                    const doc::Strategy& strategy, int ranks, const PlanOptions& options) {
  validate(workload);
  validate(cluster);
  const Planner planner(strategy, cluster);
  if (options.cost) return planner.plan(workload, *options.cost, ranks, options);
  return planner.plan(workload, cost::CostModel(cluster), ranks, options);
}

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
      alone_(workload),
      workload_(&workload),
      options_(options),
      kinds_(step_kinds(planner.compression_ ? planner.compression_->phases() : compress::Phases{},
                        planner.kfac_, every_of(workload, options))) {
  require_gradients(workload);
  planner.check_turns(workload);
  plan_.strategy = planner.text();
  plan_.workload = workload.name;
  set_names();
  const std::int32_t first_steps = options.first_step ? add_variants(kFirstStep, true) : 0;
  const std::int32_t steady = add_variants(kSteady, false);
  set_schedule(first_steps, steady);
  compute_as(workload);
}

/// The computation of all Plans from now on.
void PlanSeries::compute_as(const doc::Workload& workload) {
  workload_ = &workload;
  plan_.operations.clear();
  computation_ = {};
  computation_.plan = &plan_;
  computation_.graph = &plan_.variants.front();
  add_compute(workload, options_.housekeeping.has_value(), computation_);
  operations_ = plan_.operations;
}

void PlanSeries::set_names() {
  for (const doc::Gradient& g : alone_.gradients) {
    plan_.gradient_names.push_back(g.name);
    plan_.gradient_layer.push_back(g.layer);
    if (planner_.compression_) plan_.gradient_shapes.push_back({g.elements, g.rows.value_or(1)});
  }
  for (const doc::Layer& l : alone_.layers) plan_.layer_names.push_back(l.name);
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

/// What several ranks add to their computing depends on how long they communicate, which is not
/// known before there is a Plan. So a first Plan has all of it. If that Plan communicates for a
/// shorter time than the recorded step did, another one replaces it, with a share.
///
/// An example: the recorded step communicated for 12 ms, and computed 1.3 times as long as one rank
/// alone. A Plan with fp16 communicates for 6 ms. Its ranks compute 1.15 times as long.
const doc::Plan& PlanSeries::plan(const cost::CostModel& cost, int ranks) {
  if (ranks < 1) throw UsageError(fmt::format("ranks: expected at least 1, found {}", ranks));
  plan_.ranks = ranks;
  const auto& several = alone_.several_ranks;
  if (ranks > 1 && several) {
    compute_slowed(1);
  } else if (workload_ != &alone_) {
    compute_as(alone_);
  }
  make_cycle(cost);
  if (ranks > 1 && several && several->communication_s) {
    const double recorded_s = *several->communication_s, own_s = communication_s(cost);
    if (own_s < recorded_s) compute_slowed(own_s / recorded_s), make_cycle(cost);
  }
  doc::validate(plan_);
  return plan_;
}

void PlanSeries::compute_slowed(double share) {
  if (slowed_ && slowed_share_ == share && workload_ == &*slowed_) return;
  slowed_ = doc::among_ranks(alone_, share);
  slowed_share_ = share;
  compute_as(*slowed_);
}

/// Every variant, with the exchange that ends first.
void PlanSeries::make_cycle(const cost::CostModel& cost) {
  Request request{cost, plan_.ranks};
  if (const auto& kfac = planner_.kfac_)
    request.curvature = curvature_of(*kfac, *workload_, cost, plan_.ranks, planner_.text_);
  make_steps(request, *planner_.exchange_);
  if (planner_.may_send_at_once() && plan_.ranks > 1) keep_what_ends_first(request);
  join_all(borders_, plan_);
}

/// Network time of a step, mean over a cycle.
double PlanSeries::communication_s(const cost::CostModel& cost) const {
  double all_s = 0;
  for (const std::int32_t v : plan_.cycle)
    for (const doc::Task& task : plan_.variants[to_index(v)].tasks) {
      if (!doc::is_communication(task.kind)) continue;
      const int ranks = plan_.group_of(task).size_of_part(0, plan_.ranks);
      all_s +=
          task.seconds +
          cost.collective(collective_of(task.kind), task.priced_bytes(), ranks, task.wire).seconds;
    }
  return all_s / static_cast<double>(plan_.cycle.size());
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
    if (decoupled) find_border(*workload_, step_, request.preconditions(), borders_[v]);
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
  const WireForm cut_by = p.compression_ ? p.compression_->typical_form(*workload_) : p.form_;
  const FusionInput fusion{*workload_, request.cost, cut_by, request.ranks, variant.first_step};
  fuse_turns(exchange, fusion, {graph, step_.not_before});
  const StepKind& kind = kinds_.kinds[to_index(variant.kind)];
  const PassInput input{*workload_,
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
  for (const auto pass : {add_collect, add_flags, add_exchanges, split_exchanges, add_coding,
                          add_turns, add_housekeeping, add_factors, add_inverses,
                          add_preconditioning, add_update, add_other_collectives})
    pass(input, step_);
  if (p.may_send_at_once()) end_s_.push_back(step_end_s(input, step_));
  step_.tasks.linearise(graph);
  if (request.ranks > 1) add_tensor_times(request.cost.cluster().tensor_s, graph);
}

// A step that trains several models in turn (a GAN: the discriminator, then the generator) updates
// each model before the next one's backward pass. So the exchange cuts each turn's gradients as if
// they were a Workload of their own. Positions are then moved to those of the whole list. With 4
// gradients in turn 0 and 6 in turn 1, position 2 of turn 1 becomes position 6.
void fuse_turns(const Exchange& exchange, const FusionInput& input, const Fusion& out) {
  const std::vector<doc::Gradient>& all = input.workload.gradients;
  const int turns = input.workload.turns();
  if (turns == 1) return exchange.fuse(input, out);
  doc::Workload one = input.workload;
  for (int turn = 0; turn < turns; ++turn) {
    const auto mine = std::ranges::equal_range(all, turn, {}, &doc::Gradient::turn);
    one.gradients.assign(mine.begin(), mine.end());
    doc::TaskGraph graph;
    std::vector<double> not_before;
    exchange.fuse({one, input.cost, input.form, input.ranks, input.first_step},
                  {graph, not_before});
    const auto members = static_cast<std::int32_t>(out.graph.members.size());
    const auto position = static_cast<std::int32_t>(mine.begin() - all.begin());
    for (const std::int32_t m : graph.members) out.graph.members.push_back(position + m);
    for (doc::Payload bucket : graph.payloads) {
      bucket.begin += members, bucket.end += members;
      out.graph.payloads.push_back(bucket);
    }
    out.not_before.insert(out.not_before.end(), not_before.begin(), not_before.end());
  }
}

}  // namespace linerate::plan
