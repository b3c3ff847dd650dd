// A process group of PyTorch's whose ranks are those of a Communicator: threads, say.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <memory>
#include <string>

#include "linerate/comm/communicator.hpp"

namespace at {
class Tensor;
}
namespace c10d {
class Backend;
}

namespace linerate::torch_adapter {

struct GroupFaults {
  /// What a network may do to what gathers and all-to-alls send this rank, before it sees it.
  std::function<void(const at::Tensor& arrived)> damage = {};
  /// Whether its back end makes no groups of a part of its ranks.
  bool has_no_parts = false;
};

using BackendPointer = c10::intrusive_ptr<::c10d::Backend>;

/// While it lives, the calling thread finds a group of this name, whose collectives exchange CPU
/// memory in the communicator's order and rounding. One for each rank. What `for_devices` makes of
/// the back end for the CPU stands for it, and exchanges memory of PrivateUse1, too.
class GroupOverCommunicator {
 public:
  /// `communicator` outlives this object.
  GroupOverCommunicator(std::string name, comm::Communicator& communicator, GroupFaults faults = {},
                        const std::function<BackendPointer(BackendPointer)>& for_devices = {});
  ~GroupOverCommunicator();
  GroupOverCommunicator(const GroupOverCommunicator&) = delete;
  GroupOverCommunicator& operator=(const GroupOverCommunicator&) = delete;

  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::shared_ptr<const void> group_;  // the registry does not keep it
};

/// The name of a group that a suite's ranks make, where steps are enqueued.
inline constexpr const char* kGroup = "of the suite";

/// What each of n ranks does that has a group of that name.
template <typename Ranks, typename Work>
void in_group(Ranks&& ranks, int n, Work&& work) {
  ranks(n, [&](comm::Communicator& communicator) {
    const GroupOverCommunicator group(kGroup, communicator);
    work(communicator);
  });
}

}  // namespace linerate::torch_adapter
