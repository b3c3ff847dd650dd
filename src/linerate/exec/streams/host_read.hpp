// Where the host cannot go on without values that are on the device.
#pragma once

#include "linerate/doc/plan.hpp"

namespace linerate::exec {

enum class HostRead : std::uint8_t {
  nothing,
  counts,  // how much each rank sends, before the collective is enqueued
  result   // what the task made or read, before anything else is enqueued
};

/// A value that the host has to read for a task before it can go on.
///
/// Two of our operations read results. LibTorch's eigendecomposition looks at its solver's status,
/// and no function of ATen's avoids that. sidco fits its thresholds on the host. Flags of a step
/// are not among these reads, because no task of the step depends on them.
HostRead host_read_of(const doc::Plan& plan, const doc::TaskGraph& graph, const doc::Task& task);

}  // namespace linerate::exec
