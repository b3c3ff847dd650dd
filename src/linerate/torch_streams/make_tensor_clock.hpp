// Chooses what times tensors of a device.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "linerate/torch_streams/tensor_clock.hpp"

namespace linerate::torch_streams {

/// The clock of a device. On the CPU a mark is over as soon as it is set, and its time is the
/// host's. An accelerator has events that take times. The device is one that make_tensor_device()
/// takes.
std::unique_ptr<TensorClock> make_tensor_clock(c10::Device device);

}  // namespace linerate::torch_streams
