#include "linerate/torch_adapter/kfac/shared_curvature.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/plan/registry.hpp"
#include "linerate/torch_adapter/kfac/cost_probe.hpp"

namespace linerate::torch_adapter {
namespace {

bool has_kind(const Preconditioner& preconditioner, doc::BlockKind kind) {
  const Blocks& blocks = preconditioner.blocks();
  return std::any_of(blocks.begin(), blocks.end(),
                     [kind](const auto& block) { return block->shape().kind == kind; });
}

void set(doc::Component& component, const char* option) {
  const auto known = std::find_if(component.options.begin(), component.options.end(),
                                  [option](const auto& o) { return o.first == option; });
  if (known == component.options.end())
    component.options.emplace_back(option, "on");
  else
    known->second = "on";
}

/// Inverses travel as triangles.
void require_triangles(const plan::Kfac& kfac, const Preconditioner& preconditioner) {
  const bool sends_inverses = kfac.sharing == plan::Sharing::mpd ||
                              kfac.sharing == plan::Sharing::hybrid ||
                              kfac.sharing == plan::Sharing::spd;
  if (sends_inverses && preconditioner.options().method == InverseMethod::eigen)
    throw UsageError(
        "K-FAC: this strategy sends inverses between ranks, and eigenvectors are no inverses: use "
        "method = cholesky, or kfac(d), kfac(mem) or kfac(dp)");
}

}  // namespace

std::optional<plan::Kfac> kfac_of(doc::Strategy& strategy, const Preconditioner* preconditioner) {
  const auto named =
      std::find_if(strategy.extras.begin(), strategy.extras.end(),
                   [](const auto& extra) { return plan::is(extra, plan::Extra::curvature); });
  const bool is_named = named != strategy.extras.end();
  if (is_named == (preconditioner == nullptr))
    throw UsageError(fmt::format(
        "strategy {}: {}", doc::to_text(strategy),
        is_named ? "it preconditions: construct a KFAC and name it in "
                   "DataParallelOptions::preconditioner"
                 : "it does not say how the preconditioner is shared among the ranks; add "
                   "\"+kfac(spd)\""));
  if (!is_named) return std::nullopt;
  if (has_kind(*preconditioner, doc::BlockKind::unit_wise)) set(*named, "norms");
  if (has_kind(*preconditioner, doc::BlockKind::embedding)) set(*named, "embeddings");
  plan::Kfac kfac = plan::Kfac::parse(*named);
  require_triangles(kfac, *preconditioner);
  if (preconditioner->options().levenberg_marquardt)
    throw UsageError(
        "K-FAC: Levenberg-Marquardt damping is not shared among ranks yet; use a fixed damping");
  return kfac;
}

replan::SecondOrder second_order_of(const Preconditioner& preconditioner,
                                    comm::Communicator& communicator) {
  replan::SecondOrder known;
  std::vector<CurvatureBlock::Shape> shapes;
  at::ScalarType dtype = at::kFloat;
  for (const auto& block : preconditioner.blocks()) {
    const CurvatureBlock::Shape& shape = shapes.emplace_back(block->shape());
    known.blocks.push_back({.layer = static_cast<int>(known.layers.size()),
                            .kind = shape.kind,
                            .a = shape.a,
                            .g = shape.g,
                            .groups = shape.groups});
    known.layers.push_back(block->layer().name);
    if (block->dtype() == at::kDouble) dtype = at::kDouble;
  }
  known.cost = probe_second_order(communicator, shapes, dtype);
  return known;
}

}  // namespace linerate::torch_adapter
