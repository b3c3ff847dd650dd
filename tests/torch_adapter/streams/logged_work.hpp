// A device's work that only says where it was done.
#pragma once

#include "linerate/doc/plan.hpp"
#include "linerate/torch_adapter/streams/torch_stream_device.hpp"
#include "torch_adapter/streams/logged_guard.hpp"

namespace linerate::support {

/// Notes down the device and the stream that are current when it is called.
inline torch_adapter::TorchStreamDevice::TaskWork logged_work(const doc::Plan& plan) {
  return [&plan](const exec::StreamWork& work) {
    const c10::DeviceIndex device = current_device().index();
    const auto variant = static_cast<std::int32_t>(&work.graph - plan.variants.data());
    guard_log().calls.push_back({.kind = GuardCall::Kind::work,
                                 .device = device,
                                 .stream = current_stream(device).id(),
                                 .id = work.id,
                                 .variant = variant});
  };
}

}  // namespace linerate::support
