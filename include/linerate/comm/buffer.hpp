// Arrays of numbers as collectives see them, and how ranks' arrays are combined.
#pragma once

#include <cstdint>

#include "linerate/core/dtype.hpp"
#include "linerate/core/units.hpp"

namespace linerate::comm {

enum class Reduce : std::uint8_t { sum, max, min };

/// Memory of one collective; the caller keeps it alive and untouched until the Work is done.
struct Buffer {
  void* data = nullptr;
  Elements count{};
  DType dtype = DType::f32;
};
struct ConstBuffer {
  const void* data = nullptr;
  Elements count{};
  DType dtype = DType::f32;
};

/// A part of what a rank adds, read in place: `scale` times `count` elements.
struct Piece {
  const void* data = nullptr;
  Elements count{};
  double scale = 1;
};

}  // namespace linerate::comm
