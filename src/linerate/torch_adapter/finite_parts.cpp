#include "linerate/torch_adapter/finite_parts.hpp"

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <limits>

namespace linerate::torch_adapter {

/// An array's largest magnitude is infinite or a NaN if an element is. So one norm an array finds
/// both.
at::Tensor any_infinite(const std::vector<at::Tensor>& arrays) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<at::Tensor> filled;
  for (const at::Tensor& array : arrays)
    if (array.numel() > 0) filled.push_back(array);
  if (filled.empty()) return at::zeros({}, arrays.at(0).options().dtype(at::kBool));
  const std::vector<at::Tensor> largest = at::_foreach_norm(filled, kInfinity);
  return at::stack(largest).lt(kInfinity).all().logical_not();
}

void FiniteParts::write(const at::Tensor& flags) {
  if (!parts_.empty()) flags.select(0, 0).copy_(any_infinite(parts_));
  parts_.clear();
}

}  // namespace linerate::torch_adapter
