#include "linerate/exec/streams/host_read.hpp"

#include "linerate/exec/operation.hpp"

namespace linerate::exec {
namespace {

/// sidco's threshold follows from moments that the host fits, stage by stage.
bool is_fitted_by_host(const doc::Plan& plan, const doc::Task& task) {
  return task.kind == doc::TaskKind::encode && plan.operation_name(task) == "sidco";
}

}  // namespace

HostRead host_read_of(const doc::Plan& plan, const doc::TaskGraph& graph, const doc::Task& task) {
  if (doc::is_eigendecomposition(plan, task) || is_fitted_by_host(plan, task))
    return HostRead::result;
  const bool reads_counts = task.kind == doc::TaskKind::all_gather_v && task.last >= task.first &&
                            counts_of(graph, task.first) >= 0;
  return reads_counts ? HostRead::counts : HostRead::nothing;
}

}  // namespace linerate::exec
