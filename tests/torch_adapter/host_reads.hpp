// Operators for whose answer a device's host would wait.
#pragma once

#include <ATen/record_function.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

namespace linerate::torch_adapter {

/// Counts operators of this thread that read a tensor's values: a device's host would wait there.
class HostReads {
 public:
  HostReads() : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(note))) { seen = 0; }
  ~HostReads() { at::removeCallback(handle_); }
  HostReads(const HostReads&) = delete;
  HostReads& operator=(const HostReads&) = delete;
  static int count() { return seen; }

 private:
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
    constexpr std::array<std::string_view, 5> kReading = {"aten::_local_scalar_dense",
                                                          "aten::nonzero", "aten::equal",
                                                          "aten::masked_select", "aten::_unique2"};
    seen += std::ranges::find(kReading, function.name()) != kReading.end();
    return nullptr;
  }

  static inline thread_local int seen = 0;
  at::CallbackHandle handle_;
};

}  // namespace linerate::torch_adapter
