// The predicted step of a Plan with its whole interval: what every verb says of a strategy.
#pragma once

#include <optional>

#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/sim/simulator.hpp"

namespace linerate::sim {

/// Whether this Plan's steady step has coding that takes time: a cast that is free is none.
bool has_coding(const doc::Plan& plan);

/// A step, and why its interval is what it is.
struct PredictedStep {
  /// Its interval holds what is not known of collectives, of T_1, of coding and of processors that
  /// carry messages, which are independent: squares add up. Its high end is no shorter than
  /// crowded_s.
  doc::Bounded step_s;
  /// With coding as much slower as ranks share cores; absent: they do not, or nothing is coded.
  std::optional<double> crowded_s;
};

/// Gives the simulator's `result` of this Plan its whole interval. It comes from the Workload's
/// T_1, the model's Cluster and the spread of coding (doc::CodecCost::spread, a factor of at least
/// 1). `simulator` simulates the Plan again with other costs of coding.
PredictedStep predicted_step(const SimResult& result, const doc::Plan& plan,
                             const doc::Workload& workload, const cost::CostModel& model,
                             Simulator& simulator, double coding_spread = 1);

}  // namespace linerate::sim
