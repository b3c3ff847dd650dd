// The ranks of one of PyTorch's process groups: torchrun's, SLURM's, whatever made it.
#pragma once

#include <memory>
#include <string>

#include "linerate/comm/communicator.hpp"

namespace linerate::comm {

/// A communicator over the ranks of the c10d::ProcessGroup of this name (ProcessGroup.group_name in
/// Python), in their order. The program has made the group. The group can send and receive CPU
/// memory: gloo, or any other such back end ("cpu:gloo,cuda:nccl", too).
///
/// Only its point-to-point messages are used, and never its collectives. So schedules, rounding,
/// traffic and errors are those of the other transports, and the program's own collectives on the
/// group are not disturbed. The group's store carries signs of life. Collective.
///
/// Throws UsageError if the group has no CPU back end or no store. Throws CommError naming the
/// ranks that did not come within start_timeout, and std::exception if there is no group of the
/// name.
[[nodiscard]] std::unique_ptr<Communicator> make_world_of_group(
    const std::string& group_name, const CommunicatorOptions& options = {});

}  // namespace linerate::comm
