// Devices by name, as PyTorch writes them. A device without an index is chosen by the rank's turn
// on its host. Example: three ranks on a host with two devices take cuda:0, cuda:1 and cuda:0.
#include "linerate/torch_streams/named_device.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "linerate/core/error.hpp"

namespace linerate::torch_streams {
namespace {

c10::Device parsed_device(const std::string& name) {
  try {
    return c10::Device(name);
  } catch (const c10::Error&) {  // it lists 20 types that have no streams
    throw UsageError(fmt::format(
        "device \"{}\": expected cpu, or an accelerator as PyTorch names it, found neither; name "
        "one such as cuda, cuda:1 or xpu",
        name));
  }
}

template <typename Stream>
bool captures(const Stream& stream) {
  if constexpr (requires { stream.is_capturing(); }) return stream.is_capturing();
  return false;
}

}  // namespace

int devices_like(c10::Device device) {
  // The CPU and meta tensors have a guard too, one without streams.
  if (device.is_cpu() || device.is_meta() || !c10::impl::hasDeviceGuardImpl(device.type()))
    throw DeviceError(fmt::format(
        "device {}: expected one with streams and events, found that this PyTorch has none of "
        "this type; take cpu, or build with a PyTorch for the device",
        device.str()));
  const int count = c10::impl::VirtualGuardImpl(device.type()).deviceCount();
  if (count == 0)
    throw DeviceError(fmt::format(
        "device {}: expected a device of this type, found none that this process may use; check "
        "its driver and what hides devices (CUDA_VISIBLE_DEVICES), or take cpu",
        device.str()));
  if (device.index() >= count)
    throw DeviceError(fmt::format(
        "device {}: expected an index below the number of devices, found {} of them that this "
        "process may use; name one of these",
        device.str(), count));
  return count;
}

c10::Device named_device(const std::string& name, int turn) {
  const c10::Device device = parsed_device(name);
  if (device.is_cpu()) return c10::Device(c10::kCPU);
  const int count = devices_like(device);
  if (device.has_index()) return device;
  return c10::Device(device.type(), static_cast<c10::DeviceIndex>(turn % count));
}

bool is_capturing(c10::Device device) {
  return !device.is_cpu() && captures(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

std::string type_name(c10::Device device) {
  return c10::DeviceTypeName(device.type(), /*lower_case=*/true);
}

}  // namespace linerate::torch_streams
