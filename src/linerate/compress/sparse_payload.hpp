// Payloads of entries: f32 values, then their u32 indices, strictly ascending; if the number of
// entries depends on the values, a u32 count first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "linerate/compress/codec.hpp"
#include "linerate/compress/kernel/selection.hpp"

namespace linerate::compress {

inline constexpr std::int64_t kEntryBytes = 8;
inline constexpr std::int64_t kCountBytes = 4;

/// k = max(1, floor(density * n)), at most n; 0 for n = 0.
std::int64_t entries_of(double density, std::int64_t elements);

/// Writes values and indices to the front of `payload`; returns the bytes.
std::size_t write_entries(const Selection& sent, std::span<std::byte> payload);
/// Writes count, values and indices.
std::size_t write_counted_entries(const Selection& sent, std::span<std::byte> payload);
/// v - D(C(v)) for entries that travel as they are: what is sent leaves the residual, exactly.
/// Nothing if no residual is kept.
void clear_sent(const Selection& sent, std::span<float> residual);

/// Entries of one rank's payload, not yet checked.
struct Entries {
  std::span<const std::byte> values, indices;  // of 4 bytes each
  std::size_t count = 0;
};
/// Entries of a payload that is nothing else. Throws InputError unless it has `count` of them.
Entries read_entries(std::span<const std::byte> payload, std::size_t count, std::string_view method,
                     std::size_t rank);
/// For a payload that begins with its count. Throws InputError for a size that is not the count's,
/// and for more than `most` entries.
Entries read_counted_entries(std::span<const std::byte> payload, std::size_t most,
                             std::string_view method, std::size_t rank);

/// mean[i] = (sum of the entries at i, in the order of ranks) / ranks. Throws InputError, before
/// writing anything, if an index is out of range or not above the one before.
void average_entries(const std::vector<Entries>& ranks, const Arrived& arrived,
                     std::span<float> mean, std::string_view method);

}  // namespace linerate::compress
