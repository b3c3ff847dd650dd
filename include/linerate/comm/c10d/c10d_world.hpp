// The ranks of one of PyTorch's process groups: torchrun's, SLURM's, whatever made it.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>

#include "linerate/comm/communicator.hpp"

namespace c10d {
class ProcessGroup;
}

namespace linerate::comm {

/// A communicator over the group's ranks, in their order. The group is one that the program made,
/// and can send and receive CPU memory: gloo, or any other back end of that kind ("cpu:gloo,
/// cuda:nccl" too). Its point-to-point messages are used, never its collectives: schedules,
/// rounding, traffic and errors are those of the other transports, and the program's own
/// collectives on the group are not disturbed. The group's store carries signs of life. Collective.
///
/// Throws UsageError if the group has no CPU back end or no store, CommError naming the ranks that
/// did not come within the timeout.
std::unique_ptr<Communicator> make_world(const c10::intrusive_ptr<::c10d::ProcessGroup>& group,
                                         const CommunicatorOptions& options = {});

/// The same for the group of this name (ProcessGroup.group_name in Python).
std::unique_ptr<Communicator> make_world_of_group(const std::string& group_name,
                                                  const CommunicatorOptions& options = {});

}  // namespace linerate::comm
