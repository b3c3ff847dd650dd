// Decides which code computes on a tensor: code for CPUs, or code for any device. Private to
// torch_adapter.
//
// Code for CPUs loops over memory and reads values. Code for devices consists of ATen's operators
// alone, which a device enqueues.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/where.h>

#include <atomic>

namespace linerate::torch_adapter {

/// While an object lives, code for devices computes on tensors of the CPU, in all threads. So a
/// test can run that code without a device.
class CpuAsDevice {
 public:
  CpuAsDevice() { ++alive_; }
  ~CpuAsDevice() { --alive_; }
  CpuAsDevice(const CpuAsDevice&) = delete;
  CpuAsDevice& operator=(const CpuAsDevice&) = delete;
  static bool is_alive() { return alive_ > 0; }

 private:
  static inline std::atomic<int> alive_ = 0;
};

/// Whether code for CPUs computes on this tensor.
inline bool runs_on_host(const at::Tensor& tensor) {
  return tensor.is_cpu() && !CpuAsDevice::is_alive();
}

/// One of two tensors. On the CPU the answer is read, so nothing is copied; a device computes it.
/// chosen: bool, of one element or of a shape that expands to theirs.
inline at::Tensor choice(const at::Tensor& chosen, const at::Tensor& one, const at::Tensor& other) {
  if (chosen.numel() == 1 && runs_on_host(chosen)) return chosen.item<bool>() ? one : other;
  return at::where(chosen, one, other);
}

}  // namespace linerate::torch_adapter
