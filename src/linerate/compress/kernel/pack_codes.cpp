// Packs codes of few bits without vector instructions: eight codes at a time are one word of 64
// bits.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"

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

/// The code at `place` of a byte. It is shifted to the top, then back down. An arithmetic shift
/// fills it up with its own sign.
template <int bits, bool is_signed>
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

// Finds the k largest magnitudes of a tensor exactly, in little more than one pass.
//
// 1. A sample of 16,384 elements gives a bound that somewhat more than k magnitudes should reach.
// 2. One pass adds the residual and picks all that reach the bound. 3. Histograms over these
// candidates give the k-th largest, and the rest is dropped.
//
// Example: k = 1,000 of 1,000,000. The sample has some 16 of the 1,000 largest. Its 36th largest is
// taken as the bound, so that bad luck of four standard deviations still leaves 1,000 above it.
// About 2,200 candidates reach it. If fewer than k or far too many do, the histograms are made of
// the whole tensor instead. So the sample changes the time, never the answer.

namespace {

/// Walks down a histogram from its highest bin until `k` elements are passed. k is then the rank
/// within the bin that is returned. Example: bins of 5, 2 and 1 elements, and k = 3. Bin 2 has one
/// element, so k becomes 2. Bin 1 has two, so the answer is bin 1 and k = 2.
std::uint32_t bin_of_kth(std::span<const std::uint32_t> bins, std::size_t& k) {
  std::uint32_t bin = static_cast<std::uint32_t>(bins.size()) - 1;
  for (; bins[bin] < k; --bin) k -= bins[bin];
  return bin;
}

/// A histogram of bits 20 and up of every magnitude, which are the exponent and three bits more.
/// There are four histograms, because neighbours mostly share a bin, and one counter would wait for
/// itself.
std::uint32_t upper_bits(std::span<const float> values, std::size_t& k) {
  constexpr std::size_t kBins = 2048, kTables = 4;
  std::array<std::uint32_t, kBins * kTables> tables{};
  std::size_t i = 0;
  for (; i + kTables <= values.size(); i += kTables)
    for (std::size_t t = 0; t < kTables; ++t)
      ++tables[t * kBins + (magnitude_bits(values[i + t]) >> 20)];
  for (; i < values.size(); ++i) ++tables[magnitude_bits(values[i]) >> 20];
  for (std::size_t bin = 0; bin < kBins; ++bin)
    for (std::size_t t = 1; t < kTables; ++t) tables[bin] += tables[t * kBins + bin];
  return bin_of_kth(std::span(tables).first(kBins), k);
}

/// The ten bits from `shift` up of the k-th of those magnitudes whose bits above them are `upper`.
std::uint32_t next_bits(std::span<const float> values, std::uint32_t upper, int shift,
                        std::size_t& k) {
  std::array<std::uint32_t, 1024> bins{};
  for (const float value : values) {
    const std::uint32_t bits = magnitude_bits(value) >> shift;
    if (bits >> 10 == upper) ++bins[bits & 1023];
  }
  return bin_of_kth(bins, k);
}

/// Elements sampled before the pass: each costs a cache miss.
constexpr std::size_t kSampled = 16384;
/// Below this many there is no sample: all are candidates.
constexpr std::size_t kSelectedBySampleFrom = 4 * kSampled;

/// Bits that somewhat more than k magnitudes of v reach: the r-th largest of a sample. r is four
/// standard deviations above the sample's share of k. The sample has one element of every stretch,
/// at a hashed place. Regular places would meet the periods that rows and channels give a tensor.
template <class At>
std::uint32_t sampled_bound(std::size_t n, std::size_t k, At at) {
  const double share = static_cast<double>(k) * kSampled / static_cast<double>(n);
  const auto r = static_cast<std::size_t>(share + 4 * std::sqrt(share) + 4);
  if (r >= kSampled / 2) return 0;
  std::vector<float> sample(kSampled);
  const std::size_t stretch = n / kSampled;
  for (std::size_t j = 0; j < kSampled; ++j)
    sample[j] = at(j * stretch + random_below(0, j, stretch));
  return cut_of_largest(sample, r).bits;
}

/// Beyond so many candidates the histograms cost less.
std::size_t most_candidates(std::size_t n, std::size_t k) { return std::max(4 * k, n / 8); }

/// Without candidates: by histograms of all of v, then a pass that picks.
void select_by_histogram(std::span<const float> v, std::size_t k, Selection& out) {
  Cut cut = cut_of_largest(v, k);
  Selection part;
  out.clear();
  for (std::size_t i = 0; i < v.size() && out.size() < k; i += kChunk) {
    part.clear();
    select(v.subspan(i, std::min(kChunk, v.size() - i)), cut.bits + (cut.ties == 0), i, part);
    part.keep(cut);
    out.reserve_more(part.size());
    for (std::size_t j = 0; j < part.size(); ++j) {
      cut.ties -= magnitude_bits(part.values()[j]) == cut.bits;
      out.append(part.values()[j], part.indices()[j]);
    }
  }
}

/// Keeps the k largest of candidates that hold all magnitudes above some bound.
void narrow(std::size_t k, Selection& out) { out.keep(cut_of_largest(out.values(), k)); }

}  // namespace

Cut cut_of_largest(std::span<const float> values, std::size_t k) {
  const std::uint32_t top = upper_bits(values, k);
  const std::uint32_t middle = top << 10 | next_bits(values, top, 10, k);
  const std::uint32_t bits = middle << 10 | next_bits(values, middle, 0, k);
  return {bits, k};
}

void add_and_select_largest(const Input& input, std::size_t k, Selection& out) {
  const std::size_t n = input.gradient.size();
  std::uint32_t bound = 0;
  if (n >= kSelectedBySampleFrom)
    bound = sampled_bound(n, k, [&](std::size_t i) {
      return input.residual.empty() ? input.gradient[i] : input.residual[i] + input.gradient[i];
    });
  out.clear();
  const std::size_t limit = n < kSelectedBySampleFrom ? n : most_candidates(n, k);
  if (add_and_select(input, bound, limit, out) && out.size() >= k)
    narrow(k, out);
  else
    select_by_histogram(corrected(input), k, out);
}

void select_largest(std::span<const float> v, std::size_t k, Selection& out) {
  add_and_select_largest({v, {}, {}, 1}, k, out);
}

}  // namespace linerate::compress
