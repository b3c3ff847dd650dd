// The first step of error feedback: v = gradient + residual, in the residual's memory.
#pragma once

#include <cstddef>
#include <span>

#include "linerate/compress/codec.hpp"

namespace linerate::compress {

/// v after add_residual(), or after a kernel that adds on its way: the residual's memory, or the
/// gradient if no residual is kept.
inline std::span<const float> corrected(const Input& input) {
  return input.residual.empty() ? input.gradient : std::span<const float>(input.residual);
}
/// residual += gradient, of elements [first, first + count). Nothing if no residual is kept.
void add_residual(const Input& input, std::size_t first, std::size_t count);
inline void add_residual(const Input& input) { add_residual(input, 0, input.gradient.size()); }

}  // namespace linerate::compress
