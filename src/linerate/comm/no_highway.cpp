// Replaces reduce_simd.cpp in builds without Highway: one element at a time.
#include "linerate/comm/reduce_kernel.hpp"

namespace linerate::comm {

void reduce_into(void* out, const void* a, const void* b, std::size_t elements, DType dtype,
                 Reduce op) {
  reduce_into_scalar(out, a, b, elements, dtype, op);
}

void scale_into(void* out, const void* in, double scale, std::size_t elements, DType dtype) {
  scale_into_scalar(out, in, scale, elements, dtype);
}

void add_scaled_into(void* out, const void* a, double scale_a, const void* b, double scale_b,
                     std::size_t elements, DType dtype) {
  add_scaled_in_stretches(out, a, scale_a, b, scale_b, elements, dtype);
}

}  // namespace linerate::comm
