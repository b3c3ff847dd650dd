#include "linerate/exec/streams/host_read.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "linerate/exec/operation.hpp"

namespace linerate::exec {
namespace {

/// Operations whose values the host looks at, and for what: those of Levenberg and Marquardt's
/// rule. Others of K-FAC decide by tensors.
constexpr std::array<std::string_view, 3> kReadByHost = {
    "take-losses",      // the next damping
    "quadratic-model",  // the batch's loss in a plane, as a quadratic
    "minimise"          // the minimum there
};

}  // namespace

HostRead host_read_of(const doc::Plan& plan, const doc::TaskGraph& graph, const doc::Task& task) {
  if (task.kind == doc::TaskKind::all_gather_v)
    return task.last >= task.first && counts_of(graph, task.first) >= 0 ? HostRead::counts
                                                                        : HostRead::nothing;
  if (task.origin == doc::Origin::observed) return HostRead::nothing;
  const bool is_read = std::find(kReadByHost.begin(), kReadByHost.end(),
                                 plan.operation_name(task)) != kReadByHost.end();
  return is_read ? HostRead::result : HostRead::nothing;
}

}  // namespace linerate::exec
