// Ranks on GPUs.
#pragma once

#include <memory>

#include "linerate/comm/communicator.hpp"

namespace linerate::comm {

/// True when this program was built with NCCL.
bool have_nccl();

/// The world communicator over NCCL. Throws CommError when linerate was built without NCCL.
std::unique_ptr<Communicator> make_nccl_world(const CommunicatorOptions& options = {});

}  // namespace linerate::comm
