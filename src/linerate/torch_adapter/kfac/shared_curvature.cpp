// A strategy's text and the preconditioner's options may both set the same thing. An option that
// was built in (kinds of layers, the inverse's method) must agree with the text. A tuned option
// (intervals, damping, decay) may stand in either, or be the same in both. The Plan depends on some
// of them, and those are written into the strategy's text, so that all ranks and the simulator plan
// by them.
//
// Example: the text says kfac(spd, damping=0.01), and the options say inverse_interval = 20 and
// method = eigen. The text becomes kfac(spd, damping=0.01, inverse=eigen, inverses=20), by which
// all ranks plan. Had the options said damping = 0.03, shared_kfac() would throw.
#include "linerate/torch_adapter/kfac/shared_curvature.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/plan/registry.hpp"
#include "linerate/torch_adapter/kfac/cost_probe.hpp"

namespace linerate::torch_adapter {
namespace {

bool has_kind(const Preconditioner& preconditioner, doc::BlockKind kind) {
  const Blocks& blocks = preconditioner.blocks();
  return std::any_of(blocks.begin(), blocks.end(),
                     [kind](const auto& block) { return block->shape().kind == kind; });
}

/// Names an option, so that the Plan has it.
void say(doc::Component& component, const char* option, const std::string& value) {
  if (!component.find(option)) component.options.emplace_back(option, value);
}

[[noreturn]] void refuse(const char* option, const std::string& in_text, const char* field,
                         const std::string& in_options) {
  throw UsageError(
      fmt::format("K-FAC: the strategy says {}={}, but the preconditioner's option `{}` {}; say it "
                  "in one of them, or the same in both",
                  option, in_text, field, in_options));
}

/// An option that the preconditioner was made with, which cannot change any more.
struct Built {
  const char* option;
  const char* field;
  std::string value;
  bool in_plan;  // the Plan must name it: a text without it means another value
};

std::vector<Built> build_of(const Preconditioner& preconditioner) {
  const KfacOptions& o = preconditioner.options();
  const auto on = [](bool yes) { return std::string(yes ? "on" : "off"); };
  const bool norms = has_kind(preconditioner, doc::BlockKind::unit_wise),
             words = has_kind(preconditioner, doc::BlockKind::embedding),
             eigen = o.method == InverseMethod::eigen;
  std::vector<Built> all;
  // Layers that are not there can be said to be left out, or taken if they were.
  if (norms || !o.norms) all.push_back({"norms", "norms", on(o.norms), norms});
  if (words || !o.embeddings) all.push_back({"embeddings", "embeddings", on(o.embeddings), words});
  all.push_back({"inverse", "method", eigen ? "eigen" : "cholesky", eigen});
  all.push_back({"largest", "largest_factor", fmt::format("{}", o.largest_factor),
                 o.largest_factor != plan::kLargestFactor});
  constexpr std::array kFishers{"empirical", "mc"};  // as Fisher has them
  all.push_back({"fisher", "fisher", kFishers.at(to_index(o.fisher)), false});
  all.push_back({"subsample", "conv_subsampling", fmt::format("{}", o.conv_subsampling), false});
  return all;
}

/// An option that may stand in the text or in the options.
struct Tuned {
  const char* option;
  const char* field;
  std::optional<ScheduledValue> KfacOptions::*value;
  bool in_plan;  // the Plan depends on it
};
constexpr std::array kTuned{
    Tuned{"accumulate", "accumulate", &KfacOptions::accumulate, false},
    Tuned{"factors", "factor_interval", &KfacOptions::factor_interval, true},
    Tuned{"inverses", "inverse_interval", &KfacOptions::inverse_interval, true},
    Tuned{"damping", "damping", &KfacOptions::damping, false},
    Tuned{"decay", "decay", &KfacOptions::decay, false},
    Tuned{"kl", "kl_clip", &KfacOptions::kl_clip, false}};

double number_in(const plan::Kfac& kfac, std::string_view option) {
  if (option == "accumulate") return static_cast<double>(kfac.accumulate.value_or(1));
  if (option == "factors") return static_cast<double>(kfac.factor_interval);
  if (option == "inverses") return static_cast<double>(kfac.inverse_interval);
  if (option == "damping") return kfac.damping;
  if (option == "decay") return kfac.decay;
  return kfac.clips ? kfac.kl : 0;
}

/// Whether the strategy names it; the clip has two names.
bool is_named(const doc::Component& component, std::string_view option) {
  const std::string* const clip = component.find("clip");
  return component.find(option) || (option == "kl" && clip && *clip == "off");
}

void require_said_once(const doc::Component& component, const plan::Kfac& kfac,
                       const KfacOptions& said) {
  for (const Tuned& tuned : kTuned) {
    const auto& value = said.*tuned.value;
    if (!value || !is_named(component, tuned.option)) continue;
    const double in_text = number_in(kfac, tuned.option);
    const std::optional<double> in_options = value->constant();
    if (in_options != in_text)
      refuse(tuned.option, fmt::format("{}", in_text), tuned.field,
             in_options ? fmt::format("{}", *in_options) : "a function of the step");
  }
}

/// Writes intervals into the strategy's text. The Plan's schedule lists the steps of a cycle, so it
/// needs numbers and no function of the step.
void say_intervals(doc::Component& component, const KfacOptions& said) {
  for (const Tuned& tuned : kTuned) {
    const auto& value = said.*tuned.value;
    if (!tuned.in_plan || !value || is_named(component, tuned.option)) continue;
    if (!value->constant())
      throw UsageError(
          fmt::format("K-FAC: the preconditioner's option `{}` is a function of the step, but a "
                      "Plan needs a number of steps; give a number, or write {}= in the strategy",
                      tuned.field, tuned.option));
    say(component, tuned.option, fmt::format("{}", *value->constant()));
  }
}

}  // namespace

std::optional<plan::Kfac> shared_kfac(doc::Strategy& strategy, Preconditioner* preconditioner) {
  const auto named =
      std::find_if(strategy.extras.begin(), strategy.extras.end(),
                   [](const auto& extra) { return plan::is(extra, plan::Extra::curvature); });
  const bool is_named = named != strategy.extras.end();
  if (is_named == (preconditioner == nullptr))
    throw UsageError(fmt::format(
        "strategy {}: {}", doc::to_text(strategy),
        is_named ? "it preconditions; construct a KFAC and name it as the preconditioner"
                 : "it does not say how the preconditioner is shared among the ranks; add "
                   "\"+kfac(spd)\""));
  if (!is_named) return std::nullopt;
  const KfacOptions& said = preconditioner->said();
  const std::vector<Built> build = build_of(*preconditioner);
  for (const Built& one : build)
    if (const std::string* const text = named->find(one.option); text && *text != one.value)
      refuse(one.option, *text, one.field, one.value);
  require_said_once(*named, plan::Kfac::parse(*named), said);
  for (const Built& one : build)
    if (one.in_plan) say(*named, one.option, one.value);
  say_intervals(*named, said);
  const bool clip_is_off = said.kl_clip && said.kl_clip->constant() == 0.0;
  if (clip_is_off && !named->find("clip")) say(*named, "kl", "0");
  const plan::Kfac kfac = plan::Kfac::parse(*named);
  preconditioner->adopt(kfac);
  return kfac;
}

replan::SecondOrder second_order_of(const Preconditioner& preconditioner,
                                    comm::Communicator& communicator) {
  replan::SecondOrder known;
  std::vector<CurvatureBlock::Shape> shapes;
  at::TensorOptions where = at::kFloat;
  for (const auto& block : preconditioner.blocks()) {
    const CurvatureBlock::Shape& shape = shapes.emplace_back(block->shape());
    known.blocks.push_back({.layer = static_cast<int>(known.layers.size()),
                            .kind = shape.kind,
                            .a = shape.a,
                            .g = shape.g,
                            .groups = shape.groups});
    known.layers.push_back(block->layer().name);
    if (block->dtype() == at::kDouble) where = where.dtype(at::kDouble);
    where = where.device(block->layer().weight.device());
  }
  known.cost = probe_second_order(communicator, shapes, where, preconditioner.options().method);
  return known;
}

}  // namespace linerate::torch_adapter
