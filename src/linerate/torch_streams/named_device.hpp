// The device that a name of PyTorch's stands for, on one of several ranks.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace linerate::torch_streams {

/// How many of its type this process may use: accelerators, with streams and events. Throws
/// DeviceError if this PyTorch has none of the type, or the index is that of none.
int devices_like(c10::Device device);

/// "cuda:1", "xpu", "cpu", as torch.device() takes them. A name without an index is one device of
/// its type after another for `turn` = 0, 1, ...: what ranks of one host count. Throws UsageError
/// for what is no device's name, DeviceError for one that is not here.
c10::Device named_device(const std::string& name, int turn);

/// Whether what the calling thread enqueues there now goes into a graph, to be replayed, instead.
/// False where this LibTorch cannot tell: before 2.13.
bool is_capturing(c10::Device device);

/// "cuda", without an index.
std::string type_name(c10::Device device);

}  // namespace linerate::torch_streams
