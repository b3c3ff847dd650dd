// Turns floats into neighbouring powers of two, at random so that the mean is the float, and back.
// Only integers are used: a float's bits are ordered as its magnitudes, and its exponent is a
// shift.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace linerate::compress {

/// The wire of 9 bits: groups of 32 elements, with 4 bytes of signs and 32 of exponents. Exponents
/// are as f32 has them: 0 is zero, and e from 1 to 254 is 2^(e - 127). A last group of m elements
/// has ceil(m / 8) bytes of signs and m of exponents.
constexpr std::size_t power_bytes(std::size_t n) { return n + (n + 7) / 8; }

/// v = gradient, or with a residual gradient + residual, and v - sent stays there. The number of
/// gradient[0] in the stream `key` (rounding_bits.hpp) is `first`; no more than a block of it.
void to_powers(std::span<const float> gradient, std::span<float> residual, std::uint64_t key,
               std::uint64_t first, std::byte* out);
/// out[n] += the powers of `in`. False if one is none: e = 255.
bool add_powers(const std::byte* in, std::span<float> out);

/// The wire of 8 bits: the sign, and 7 bits c. 0 is zero, and c stands for 2^(top - 127 - 127 + c).
/// So `top` (1..254) is the exponent of c = 127, as f32 has it. A magnitude below the least power
/// goes to that power or to 0.
void to_short_powers(std::span<const float> v, std::uint32_t top, std::uint64_t key,
                     std::uint64_t first, std::byte* out);
/// The same, and v -= what is sent.
void to_short_powers_and_keep(std::span<float> v, std::uint32_t top, std::uint64_t key,
                              std::uint64_t first, std::byte* out);
/// False if a code stands for no f32.
bool add_short_powers(const std::byte* in, std::uint32_t top, std::span<float> out);

}  // namespace linerate::compress
