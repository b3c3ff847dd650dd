// Chooses the streams that tensors of a device are used in.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "linerate/torch_streams/tensor_device.hpp"

namespace linerate::torch_streams {

/// The streams of a device. On the CPU work is done at once when it is enqueued, so there are no
/// streams. An accelerator has a TorchStreamDevice, which gets these arguments.
std::unique_ptr<TensorDevice> make_tensor_device(c10::Device device, std::size_t streams,
                                                 TensorDevice::TaskWork work,
                                                 const std::vector<exec::StreamId>& first = {});

}  // namespace linerate::torch_streams
