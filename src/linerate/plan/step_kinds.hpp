// The kinds of steps that a strategy tells apart, and which one each step is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "linerate/compress/codec.hpp"
#include "linerate/plan/kfac/kfac.hpp"

namespace linerate::plan {

/// A phase of the compressor, what K-FAC updates, and which other collectives run.
struct StepKind {
  std::string name;  // what a variant's name ends with: "warm-up.stale"; empty: there is one kind
  int phase = -1;    // of compress::Phases; -1: it has one
  CurvatureUpdate update = {};
  std::int64_t in_period = 0;  // of the other collectives: a step in which the same ones run
};

/// Step s is of kind warm_up[s] while s < warm_up.size(), then of kind
/// cycle[(s - warm_up.size()) % cycle.size()].
struct StepKinds {
  std::vector<StepKind> kinds;  // every phase with every update: a runner may choose any
  std::vector<std::int32_t> warm_up, cycle;
};

/// The kinds and their schedule, from a compressor's phases, K-FAC's intervals, and the intervals
/// in steps of other collectives (`every`). The cycle is as long as all together take to repeat.
/// Throws UsageError if that is longer than any schedule.
StepKinds step_kinds(const compress::Phases& phases, const std::optional<Kfac>& kfac,
                     const std::vector<int>& every = {});

}  // namespace linerate::plan
