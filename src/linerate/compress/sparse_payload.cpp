#include "linerate/compress/sparse_payload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "linerate/compress/payload.hpp"
#include "linerate/core/error.hpp"

namespace linerate::compress {
namespace {

static_assert(std::endian::native == std::endian::little, "payloads are little-endian");

void check_ascending(const Entries& entries, std::size_t elements, std::string_view method,
                     std::size_t rank) {
  bool ascending = true;
  for (std::size_t i = 0; i + 1 < entries.count; ++i)
    ascending &= read_at<std::uint32_t>(entries.indices, 4 * i) <
                 read_at<std::uint32_t>(entries.indices, 4 * i + 4);
  if (!ascending) refuse_payload(method, rank, "expected indices that ascend");
  if (entries.count == 0) return;
  const auto last = read_at<std::uint32_t>(entries.indices, 4 * entries.count - 4);
  if (last >= elements)
    refuse_payload(method, rank,
                   fmt::format("expected indices below {}, found {}", elements, last));
}

}  // namespace

std::int64_t entries_of(double density, std::int64_t elements) {
  const auto k = static_cast<std::int64_t>(std::floor(density * static_cast<double>(elements)));
  return std::min(std::max<std::int64_t>(1, k), elements);
}

/// Values first, then indices: [4 count] bytes each, without gaps.
std::size_t write_entries(const Selection& sent, std::span<std::byte> payload) {
  const std::size_t bytes = 4 * sent.size();
  if (bytes == 0) return 0;  // vectors without memory
  std::memcpy(payload.data(), sent.values().data(), bytes);
  std::memcpy(payload.data() + bytes, sent.indices().data(), bytes);
  return 2 * bytes;
}

std::size_t write_counted_entries(const Selection& sent, std::span<std::byte> payload) {
  write_at(payload, 0, static_cast<std::uint32_t>(sent.size()));
  return kCountBytes + write_entries(sent, payload.subspan(kCountBytes));
}

void clear_sent(const Selection& sent, std::span<float> residual) {
  if (residual.empty()) return;
  for (const std::uint32_t i : sent.indices()) residual[i] = 0;
}

Entries read_entries(std::span<const std::byte> payload, std::size_t count, std::string_view method,
                     std::size_t rank) {
  if (payload.size() != 8 * count)
    refuse_payload(method, rank,
                   fmt::format("expected {} bytes, found {}", 8 * count, payload.size()));
  return {payload.first(4 * count), payload.subspan(4 * count), count};
}

Entries read_counted_entries(std::span<const std::byte> payload, std::size_t most,
                             std::string_view method, std::size_t rank) {
  if (payload.size() < kCountBytes)
    refuse_payload(method, rank, fmt::format("expected a count, found {} bytes", payload.size()));
  const auto count = read_at<std::uint32_t>(payload, 0);
  if (count > most)
    refuse_payload(method, rank, fmt::format("expected at most {} entries, found {}", most, count));
  return read_entries(payload.subspan(kCountBytes), count, method, rank);
}

/// Goes through the mean block by block, so that the sums stay in the cache. `next` is a rank's
/// place in its list: indices ascend, so the entries of a block follow those of the block before.
///
/// Example: blocks of 4,096 elements; rank 0 sends the indices 5 and 9,000, rank 1 sends 5, rank 2
/// sends 4,100. Block 0 takes the first entry of ranks 0 and 1, and adds them in that order. Block
/// 1 takes the only entry of rank 2. Block 2 takes the second entry of rank 0. Each list is read
/// once.
void average_entries(const std::vector<Entries>& ranks, const Arrived& arrived,
                     std::span<float> mean, std::string_view method) {
  for (std::size_t r = 0; r < ranks.size(); ++r) check_ascending(ranks[r], mean.size(), method, r);
  std::vector<std::size_t> next(ranks.size(), 0);  // entries of each rank that are added
  average(arrived, mean, [&](std::size_t r, std::size_t first, std::span<float> out) {
    const Entries& entries = ranks[r];
    std::size_t i = next[r];
    for (; i < entries.count; ++i) {
      const std::size_t at = read_at<std::uint32_t>(entries.indices, 4 * i) - first;
      if (at >= out.size()) break;
      out[at] += read_at<float>(entries.values, 4 * i);
    }
    next[r] = i;
  });
}

}  // namespace linerate::compress
