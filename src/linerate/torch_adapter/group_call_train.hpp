// Times the collectives of a device's own group. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "linerate/calibrate/call_train.hpp"
#include "linerate/comm/c10d/tensor_group.hpp"
#include "linerate/comm/communicator.hpp"
#include "linerate/torch_streams/tensor_clock.hpp"

namespace linerate::torch_adapter {

/// A calibrate::CallSeries over a device's group. A train of calls is enqueued without a wait, and
/// between two calls the device notes its time in the calling thread's current stream. The host
/// waits for the last call alone, so its own delays are in none of the times.
class GroupCallTrain final : public calibrate::CallSeries {
 public:
  /// Both outlive this object; the communicator lets the ranks begin together.
  GroupCallTrain(comm::TensorGroup& group, comm::Communicator& communicator, c10::Device device,
                 std::int64_t largest_bytes);

 private:
  void meet() override;
  void add(const calibrate::Call& call) override;
  void add_barrier() override;
  std::vector<double> ends_ns() override;
  void mark();

  comm::TensorGroup& group_;
  comm::Communicator& communicator_;
  c10::Device device_;
  std::unique_ptr<torch_streams::TensorClock> clock_;
  exec::MarkId marks_ = 0;
  at::Tensor whole_, exchanged_;
};

}  // namespace linerate::torch_adapter
