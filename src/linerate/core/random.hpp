// A counter-based random stream. A value depends on (key, counter) alone, and never on the order of
// calls or on the thread. So ranks that draw value 7 of key (seed, step) get the same number, even
// if one of them has drawn no other.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace linerate {

/// SplitMix64 finaliser (Steele, Lea, Flood 2014) over a Weyl sequence keyed by `key`.
constexpr std::uint64_t random_bits(std::uint64_t key, std::uint64_t counter) {
  std::uint64_t z = key + (counter + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
/// Mixes two keys into one stream key: (seed, step), (stream, parameter), ...
constexpr std::uint64_t random_key(std::uint64_t a, std::uint64_t b) {
  return random_bits(random_bits(a, 0) ^ b, 1);
}
/// Uniform in [0, 1) with 53 bits.
constexpr double random_unit(std::uint64_t key, std::uint64_t counter) {
  return static_cast<double>(random_bits(key, counter) >> 11) * 0x1p-53;
}
__extension__ typedef unsigned __int128 Wide;
/// Uniform in [0, n), n > 0 (multiply-shift; bias below 2^-32 for n < 2^32).
constexpr std::uint64_t random_below(std::uint64_t key, std::uint64_t counter, std::uint64_t n) {
  return static_cast<std::uint64_t>((static_cast<Wide>(random_bits(key, counter)) * n) >> 64);
}

// FNV-1a, 64 bits: stable across machines, for fingerprints that ranks and files compare.

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
