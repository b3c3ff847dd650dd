// Which code computes on a tensor: that for CPUs, or that for any device. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/where.h>

#include <atomic>

namespace linerate::torch_adapter {

/// While one lives, in all threads, tensors of the CPU are computed on as a device's are: a test's
/// way to that code without one.
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

/// Whether code may loop over the tensor's memory: the CPU's. Elsewhere operators of ATen alone
/// compute, which a device enqueues.
inline bool runs_on_host(const at::Tensor& tensor) {
  return tensor.is_cpu() && !CpuAsDevice::is_alive();
}

/// One of two tensors. The CPU's answer is there, so that nothing is copied; a device computes it.
/// chosen: bool, of one element or of a shape that expands to theirs.
inline at::Tensor choice(const at::Tensor& chosen, const at::Tensor& one, const at::Tensor& other) {
  if (chosen.numel() == 1 && runs_on_host(chosen)) return chosen.item<bool>() ? one : other;
  return at::where(chosen, one, other);
}

}  // namespace linerate::torch_adapter
