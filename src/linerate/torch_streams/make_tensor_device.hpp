// Chooses the streams that tensors of a device are used in.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "linerate/torch_streams/tensor_device.hpp"

namespace linerate::torch_streams {

/// Of the CPU, where what is enqueued is done at once; of an accelerator, TorchStreamDevice, whose
/// arguments these are.
std::unique_ptr<TensorDevice> make_tensor_device(c10::Device device, std::size_t streams,
                                                 TensorDevice::TaskWork work,
                                                 const std::vector<exec::StreamId>& first = {});

}  // namespace linerate::torch_streams
