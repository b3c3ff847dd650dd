// Sums of outer products. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

namespace linerate::torch_adapter {

/// sum[d, d] += alpha columns columnsᵀ, its upper triangle alone. columns[d, n], any strides; sum
/// has rows without gaps.
void add_symmetric_product(const at::Tensor& columns, double alpha, const at::Tensor& sum);

}  // namespace linerate::torch_adapter
