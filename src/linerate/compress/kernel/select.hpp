// Picks the elements of a tensor whose magnitude reaches a threshold, at the speed of memory. On
// the way it adds the residual, if that is still to be done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "linerate/compress/codec.hpp"
#include "linerate/compress/kernel/residual.hpp"
#include "linerate/compress/kernel/selection.hpp"

namespace linerate::compress {

/// Elements that passes over a tensor work on at a time if several follow each other: half a
/// first-level cache. A multiple of every kernel's lanes.
inline constexpr std::size_t kChunk = 4096;

/// Appends to `out` the elements of v whose magnitude's bits (kernel/magnitude.hpp) are at least
/// `least`, in order; v[0] has index `first`. A value -0.0 is handed on as +0.0.
void select(std::span<const float> v, std::uint32_t least, std::size_t first, Selection& out);

/// add_residual() and select() in one pass. Picks nothing more once `out` holds more than `limit`:
/// then it returns false, and all of v is there nevertheless.
bool add_and_select(const Input& input, std::uint32_t least, std::size_t limit, Selection& out);

/// How many elements have a magnitude whose bits are at least `least`.
std::size_t count_at_least(std::span<const float> v, std::uint32_t least);

}  // namespace linerate::compress
