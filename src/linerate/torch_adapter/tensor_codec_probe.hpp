// What codecs over tensors cost on a device. Private to torch_adapter.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "linerate/calibrate/codec_probe.hpp"
#include "linerate/comm/communicator.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/torch_adapter/timed_queue.hpp"

namespace linerate::torch_adapter {

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
