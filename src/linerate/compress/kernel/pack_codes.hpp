// Codes of 1, 2, 4 or 8 bits: a byte each <-> packed, element 0 in the lowest bits of byte 0.
#pragma once

#include <cstddef>
#include <cstdint>

namespace linerate::compress {

/// The lowest `bits` of codes[n] to ceil(n * bits / 8) bytes; unused bits of the last one are 0.
void pack_codes(const std::int8_t* codes, std::size_t n, int bits, std::byte* out);
/// Back to a byte each, with the sign of `bits` bits if `is_signed`.
void unpack_codes(const std::byte* in, std::size_t n, int bits, bool is_signed, std::int8_t* codes);

}  // namespace linerate::compress
