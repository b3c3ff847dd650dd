// Arrays of numbers as collectives see them, and how ranks' arrays are combined.
#pragma once

#include <cstdint>

#include "linerate/core/dtype.hpp"
#include "linerate/core/units.hpp"

namespace linerate::comm {

/// How elements of ranks become one; max and min hand a NaN on.
enum class Reduce : std::uint8_t { sum, max, min };

/// Memory of one collective; the caller keeps it alive and untouched until the Work is done.
struct Buffer {
  void* data = nullptr;      // the first element
  Elements count{};          // how many
  DType dtype = DType::f32;  // of each
};
/// The same, only read.
struct ConstBuffer {
  const void* data = nullptr;  // the first element
  Elements count{};            // how many
  DType dtype = DType::f32;    // of each
};

/// A part of what a rank adds, read in place: `scale` times `count` elements.
struct Piece {
  const void* data = nullptr;  // the first element
  Elements count{};            // how many
  double scale = 1;            // of each value
};

}  // namespace linerate::comm
