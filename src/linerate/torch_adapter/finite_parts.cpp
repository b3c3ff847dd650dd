#include "linerate/torch_adapter/finite_parts.hpp"

#include <ATen/ops/isfinite.h>

namespace linerate::torch_adapter {

void FiniteParts::write(const at::Tensor& flags) {
  at::Tensor finite;
  for (const at::Tensor& part : parts_) {
    const at::Tensor here = at::isfinite(part).all();
    finite = finite.defined() ? finite.logical_and(here) : here;
  }
  if (finite.defined()) flags.select(0, 0).copy_(finite.logical_not());
  parts_.clear();
}

}  // namespace linerate::torch_adapter
