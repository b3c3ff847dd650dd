// Inverses and eigendecompositions of symmetric matrices, in one try each. Private to
// torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace linerate::torch_adapter {

/// Whether no element is infinite or NaN.
bool all_finite(const at::Tensor& tensor);
/// The same of each tensor: bool [tensors], on their device.
at::Tensor which_are_finite(const std::vector<at::Tensor>& tensors);

/// Results of a solver. On a device the host reads none of them.
struct Solved {
  at::Tensor matrices;     // [n, d, d], of no use if it failed
  at::Tensor values = {};  // of eigenvectors: [n, d] >= 0 (a negative one is rounding)
  at::Tensor succeeded;    // bool [n]: all of it is finite
};
/// (symmetric[i] + damping[i] I)^-1 of n matrices of one size, both triangles, by Cholesky in their
/// own type. `symmetric` [n, d, d] is overwritten. damping: [n], of any floating type.
Solved damped_inverses(const at::Tensor& symmetric, const at::Tensor& damping);

/// symmetric[i] = vectors[i] diag(values[i]) vectors[i]ᵀ, one after the other, in their own type;
/// the host waits for each solver's status, and for nothing else.
Solved symmetric_eigen(const at::Tensor& symmetric);

/// Joins tensors in dimension 0. A single one is not copied.
inline at::Tensor joined(const std::vector<at::Tensor>& parts) {
  return parts.size() == 1 ? parts.front() : at::cat(parts);
}
/// Joins tensors in a new dimension 0. A single one is not copied, because the CPU handles factors
/// one by one and an operator takes longer than such a copy.
inline at::Tensor stacked(const std::vector<at::Tensor>& parts) {
  return parts.size() == 1 ? parts.front().unsqueeze(0) : at::stack(parts);
}

// Symmetric matrices as their upper triangles: the form in which factors are kept and sent, and
// inverses sent. Private to kfac and torch_adapter.

/// full[i] [groups, d, d] -> packed[i] [groups * doc::triangle_elements(d)]. Upper triangles are
/// packed row by row with their diagonals. Element (i, j), i <= j, is at i d - i (i - 1) / 2 + j -
/// i. Elements below the diagonal are not read. `packed` may be views of a longer buffer, without
/// gaps, of the same type. On a device matrices of one size are packed together.
void pack_triangles(std::span<const at::Tensor> full, std::span<const at::Tensor> packed);
void pack_triangles(const at::Tensor& full, const at::Tensor& packed);
at::Tensor pack_triangles(const at::Tensor& full);

/// The symmetric matrices, of all arguments one after the other, [matrices, d, d], contiguous.
at::Tensor unpack_triangles(std::span<const at::Tensor> packed, std::int64_t d);
at::Tensor unpack_triangles(const at::Tensor& packed, std::int64_t groups, std::int64_t d);

/// Mean of each matrix's diagonal, of all arguments one after the other, [matrices] f64.
at::Tensor mean_diagonals(std::span<const at::Tensor> packed, std::int64_t d);

// The parts of a KFAC, for the rest of torch_adapter.

class KFAC;
class Preconditioner;
struct KfacStep;

struct KfacInside {
  /// Its layers' blocks, and what is done with them in a step.
  static Preconditioner& preconditioner(const KFAC& kfac);
  static Preconditioner* preconditioner(const KFAC* kfac) {  // null for null
    return kfac ? &preconditioner(*kfac) : nullptr;
  }
  /// The work of step() if a DataParallel shares it among ranks. Empty: this rank is alone.
  static void share(KFAC& kfac, std::function<KfacStep()> step);
};

// Decides which code computes on a tensor: code for CPUs, or code for any device. Private to
// torch_adapter.
//
// Code for CPUs loops over memory and reads values. Code for devices consists of ATen's operators
// alone, which a device enqueues.

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
