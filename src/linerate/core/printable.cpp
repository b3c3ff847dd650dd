#include "linerate/core/printable.hpp"

#include <cstdint>

namespace linerate {
namespace {

/// The number of bytes of the UTF-8 character that begins here; 0 if none does.
///
/// The first byte tells the length: below 0x80 one byte, from 0xc2 two, from 0xe0 three, from 0xf0
/// four. Each later byte adds 6 bits. Four things are refused besides broken sequences: control
/// characters, surrogates, codes above 0x10ffff, and codes that a shorter sequence could give.
std::size_t character_at(std::string_view text) {
  const auto byte = [&text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80)
    return (first >= ' ' && first != 0x7f) || first == '\t' || first == '\n' || first == '\r';
  const std::size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return 0;
  std::uint32_t code = first & (0xffU >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3fU);
  }
  const bool control = code < 0xa0, surrogate = code >= 0xd800 && code < 0xe000;
  const bool longer_than_needed = (size == 3 && code < 0x800) || (size == 4 && code < 0x10000);
  return control || surrogate || longer_than_needed || code > 0x10ffff ? 0 : size;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t size = character_at(text);
    if (size == 0)
      out += '?';
    else
      out += text.substr(0, size);
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return out;
}

}  // namespace linerate
