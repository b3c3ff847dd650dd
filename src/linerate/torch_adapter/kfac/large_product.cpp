#include "linerate/torch_adapter/kfac/large_product.hpp"

#include <ATen/Context.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mkldnn_linear.h>

namespace linerate::torch_adapter {
namespace {

/// Products of fewer multiplications than this do not go through oneDNN, because its preparation
/// costs more than it saves.
constexpr std::int64_t kLarge = std::int64_t{1} << 24;

bool goes_through_onednn(const at::Tensor& x, const at::Tensor& y) {
  return x.scalar_type() == at::kFloat && x.is_cpu() && at::globalContext().hasMKLDNN() &&
         at::globalContext().userEnabledMkldnn() && x.size(0) * y.size(0) * x.size(1) >= kLarge;
}

}  // namespace

at::Tensor times_transpose(const at::Tensor& x, const at::Tensor& y) {
  if (!goes_through_onednn(x, y)) return at::matmul(x, y.t());
  return at::mkldnn_linear(x.contiguous().to_mkldnn(), y.contiguous()).to_dense();
}

}  // namespace linerate::torch_adapter
