// What codecs and K-FAC's parts cost where tensors lie, by the code that enqueues a step there.
#pragma once

#include "linerate/calibrate/device_probe.hpp"
#include "linerate/comm/communicator.hpp"

namespace linerate::torch_adapter {

/// Measures in f32 by the device's events (on the CPU by the host's clock). Returns medians of
/// rounds, means over ranks, which measure at once. Ranks of one machine take its devices in turn
/// if the name has no index. Sets the threads of operators, and they stay set. A
/// calibrate::DeviceProbe, with its errors.
calibrate::DeviceSamples measure_on_device(comm::Communicator& communicator,
                                           const calibrate::DeviceWork& work);

}  // namespace linerate::torch_adapter
