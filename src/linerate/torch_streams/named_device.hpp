// The device that a name of PyTorch's stands for, on one of several ranks.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace linerate::torch_streams {

/// How many devices of its type this process may use. The type is an accelerator, with streams and
/// events. Throws DeviceError if this PyTorch has none of the type, or no device of this index.
int devices_like(c10::Device device);

/// The device of a name such as "cuda:1", "xpu" or "cpu", as torch.device() takes them. A name
/// without an index stands for the devices of its type in turn. With two of them, the ranks 0, 1, 2
/// of a host (`turn`) get devices 0, 1, 0. Throws UsageError for a text that names no device,
/// DeviceError for a device that is not here.
c10::Device named_device(const std::string& name, int turn);

/// Whether the calling thread's current stream there is capturing a graph: work is then recorded
/// for a replay and does not run. False before LibTorch 2.13, which cannot tell.
bool is_capturing(c10::Device device);

/// "cuda", without an index.
std::string type_name(c10::Device device);

}  // namespace linerate::torch_streams
