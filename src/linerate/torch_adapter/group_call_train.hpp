// Times the collectives of a device's own group. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "linerate/calibrate/collective_probe.hpp"
#include "linerate/comm/c10d/tensor_group.hpp"
#include "linerate/comm/communicator.hpp"
#include "linerate/exec/streams/stream_times.hpp"
#include "linerate/torch_streams/event_clock.hpp"

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

// Counts the work of K-FAC that takes the host longer to enqueue than the device to do. Private to
// torch_adapter.

class SlowHost {
 public:
  /// `kind`: "factors"
  void see(const std::string& kind, const exec::CallTimes& times);
  /// How many of each kind are slower on the host, in words; empty: none.
  std::string note(const std::string& device) const;

 private:
  struct Count {
    int slow = 0, all = 0;
  };
  std::map<std::string, Count> kinds_;
};

}  // namespace linerate::torch_adapter
