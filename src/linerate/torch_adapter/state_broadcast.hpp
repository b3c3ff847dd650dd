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

/// Broadcasts many small pieces as one message, in the background.
class PackedBroadcast {
 public:
  explicit PackedBroadcast(MemoryPieces pieces);
  /// Packs the pieces as they are now and submits. Collective; does nothing when there are none.
  void submit(comm::Communicator& communicator);
  /// Waits and unpacks.
  void finish();

 private:
  MemoryPieces pieces_;
  std::vector<std::byte> packed_;
  comm::WorkPtr work_;
};

}  // namespace linerate::torch_adapter
