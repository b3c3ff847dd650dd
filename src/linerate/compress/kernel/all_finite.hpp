// The largest magnitude, as the bits of a float, for all_finite().
#pragma once

#include <cstdint>
#include <span>

namespace linerate::compress {

/// The largest of the values' bits without sign as an integer, which orders magnitudes; 0 for none.
std::uint32_t largest_magnitude_bits(std::span<const float> values);

}  // namespace linerate::compress
