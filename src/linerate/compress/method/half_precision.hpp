// The two 16-bit floats as a compressor: fp16.cpp and bf16.cpp are its lines.
#pragma once

#include <memory>

#include "linerate/compress/codec.hpp"

namespace linerate::compress {

/// Payload: a 16-bit float an element, 2n bytes, of v / ranks: divided before the cast, as a cast
/// gradient times the ranks would overflow. Ranks add them (all-reduce), and the sum is the mean.
/// Without a residual v beyond the range of the type becomes an infinity, which the mean shows;
/// with one it is cut off at half the range, and the rest is sent in later steps.
std::unique_ptr<const Compressor> half_precision(DType half);

/// Where v is cut off: half the range, so that the ranks' sum of v / ranks stays below the infinity
/// in whatever order, and with whatever roundings, it is made.
constexpr float half_limit(DType half) { return half == DType::f16 ? 0x1p15f : 0x1p127f; }

}  // namespace linerate::compress
