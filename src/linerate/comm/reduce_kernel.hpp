// out[n] = a[n] op b[n], element by element. f16 and bf16 are widened to f32, combined and rounded
// back to nearest even (one rounding an element); integers wrap. If an element is a NaN, max and
// min give a NaN. `out` may be `a` or `b`, but must not overlap either in part.
//
// Every rank has to compute the same bits, on whatever processor it runs. So all instruction sets
// round alike, and no product is contracted with a sum.
#pragma once

#include <cstddef>

#include "linerate/comm/buffer.hpp"
#include "linerate/core/dtype.hpp"

namespace linerate::comm {

/// The vector form, chosen once for this processor.
void reduce_into(void* out, const void* a, const void* b, std::size_t elements, DType dtype,
                 Reduce op);
/// scale_into: out[n] = scale * in[n], rounded in the array's type as LibTorch multiplies by a
/// number. add_scaled_into: out[n] = scale_a * a[n] + scale_b * b[n], with the roundings of two
/// scale_into() and a sum. Floating-point types.
void scale_into(void* out, const void* in, double scale, std::size_t elements, DType dtype);
void add_scaled_into(void* out, const void* a, double scale_a, const void* b, double scale_b,
                     std::size_t elements, DType dtype);

}  // namespace linerate::comm
