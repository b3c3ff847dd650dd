// The exact fusion of gradients on one FIFO channel, by dynamic programming.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "linerate/cost/cost_curve.hpp"

namespace linerate::plan {

/// Gradients 1 .. L in ready order.
struct FusionProblem {
  std::span<const double> ready_s;      // [L], never decreasing
  std::span<const double> bytes;        // [L], as they count on the wire
  std::span<const std::int32_t> fence;  // [L] first gradient that may share a bucket with l
  double cap_bytes = std::numeric_limits<double>::infinity();  // a lone gradient may exceed it
};

/// The ends of the buckets, ascending, the last one L. They are those of F[L], where F[j] = min
/// over i < j of max(F[i], ready_j) + T(P_j - P_i). A bucket is i+1 .. j. Exact for costs of size
/// alone. Ties go to fewer buckets, then to the smaller i. optimal.cpp tells how the search goes
/// over the straight pieces of T. Windows in which sending alone takes longer than the best so far
/// are left out. O(L K) time and memory for K pieces that rise; flat and falling ones are searched
/// through.
std::vector<std::int32_t> optimal_fusion(const FusionProblem& problem, const cost::CostCurve& cost);

}  // namespace linerate::plan
