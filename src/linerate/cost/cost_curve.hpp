// The cost of one collective at one rank count as a function of its size alone: what planners
// search over and what the simulator evaluates once a task.
#pragma once

#include "linerate/cost/add_table.hpp"
#include "linerate/cost/closed_form.hpp"
#include "linerate/cost/estimate.hpp"
#include "linerate/doc/cluster.hpp"

namespace linerate::cost {

/// How a fitted cost is moved to another collective, bandwidth or latency (CostModel decides the
/// numbers).
struct FittedMove {
  double start_factor = 1;  // on the start-up: message steps of this collective / of the measured
  double added_s = 0;       // message steps * change of latency
  double bulk_factor = 1;   // on the part that grows with the size, intervals included
  double least_beta_s_per_byte = 0;  // no faster than this: host or line
  bool moved = false;                // then the answer is marked extrapolated
};

/// Borrows what it is made from: valid as long as its CostModel.
struct CostCurve {
  Line line;  // closed form; unused when fitted
  // Zhang et al. 2020: add_steps * AddEst(bytes * add_share) on top of the line.
  const AddTable* add = nullptr;
  double add_steps = 0;
  double add_share = 0;
  const doc::CollectiveCost* fitted = nullptr;
  int ranks = 1;
  FittedMove move;

  double seconds(double bytes) const {
    if (fitted) return estimate(bytes).seconds;
    const double t = line(bytes);
    return add ? t + add_steps * add->seconds(bytes * add_share) : t;
  }
  /// Closed forms answer low = seconds = high: their error is unknown, not zero.
  Estimate estimate(double bytes) const;
};

}  // namespace linerate::cost
