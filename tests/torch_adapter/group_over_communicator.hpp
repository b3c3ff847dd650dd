// A process group of PyTorch's whose ranks are those of a Communicator: threads, say.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "linerate/comm/communicator.hpp"

namespace at {
class Tensor;
}

namespace linerate::torch_adapter {

/// While it lives, the calling thread finds a group of this name, whose collectives exchange CPU
/// memory in the communicator's order and rounding. One for each rank.
class GroupOverCommunicator {
 public:
  /// What a network may do to what this rank is sent by gathers and all-to-alls, before it sees it.
  using Damage = std::function<void(const at::Tensor& arrived)>;

  /// `communicator` outlives this object.
  GroupOverCommunicator(std::string name, comm::Communicator& communicator, Damage damage = {});
  ~GroupOverCommunicator();
  GroupOverCommunicator(const GroupOverCommunicator&) = delete;
  GroupOverCommunicator& operator=(const GroupOverCommunicator&) = delete;

  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::shared_ptr<const void> group_;  // the registry does not keep it
};

}  // namespace linerate::torch_adapter
