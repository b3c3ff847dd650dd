// Several DataParallel objects on one communicator: one of them at a time sends while a backward
// pass runs. Private to torch_adapter.
#pragma once

#include <functional>

#include "linerate/comm/communicator.hpp"

namespace linerate::torch_adapter {

/// The turn to send while a backward pass runs. Collectives of one communicator have to be
/// submitted in the same order on all ranks. A backward pass may run through the models of several
/// objects: a GAN's generator learns through the discriminator. Casts may end at any time. So if
/// two objects sent as gradients come, rank 0 might submit the generator's bucket first and rank 1
/// the discriminator's.
///
/// The first object whose gradient comes takes the turn until its step ends. The second sends in
/// finish(), when the first has nothing in flight that would submit more.
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
  /// Sleeps until the object that has the turn will submit nothing more by itself.
  void wait_for_others() const;

 private:
  comm::Communicator& communicator_;
  std::function<void()> wait_idle_;
};

}  // namespace linerate::torch_adapter
