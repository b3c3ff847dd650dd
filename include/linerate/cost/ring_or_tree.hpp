// What costs of all-reduces assume unless told.
#pragma once

#include <string_view>

namespace linerate::cost {

/// A value of CostOptions::all_reduce: the shortest of ring and double tree for each size, as
/// NCCL's tuner chooses by its own model (src/graph/tuning.cc). Reduce-scatter and all-gather are
/// rings.
inline constexpr std::string_view kRingOrTree = "ring-or-tree";

}  // namespace linerate::cost
