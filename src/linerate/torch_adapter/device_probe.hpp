// What codecs and K-FAC's parts cost where tensors lie, by the code that enqueues a step there.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "linerate/calibrate/codec_probe.hpp"
#include "linerate/calibrate/probe.hpp"
#include "linerate/comm/communicator.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/torch_adapter/stream_steps.hpp"

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

}  // namespace linerate::torch_adapter
