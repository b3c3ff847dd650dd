// Where the host cannot go on without values that are on the device.
#pragma once

#include "linerate/doc/plan.hpp"

namespace linerate::exec {

enum class HostRead : std::uint8_t {
  nothing,
  counts,  // how much each rank sends, before the collective is enqueued
  result   // what the task made or read, before anything else is enqueued
};

/// Of our operations as they are: LibTorch's eigendecomposition looks at its solver's status, and
/// nothing of ATen's can keep it from that; sidco fits its thresholds on the host. What a step's
/// flags say is none of these: no task of the step depends on it.
HostRead host_read_of(const doc::Plan& plan, const doc::TaskGraph& graph, const doc::Task& task);

}  // namespace linerate::exec
