// A communication task as a call of a Communicator.
#pragma once

#include <string>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/exec/operation.hpp"

namespace linerate::exec {

/// Throws UsageError unless it is sum, max or min.
comm::Reduce reduction_of(const doc::Plan& plan, const doc::Task& task);

/// Throws UsageError unless a reduction is sum, max or min.
void check_collective(const doc::Plan& plan, const doc::Task& task);

/// Submits the collective of a task among the ranks of `group`. All-to-all goes from the task's
/// first payload into its last; other kinds work in place on the first. Throws InternalError if the
/// payload's size is not the Plan's.
comm::WorkPtr submit_collective(const doc::Plan& plan, const doc::TaskGraph& graph,
                                const doc::Task& task, comm::Communicator& group,
                                Payloads& payloads, const std::string& title);

}  // namespace linerate::exec
