#include "linerate/torch_adapter/device_probe.hpp"

#include <ATen/Parallel.h>

#include <optional>

#include "linerate/calibrate/host_probe.hpp"
#include "linerate/comm/agreement.hpp"
#include "linerate/torch_adapter/second_order_probe.hpp"
#include "linerate/torch_adapter/tensor_codec_probe.hpp"
#include "linerate/torch_adapter/timed_queue.hpp"
#include "linerate/torch_streams/named_device.hpp"

namespace linerate::torch_adapter {

calibrate::DeviceSamples measure_on_device(comm::Communicator& communicator,
                                           const calibrate::DeviceWork& work) {
  at::set_num_threads(work.threads);
  const int turn = calibrate::rank_on_machine(communicator);
  std::optional<TimedQueue> queue;
  comm::require_success(communicator, "device",
                        [&] { queue.emplace(torch_streams::named_device(work.device, turn)); });
  calibrate::DeviceSamples samples{.device = queue->type()};
  for (const doc::Component& component : work.codecs) {
    TensorCodecTimes found = probe_tensor_codec(communicator, *queue, component,
                                                calibrate::CodecProbeOptions{}.elements);
    samples.codecs.push_back(std::move(found.samples));
    samples.notes.insert(samples.notes.end(), found.notes.begin(), found.notes.end());
  }
  if (work.second_order)
    samples.second_order =
        measure_second_order_on(*queue, communicator, kInverseDimensions, samples.notes);
  return samples;
}

}  // namespace linerate::torch_adapter
