// The largest magnitude, as the bits of a float: what all_finite() asks about.
#pragma once

#include <cstdint>
#include <span>

namespace linerate::compress {

/// Of the values' bits without sign, the largest as an integer, which orders magnitudes; 0 for
/// none.
std::uint32_t largest_magnitude_bits(std::span<const float> values);

}  // namespace linerate::compress
