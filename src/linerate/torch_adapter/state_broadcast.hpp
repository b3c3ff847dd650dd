// Rank 0's parameters and buffers for every rank, as plain memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "linerate/comm/communicator.hpp"

namespace linerate::torch_adapter {

/// The bytes of some tensors; whoever makes the list keeps the tensors alive.
using MemoryPieces = std::vector<std::span<std::byte>>;

/// Overwrites each piece with rank 0's. Collective.
void broadcast_memory(comm::Communicator& communicator, const MemoryPieces& pieces,
                      const std::string& name);

}  // namespace linerate::torch_adapter
