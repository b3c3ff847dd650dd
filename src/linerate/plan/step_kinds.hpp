// The kinds of steps that a strategy tells apart, and which one each step is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "linerate/compress/codec.hpp"
#include "linerate/plan/kfac/kfac.hpp"

namespace linerate::plan {

/// A phase of the compressor, and what K-FAC updates.
struct StepKind {
  std::string name;  // what a variant's name ends with: "warm-up.stale"; empty: there is one kind
  int phase = -1;    // of compress::Phases; -1: it has one
  CurvatureUpdate update = {};
};

/// Step s is of kind warm_up[s] while s < warm_up.size(), then of kind
/// cycle[(s - warm_up.size()) % cycle.size()].
struct StepKinds {
  std::vector<StepKind> kinds;  // every phase with every update: a runner may choose any
  std::vector<std::int32_t> warm_up, cycle;
};

/// From a compressor's phases, K-FAC's intervals, or both: then the cycle is as long as both
/// together take to repeat.
StepKinds step_kinds(const compress::Phases& phases, const std::optional<Kfac>& kfac);

}  // namespace linerate::plan
