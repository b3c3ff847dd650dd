// Reads a strategy: an exchange, and after each '+' a codec, a compressor or K-FAC. Components that
// contradict each other are refused here, before anything is planned. PlanSeries makes the Plans.
#include "linerate/plan/planner.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/doc/validate.hpp"
#include "linerate/plan/codec_costs.hpp"
#include "linerate/plan/pass/compute.hpp"

namespace linerate::plan {
namespace {

constexpr std::string_view kAlone =
    "With such costs nothing is computed while a bucket is coded and sent, as with PyTorch's "
    "communication hooks. linerate calibrate --codecs measures your own";

// The whole plans by the most that one of its parts plans by, and runs where all its parts run.
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

std::optional<Curvature> Planner::curvature(const doc::Workload& workload,
                                            const cost::CostModel& cost, int ranks) const {
  if (!kfac_) return std::nullopt;
  return curvature_of(*kfac_, workload, cost, ranks, text_);
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

StepKinds Planner::kinds(const std::vector<int>& every) const {
  return step_kinds(compression_ ? compression_->phases() : compress::Phases{}, kfac_, every);
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
  return Compressed{form_.ratio, codec_->gather, codec_->encode_s(dense), codec_->decode_s(dense)};
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
  const bool is_free = codec_->encode_s({1}) + codec_->decode_s({1}) == 0;
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

bool Planner::coding_is_bound() const {
  if (!compression_) return false;
  const auto& cost = compression_->methods().front().cost;
  return cost && is_bound_from_below(*cost);
}

double Planner::coding_spread() const {
  if (codec_) return codec_->cost.spread;
  if (!compression_) return 1;
  const auto& cost = compression_->methods().front().cost;
  return cost ? cost->spread : 1;
}

bool Planner::codes_alone() const {
  if (exchange_->schedule() == Schedule::decoupled) return false;
  if (compression_) {
    const auto& cost = compression_->methods().front().cost;
    return cost && !cost->is_own() && cost->on == doc::CodingPlace::alone;
  }
  return codec_ && !codec_->about_cost.empty() && codec_->cost.on == doc::CodingPlace::alone;
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
  if (exchange_->schedule() == Schedule::decoupled &&
      !(every_layer_timed(workload) && gradients_know_layers(workload)))
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

}  // namespace linerate::plan
