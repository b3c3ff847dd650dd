// Cutting a list of gradients into buckets.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "linerate/doc/plan.hpp"
#include "linerate/doc/workload.hpp"

namespace linerate::plan {

/// Positions 0 .. L-1: the order in which gradients get ready.
void ready_order(const doc::Workload& workload, std::vector<std::int32_t>& out);
/// Positions by descending registration: what a rank assumes before it has seen a backward pass.
void reverse_registration_order(const doc::Workload& workload, std::vector<std::int32_t>& out);

/// PyTorch DDP's rule. For each dtype, a bucket closes with the tensor that reaches its limit.
/// Limits apply in turn, and the last one to all buckets that follow. Tensors are never split.
void append_by_limits(const doc::Workload& workload, std::span<const std::int32_t> order,
                      std::span<const std::int64_t> limits, doc::TaskGraph& graph);

/// One bucket of the consecutive positions [begin, end), which must share a dtype.
void append_range(const doc::Workload& workload, std::int32_t begin, std::int32_t end,
                  doc::TaskGraph& graph);

}  // namespace linerate::plan
