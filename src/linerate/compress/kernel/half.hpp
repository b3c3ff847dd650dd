// gradient[n] (+ residual[n]) -> 16-bit floats[n], divided by the number of ranks before the cast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "linerate/core/dtype.hpp"

namespace linerate::compress {

/// out[i] = the f16 or bf16 next to gradient[i] * share, ties to even. `out` has 2 bytes an
/// element.
void narrow_scaled(std::span<const float> gradient, float share, DType half, std::byte* out);

/// The numbers with which v is sent in 16 bits.
struct HalfScale {
  float share;  // v is multiplied by it before the cast
  float back;   // 1 / share
  float limit;  // where v is cut off
};
/// With error feedback, in one pass: v = gradient + residual is cut off at +-limit and sent. The
/// rest, v - up(out) * back, stays in `residual`. Returns the largest magnitude of v.
float narrow_scaled(std::span<const float> gradient, std::span<float> residual,
                    const HalfScale& scale, DType half, std::byte* out);

/// out[i] = the f32 of in[i].
void widen(const std::byte* in, DType half, std::span<float> out);

}  // namespace linerate::compress
