// The times of one step of this rank, for planners: first moments as they came, later the times
// between them. Private to torch_adapter.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "linerate/core/intervals.hpp"
#include "linerate/plan/kfac/kfac.hpp"
#include "linerate/replan/run_planner.hpp"
#include "linerate/torch_adapter/step_report.hpp"

namespace linerate::torch_adapter {

/// Factors whose inverses were computed together, in this time.
struct TimedInverses {
  std::vector<std::int32_t> factors;
  Span took;
};

/// Moments are those of exec::StepRunner::moment(); -1: there was none.
struct MeasuredStep {
  std::int64_t begin = -1;  // the end of the step before
  std::int64_t first_gradient = -1, end = -1;
  std::vector<std::int64_t> gradients = {};  // by parameter: its last
  std::vector<Span> held = {};  // before the first gradient: waits for means of the step before
  std::vector<FactorSpan> factors = {};  // of K-FAC
  std::vector<TimedInverses> inverses = {};
  plan::CurvatureUpdate update = {false, false};
};

/// Replaces moments that are numbers by their times.
void resolve(MeasuredStep& step, std::span<const std::int64_t> times_ns);

/// The planner's times of a step whose moments are in ns, and of K-FAC with so many blocks; 0:
/// without it.
replan::StepTimes times_of(const MeasuredStep& step, std::size_t blocks);

}  // namespace linerate::torch_adapter
