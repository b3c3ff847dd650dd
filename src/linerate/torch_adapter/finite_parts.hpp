// Whether all means of a step are finite, found out before they are gathered. Private to
// torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace linerate::torch_adapter {

/// Whether an element of any array is infinite or a NaN: a scalar bool tensor, where the arrays
/// are. There are one or more arrays, of any real types. Reads each of them once, by one operator.
at::Tensor any_infinite(const std::vector<at::Tensor>& arrays);

/// Finds out on a device whether the sums of a decoupled exchange are finite, before they are
/// gathered.
///
/// After the reduce-scatters each rank has its part of every sum. The step's flags travel before
/// any gather, so they can tell the other ranks. For example rank 2's part of one bucket holds an
/// infinity. Rank 2 writes 1 into the first flag, and the maximum over the ranks is 1 everywhere.
/// So all ranks take the step's means for zero. All is enqueued in the current stream, in which the
/// collectives are.
///
/// Shapes: parts[n / ranks] of any type; flags u8[n], whose first one is written.
class FiniteParts {
 public:
  /// A rank's part of a sum, which stays as it is until write().
  void add(const at::Tensor& part) { parts_.push_back(part); }
  /// Writes 1 if an element of the parts that were added is not finite, else 0, and forgets the
  /// parts. Without parts the flags stay as they are.
  void write(const at::Tensor& flags);
  bool is_empty() const { return parts_.empty(); }

 private:
  std::vector<at::Tensor> parts_;
};

}  // namespace linerate::torch_adapter
