#include "linerate/torch_adapter/state_broadcast.hpp"

namespace linerate::torch_adapter {

void broadcast_memory(comm::Communicator& communicator, const MemoryPieces& pieces,
                      const std::string& name) {
  std::vector<comm::WorkPtr> works;
  for (const std::span<std::byte> piece : pieces)
    works.push_back(communicator.broadcast(comm::buffer(piece), 0, name));
  for (const comm::WorkPtr& work : works) work->wait();
}

}  // namespace linerate::torch_adapter
