#include "linerate/exec/streams/host_read.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "linerate/exec/operation.hpp"

namespace linerate::exec {
namespace {

/// Operations whose values the host looks at, and for what.
constexpr std::array<std::string_view, 8> kReadByHost = {
    "average-factors",    // whether somebody used the layer, and what its sums are divided by
    "inverse",            // whether the factor had one; else with more damping
    "unpack-inverses",    // whether its owner found one
    "precondition",       // whether the direction is finite, and its product for the clip
    "unpack-directions",  // whether there is one, and its product
    "take-losses",        // the next damping
    "quadratic-model",    // the batch's loss in a plane, as a quadratic
    "minimise"            // the minimum there
};

}  // namespace

HostRead host_read_of(const doc::Plan& plan, const doc::TaskGraph& graph, const doc::Task& task) {
  if (task.kind == doc::TaskKind::all_gather_v)
    return task.last >= task.first && counts_of(graph, task.first) >= 0 ? HostRead::counts
                                                                        : HostRead::nothing;
  if (task.origin == doc::Origin::observed) {
    const bool late = task.kind == doc::TaskKind::precondition;  // of a decoupled exchange
    return late ? HostRead::result : HostRead::nothing;
  }
  const bool is_read = std::find(kReadByHost.begin(), kReadByHost.end(),
                                 plan.operation_name(task)) != kReadByHost.end();
  return is_read ? HostRead::result : HostRead::nothing;
}

}  // namespace linerate::exec
