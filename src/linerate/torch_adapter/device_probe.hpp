// What codecs and K-FAC's parts cost where tensors lie, by the code that enqueues a step there.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "linerate/calibrate/codec_probe.hpp"
#include "linerate/calibrate/collective_probe.hpp"
#include "linerate/calibrate/probe.hpp"
#include "linerate/comm/c10d/tensor_group.hpp"
#include "linerate/comm/communicator.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/exec/streams/stream_times.hpp"
#include "linerate/torch_adapter/stream_steps.hpp"
#include "linerate/torch_adapter/streams/torch_stream_device.hpp"

namespace linerate::torch_adapter {

/// Measures in f32 by the device's events (on the CPU by the host's clock). Returns medians of
/// rounds, means over ranks, which measure at once. Ranks of one machine take its devices in turn
/// if the name has no index. Sets the threads of operators, and they stay set. A
/// calibrate::DeviceProbe, with its errors.
calibrate::DeviceSamples measure_on_device(comm::Communicator& communicator,
                                           const calibrate::DeviceWork& work);

// The costs of K-FAC's parts on this machine, measured with the layers and operations of training.

class TimedQueue;

/// The sizes of the matrices that are inverted, in rows. Between these and beyond the largest,
/// times are taken to grow as the cube. The largest comes first, since it takes so long that
/// loading the solver's code into the cache does not matter.
inline constexpr std::array<std::int64_t, 14> kInverseDimensions = {
    1944, 1296, 864, 576, 384, 256, 192, 128, 96, 64, 48, 32, 16, 8};

/// Measures factors, directions and inverses in f32, inverses by Cholesky. All ranks measure at
/// once, each with so many threads, which stay set. Returns medians of rounds, means over ranks.
/// Collective; the same on every rank.
doc::SecondOrderSamples measure_second_order(comm::Communicator& communicator, int threads);

/// The same on the queue's device, by the code that enqueues a step there. Inverts matrices of
/// `dims` rows, also several of one size in one call. `notes`: where the host was slower than the
/// device. Collective.
doc::SecondOrderSamples measure_second_order_on(TimedQueue& queue, comm::Communicator& communicator,
                                                std::span<const std::int64_t> dims,
                                                std::vector<std::string>& notes);

/// Times `count` matrices of each size, one by one and together, by the code that inverts in a
/// step. Collective.
std::vector<doc::BatchSample> measure_batches(TimedQueue& queue, comm::Communicator& communicator,
                                              std::span<const std::int64_t> dims, int count);

// What codecs over tensors cost on a device. Private to torch_adapter.

struct TensorCodecTimes {
  calibrate::CodecSamples samples;
  std::vector<std::string> notes;  // where the host was slower, or waited
};

/// Times a compressor on square matrices of so many elements. Encoding is what StreamCompression
/// does with one tensor: it looks for infinities, adds the residual and copies into the bucket's
/// payload. At the end of the step it chooses the residual to keep. Decoding is that of one rank's
/// payload. Collective.
TensorCodecTimes probe_tensor_codec(comm::Communicator& communicator, TimedQueue& queue,
                                    const doc::Component& compressor,
                                    const std::vector<std::int64_t>& elements);

// Times the collectives of a device's own group. Private to torch_adapter.

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
  void mark() { clock_->set(marks_++, exec::LaneStreams::kComputeStream); }

  comm::TensorGroup& group_;
  comm::Communicator& communicator_;
  c10::Device device_;
  std::unique_ptr<TensorClock> clock_;
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
