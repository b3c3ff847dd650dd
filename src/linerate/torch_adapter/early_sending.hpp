// Several DataParallel objects on one communicator: one of them at a time sends while a backward
// pass runs. Private to torch_adapter.
#pragma once

#include <functional>

#include "linerate/comm/communicator.hpp"

namespace linerate::torch_adapter {

/// A backward pass may run through the models of several objects (a GAN's generator learns through
/// the discriminator), and casts end at any time: if all sent as gradients come, ranks could submit
/// in different orders. The second sends in finish(), when the first has nothing under way.
class EarlySending {
 public:
  /// `wait_idle` returns when its owner will submit nothing more by itself.
  EarlySending(comm::Communicator& communicator, std::function<void()> wait_idle);
  ~EarlySending();
  EarlySending(const EarlySending&) = delete;
  EarlySending& operator=(const EarlySending&) = delete;

  /// True if it is this object's turn now.
  bool take();
  void give_back();
  /// Sleeps until whoever has the turn will submit nothing more by itself.
  void wait_for_others() const;

 private:
  comm::Communicator& communicator_;
  std::function<void()> wait_idle_;
};

}  // namespace linerate::torch_adapter
