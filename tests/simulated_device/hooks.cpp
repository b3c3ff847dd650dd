// What PyTorch asks of an accelerator besides operators; its name; the titles of tasks.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/record_function.h>

#include <cstring>

#include "simulated_device/memory.hpp"
#include "simulated_device/state.hpp"

namespace linerate::simulated {
namespace {

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isPinnedPtr(const void* p) const override { return is_pinned(p); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  at::Device getDeviceFromPtr(void*) const override { return device(of_thread().device); }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(of_thread().device);
  }
  void setCurrentDevice(c10::DeviceIndex d) const override { of_thread().device = d; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    c10::StorageImpl& it = *storage.unsafeGetStorageImpl();
    c10::DataPtr fresh = device_allocator().allocate(bytes);
    if (const std::size_t kept = std::min(bytes, it.nbytes()))
      std::memcpy(for_kernels(fresh.get()), for_kernels(it.data()), kept);
    it.set_data_ptr_noswap(std::move(fresh));
    it.set_nbytes(bytes);
  }
};

/// A range that a program opens (a task of a Plan, say) is what its thread does until it closes it.
std::unique_ptr<at::ObserverContext> open_task(const at::RecordFunction& range) {
  of_thread().tasks.emplace_back(range.name());
  return nullptr;
}
void close_task(const at::RecordFunction&, at::ObserverContext*) {
  if (!of_thread().tasks.empty()) of_thread().tasks.pop_back();
}

const bool registered = [] {
  static Hooks hooks;
  c10::register_privateuse1_backend("sim");
  at::RegisterPrivateUse1HooksInterface(&hooks);
  at::addGlobalCallback(
      at::RecordFunctionCallback(&open_task, &close_task).scopes({at::RecordScope::USER_SCOPE}));
  return true;
}();

}  // namespace
}  // namespace linerate::simulated
