// Whether all means of a step are finite, found out before they are gathered. Private to
// torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace linerate::torch_adapter {

/// Whether an element of an array is infinite or a NaN: bool, of no dimensions, where the arrays
/// are, one or more of them, of any real types. Reads each of them once, by one operator.
at::Tensor any_infinite(const std::vector<at::Tensor>& arrays);

/// Of a decoupled exchange on a device. After the reduce-scatters each rank has its part of every
/// sum; the step's flags, which travel before anything is gathered, tell the others whether those
/// are finite. All is enqueued in the current stream, that of the collectives.
///
/// Shapes: parts[n / ranks] of any type; flags u8[n], whose first one is written.
class FiniteParts {
 public:
  /// A rank's part of a sum, which stays as it is until write().
  void add(const at::Tensor& part) { parts_.push_back(part); }
  /// 1 if something in the parts that were added is not finite, else 0; then there are none. If
  /// there were none the flags stay as they are.
  void write(const at::Tensor& flags);
  bool is_empty() const { return parts_.empty(); }

 private:
  std::vector<at::Tensor> parts_;
};

}  // namespace linerate::torch_adapter
