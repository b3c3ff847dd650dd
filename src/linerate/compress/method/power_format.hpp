// Signed powers of two: what natural sends.
#pragma once

#include <cstdint>

#include "linerate/doc/option_reader.hpp"

namespace linerate::compress {

/// Both are padded with zeros to 4 bytes.
enum class PowerFormat : std::uint8_t {
  nine_bits,   // groups of kernel/powers.hpp
  eight_bits,  // u32 exponent of code 127, as f32 has it, then a byte an element
};
std::int64_t bytes_of(PowerFormat format, std::int64_t n);

}  // namespace linerate::compress
