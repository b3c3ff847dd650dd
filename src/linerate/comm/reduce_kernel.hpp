// out[n] = a[n] op b[n], element by element. f16 and bf16 are widened to f32, combined and rounded
// back to nearest even (one rounding an element); integers wrap. If an element is a NaN, max and
// min give a NaN. `out` may be `a` or `b`, but must not overlap either in part.
//
// Every rank has to compute the same bits, on whatever processor it runs. So vector and scalar code
// round alike, and no product is contracted with a sum.
#pragma once

#include <cstddef>
#include <cstdint>

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
/// add_scaled_into() step by step: both products are written, a stretch at a time, and summed.
void add_scaled_in_stretches(void* out, const void* a, double scale_a, const void* b,
                             double scale_b, std::size_t elements, DType dtype);
/// The same sums one element at a time. Tests compare the vector form with these.
void reduce_into_scalar(void* out, const void* a, const void* b, std::size_t elements, DType dtype,
                        Reduce op);
void scale_into_scalar(void* out, const void* in, double scale, std::size_t elements, DType dtype);

/// Conversions of one element, as the scalar twin does them.
float float_of_f16(std::uint16_t bits);
std::uint16_t f16_of_float(float value);
float float_of_bf16(std::uint16_t bits);
std::uint16_t bf16_of_float(float value);

}  // namespace linerate::comm
