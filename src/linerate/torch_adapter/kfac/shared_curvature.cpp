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

/// The payload of an inverse depends on it.
void set_method(doc::Component& component, const Preconditioner& preconditioner) {
  const bool by_eigen = preconditioner.options().method == InverseMethod::eigen;
  const char* const method = by_eigen ? "eigen" : "cholesky";
  const std::string* const named = component.find("inverse");
  if (named && *named != method)
    throw UsageError(fmt::format(
        "K-FAC: the strategy says inverse={}, the preconditioner's option `method` {}; make them "
        "say the same, or leave inverse= out",
        *named, method));
  if (!named && by_eigen) component.options.emplace_back("inverse", method);
}

}  // namespace

std::optional<plan::Kfac> shared_kfac(doc::Strategy& strategy,
                                      const Preconditioner* preconditioner) {
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
  if (preconditioner->options().levenberg_marquardt) set(*named, "lm");
  set_method(*named, *preconditioner);
  const plan::Kfac kfac = plan::Kfac::parse(*named);
  if (kfac.lm != preconditioner->options().levenberg_marquardt.has_value())
    throw UsageError(
        "K-FAC: the strategy says lm=on, the preconditioner has no option levenberg_marquardt; "
        "make "
        "them say the same");
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
  known.cost = probe_second_order(communicator, shapes, dtype, preconditioner.options().method);
  return known;
}

}  // namespace linerate::torch_adapter
