// in[n] of one floating-point type -> out[n] of another: what a narrower wire type costs.
#pragma once

#include <cstddef>

#include "linerate/core/dtype.hpp"

namespace linerate::compress {

/// f32 to f16 and bf16, and back.
bool can_cast(DType from, DType to);

/// Rounds to nearest even; what is too large becomes infinite, a NaN stays one. `in` and `out` do
/// not overlap. Throws UsageError unless can_cast().
void cast(const void* in, DType from, void* out, DType to, std::size_t elements);

}  // namespace linerate::compress
