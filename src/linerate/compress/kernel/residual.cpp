// Compiled once per instruction set, picked at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linerate/compress/kernel/residual.cpp"
#include "linerate/compress/kernel/fixed_lanes.hpp"
// clang-format off
#include <hwy/foreach_target.h>  // includes this file once per target
#include <hwy/highway.h>
// clang-format on

#include "linerate/compress/kernel/kernels.hpp"

HWY_BEFORE_NAMESPACE();
namespace linerate::compress::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void add_vectors(const float* gradient, float* residual, std::size_t n) {
  const hn::CappedTag<float, 16> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::Add(hn::LoadU(d, residual + i), hn::LoadU(d, gradient + i)), d, residual + i);
  for (; i < n; ++i) residual[i] += gradient[i];
}

}  // namespace linerate::compress::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace linerate::compress {

HWY_EXPORT(add_vectors);

void add_residual(const Input& input, std::size_t first, std::size_t count) {
  if (input.residual.empty()) return;
  HWY_DYNAMIC_DISPATCH(add_vectors)
  (input.gradient.data() + first, input.residual.data() + first, count);
}

}  // namespace linerate::compress
#endif  // HWY_ONCE
