// The times of K-FAC's work in a window of steps, agreed among ranks, for the planner.
#pragma once

#include <cstdint>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/second_order_cost.hpp"
#include "linerate/doc/workload.hpp"

namespace linerate::replan {

/// Seconds in one step of this rank; negative: not measured in it.
struct CurvatureTimes {
  std::vector<double> forward_s;               // by block: its layer's pass, without the factor
  std::vector<double> factor_a_s, factor_g_s;  // by block
  std::vector<double> inverse_s;               // by factor (doc::factor_index)
};

class CurvatureProfile {
 public:
  void add(const CurvatureTimes& step) { steps_.push_back(step); }

  /// Agrees on the window's times: medians of each rank, then means over the ranks that measured a
  /// part. They go into the Workload's layers and blocks, where block b is of layer b, and as
  /// inverse times by dimension into `cost`. A part that no rank measured stays. Collective; the
  /// same on every rank.
  void agree(comm::Communicator& communicator, doc::Workload& workload,
             doc::SecondOrderCost& cost) const;

 private:
  std::vector<CurvatureTimes> steps_;
};

}  // namespace linerate::replan
