// FNV-1a, 64 bits: stable across machines, for fingerprints that ranks compare.
#pragma once

#include <cstdint>
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

}  // namespace linerate
