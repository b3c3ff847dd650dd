// Writes and reads payloads of entries (sparse_payload.hpp) in memory of the host. The methods that
// choose the entries are in method/: topk, mstopk, sidco, threshold and dgc.
//
// A payload of `threshold` may have all values in place of entries, with kAllValues as the count.
// Example of three ranks: rank 0 sends the entries 5 and 9, rank 1 all values, rank 2 none. Rank
// 1's payload is given the indices 0, 1, 2 and so on, so that one loop averages all three.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "linerate/compress/host_ops.hpp"
#include "linerate/compress/kernel/residual.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/sparse_payload.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {
namespace {

/// Whether a payload that may have a flag has all values.
bool is_all(std::span<const std::byte> payload) {
  return payload.size() >= kCountBytes && read_at<std::uint32_t>(payload, 0) == kAllValues;
}

std::size_t write_all(const Input& input, std::span<std::byte> payload) {
  const std::span<const float> v = corrected(input);
  write_at(payload, 0, kAllValues);
  for (std::size_t i = 0; i < v.size(); ++i)
    write_at(payload, kCountBytes + 4 * i, v[i] + 0.0f);  // -0.0 travels as +0.0
  std::fill(input.residual.begin(), input.residual.end(), 0.0f);
  return kCountBytes + v.size_bytes();
}

}  // namespace

void HostOps::send_entries(const Sending& tensors, const Chosen& chosen,
                           const EntryFormat& format) {
  for (std::size_t t = 0; t < chosen.size(); ++t) {
    auto& [input, payload, sent] = tensors.items[t];
    const Selection& entries = chosen[t]->sent;
    if (chosen[t]->is_all) {
      sent = write_all(input, payload);
      continue;
    }
    clear_sent(entries, input.residual);
    sent = format.is_counted ? write_counted_entries(entries, payload)
                             : write_entries(entries, payload);
  }
}

/// Payloads that have all values are given indices, so that all ranks are averaged in one way.
/// `indices` only grows, and only for such payloads. A vector's memory may move when it grows, but
/// each payload with all values has the same number of elements, so that it grows once.
HostOps::Damage HostOps::average_entries(const Arriving& tensors, const EntryFormat& format) {
  for (const auto& [arrived, mean] : tensors.items) {
    check_one_a_rank(arrived, format.method);
    const std::size_t n = mean.size();
    const std::size_t most = to_index(format.most_of(static_cast<std::int64_t>(n)));
    std::vector<std::uint32_t> indices;
    std::vector<Entries> ranks;
    for (std::size_t r = 0; r < arrived.payloads.size(); ++r) {
      const auto& payload = arrived.payloads[r];
      if (!format.is_counted) {
        ranks.push_back(read_entries(payload, most, format.method, r));
        continue;
      }
      if (!format.may_be_all || !is_all(payload)) {
        ranks.push_back(read_counted_entries(payload, most, format.method, r));
        continue;
      }
      if (const std::size_t expected = kCountBytes + 4 * n; payload.size() != expected)
        refuse_payload(format.method, r,
                       fmt::format("expected {} bytes, found {}", expected, payload.size()));
      for (auto i = static_cast<std::uint32_t>(indices.size()); i < n; ++i) indices.push_back(i);
      ranks.push_back({payload.subspan(kCountBytes), std::as_bytes(std::span(indices)), n});
    }
    compress::average_entries(ranks, arrived, mean, format.method);
  }
  return {};
}

}  // namespace linerate::compress
