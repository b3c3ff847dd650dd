// Times of what is enqueued where tensors lie.
#pragma once

#include <c10/core/Stream.h>

#include <vector>

#include "linerate/exec/streams/stream_clock.hpp"

namespace linerate::torch_streams {

/// Outlives the streams' TensorDevice: marks that were set in them can be read when it is gone.
class TensorClock : public exec::StreamClock {
 public:
  /// From now on marks are set in these: those of a TensorDevice, in its order.
  virtual void follow(std::vector<c10::Stream> streams) = 0;
};

}  // namespace linerate::torch_streams
