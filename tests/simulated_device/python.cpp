// What Python asks of the simulated devices: torch.ops.load_library() registers it.
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <string>

#include "simulated_device/simulated_device.hpp"
#include "simulated_device/streamed_backend.hpp"

namespace linerate::simulated {
namespace {

std::string lines(const std::map<std::string, std::int64_t>& counted) {
  std::string all;
  for (const auto& [what, times] : counted) all += std::to_string(times) + " x " + what + "\n";
  return all;
}

/// The group of this name, whose CPU memory some back end exchanges, exchanges that of simulated
/// devices from now on.
void serve(const std::string& group_name) {
  const auto group = ::c10d::resolve_process_group(group_name);
  group->setBackend(c10::DeviceType::PrivateUse1, ::c10d::ProcessGroup::BackendType::CUSTOM,
                    streamed(group->getBackend(c10::DeviceType::CPU)));
}

TORCH_LIBRARY(simulated_device, library) {
  library.def("serve(str group_name) -> ()", &serve);
  library.def("conflicts(int device) -> str", [](std::int64_t device) {
    return lines(asked_of(static_cast<int>(device)).conflicts);
  });
  library.def("host_waits(int device) -> str", [](std::int64_t device) {
    return lines(asked_of(static_cast<int>(device)).host_waits);
  });
  library.def("launches(int device) -> int", [](std::int64_t device) {
    return asked_of(static_cast<int>(device)).all_launches();
  });
  library.def("forget(int device) -> ()",
              [](std::int64_t device) { forget(static_cast<int>(device)); });
}

}  // namespace
}  // namespace linerate::simulated
