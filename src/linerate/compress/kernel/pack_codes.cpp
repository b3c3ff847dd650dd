// Packs codes of few bits without vector instructions: eight codes at a time are one word of 64
// bits.
#include "linerate/compress/kernel/pack_codes.hpp"

#include <algorithm>
#include <cstring>

namespace linerate::compress {
namespace {

/// Moves eight codes from the bytes of a word to its lowest 8 * bits. Neighbours move together in
/// pairs, then pairs of pairs, then the two fours. Example with 2 bits: code 1 begins at bit 8 and
/// moves down by 6, next to code 0. Codes 2 and 3 then have bits 16 to 19, and move down by 12.
/// Codes 4 to 7 are at bits 32 to 39 then, and move down by 24. Three steps replace seven.
template <int bits>
std::uint64_t fold(std::uint64_t word) {
  constexpr std::uint64_t code = (1u << bits) - 1;
  constexpr std::uint64_t pair = (1u << 2 * bits) - 1;
  constexpr std::uint64_t four = (std::uint64_t{1} << 4 * bits) - 1;
  word &= code * 0x0101010101010101u;
  word = (word | word >> (8 - bits)) & (pair * 0x0001000100010001u);
  word = (word | word >> (16 - 2 * bits)) & (four * 0x0000000100000001u);
  return word | word >> (32 - 4 * bits);
}

template <int bits>
void pack(const std::int8_t* codes, std::size_t n, std::byte* out) {
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8, out += bits) {
    std::uint64_t word;
    std::memcpy(&word, codes + i, 8);
    word = fold<bits>(word);
    std::memcpy(out, &word, bits);
  }
  if (i == n) return;
  std::uint64_t word = 0;
  std::memcpy(&word, codes + i, n - i);
  word = fold<bits>(word);
  std::memcpy(out, &word, ((n - i) * bits + 7) / 8);
}

template <int bits, bool is_signed>
/// The code at `place` of a byte. It is shifted to the top, then back down. An arithmetic shift
/// fills it up with its own sign.
std::int8_t code_of(std::byte in, int place) {
  const auto top =
      static_cast<std::uint8_t>(std::to_integer<unsigned>(in) << (8 - bits - bits * place));
  if constexpr (is_signed)
    return static_cast<std::int8_t>(static_cast<std::int8_t>(top) >> (8 - bits));
  return static_cast<std::int8_t>(top >> (8 - bits));
}

template <int bits, bool is_signed>
void unpack(const std::byte* in, std::size_t n, std::int8_t* codes) {
  constexpr std::size_t kEach = 8 / bits;
  const std::size_t whole = n / kEach;
  for (std::size_t byte = 0; byte < whole; ++byte)
    for (std::size_t j = 0; j < kEach; ++j)
      codes[byte * kEach + j] = code_of<bits, is_signed>(in[byte], static_cast<int>(j));
  for (std::size_t i = whole * kEach; i < n; ++i)
    codes[i] = code_of<bits, is_signed>(in[i / kEach], static_cast<int>(i % kEach));
}

template <int bits>
void unpack_either(const std::byte* in, std::size_t n, bool is_signed, std::int8_t* codes) {
  is_signed ? unpack<bits, true>(in, n, codes) : unpack<bits, false>(in, n, codes);
}

}  // namespace

void pack_codes(const std::int8_t* codes, std::size_t n, int bits, std::byte* out) {
  if (bits == 1) return pack<1>(codes, n, out);
  if (bits == 2) return pack<2>(codes, n, out);
  if (bits == 4) return pack<4>(codes, n, out);
  std::memcpy(out, codes, n);
}

void unpack_codes(const std::byte* in, std::size_t n, int bits, bool is_signed,
                  std::int8_t* codes) {
  if (bits == 1) return unpack_either<1>(in, n, is_signed, codes);
  if (bits == 2) return unpack_either<2>(in, n, is_signed, codes);
  if (bits == 4) return unpack_either<4>(in, n, is_signed, codes);
  std::memcpy(codes, in, n);
}

}  // namespace linerate::compress
