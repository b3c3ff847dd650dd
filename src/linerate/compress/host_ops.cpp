// The half-precision codec's functions on the host.
#include "linerate/compress/host_ops.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "linerate/compress/cast.hpp"
#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {

void HostOps::narrow(const Sending& tensor, DType half, float share) {
  narrow_scaled(tensor.gradient, share, half, tensor.payload.data());
  tensor.sent = 2 * tensor.elements();
}

HostOps::Flag HostOps::narrow_and_keep(const Sending& tensor, DType half, const HalfScale& scale) {
  tensor.sent = 2 * tensor.elements();
  return compress::narrow_and_keep(tensor.gradient, tensor.residual, scale, half,
                                   tensor.payload.data()) > scale.limit;
}

void HostOps::widen(const Arriving& tensor, DType half, float by) {
  const std::span<float> mean = tensor.mean;
  check_sum(tensor, 2 * mean.size(), name_of(half));
  cast(tensor.payloads[0].data(), half, mean.data(), DType::f32, mean.size());
  if (by == 1) return;
  for (float& value : mean) value *= by;
}

// Grids on the host, for qsgd, maxmin and ternary codes. For each block of elements the encoder
// adds the residual, finds each bucket's head, and turns values into codes of a byte. It subtracts
// the sent points from the residual, and packs the codes. The block's codes and values stay in the
// first-level cache all the time. The grids are read back from the payload, so that sender and
// receivers use the same rounded numbers.
//
// Example: qsgd with 4 bits and buckets of 128, a tensor of 300 elements. There are three buckets,
// so 12 bytes of norms come first. Then come 150 bytes of codes, and 2 bytes of padding.

namespace {

/// Elements that are worked on at a time: their codes and values stay in the first-level cache.
constexpr std::size_t kBlock = kRoundingBlock;
static_assert(kBlock == kDecodeBlock);
using Codes = std::array<std::int8_t, kBlock>;

/// Swaps the codes 10 and 11 in a byte of four codes. So 11, which is -1 in two's complement,
/// becomes 10 of ternary codes, and the reverse. The low bit of each code is flipped if its high
/// bit is set.
std::byte swap_ternary(std::byte codes) { return codes ^ (codes >> 1 & std::byte{0x55}); }

/// Encodes or decodes one tensor.
class GridCoder {
 public:
  GridCoder(const GridFormat& format, std::size_t elements)
      : format_(format),
        n_(elements),
        bucket_(format.bucket ? format.bucket : n_),
        codes_at_(to_index(heads_bytes(format, static_cast<std::int64_t>(n_)))),
        bytes_(to_index(bytes_of(format, static_cast<std::int64_t>(n_)))) {}

  std::size_t encode(const Input& input, std::span<std::byte> payload) const {
    zero_from(payload.first(bytes_), codes_end());
    if (format_.bucket == 0) {
      BucketHead head;
      format_.heads_of(input.gradient, format_, &head);
      write_head(0, head, payload);
    }
    for (std::size_t first = 0; first < n_; first += kBlock) encode_block(first, input, payload);
    return bytes_;
  }

  void decode(const Arrived& arrived, std::span<float> mean) const {
    check_gathered(arrived, bytes_, format_.method);
    for (std::size_t p = 0; p < arrived.payloads.size(); ++p) check(arrived.payloads[p], p);
    average(arrived, mean, [&](std::size_t p, std::size_t first, std::span<float> out) {
      Codes codes;
      if (!read_codes(arrived.payloads[p], first, out.size(), codes))
        refuse_payload(format_.method, p, "a code that is none");
      BlockGrids room;
      add_codes(codes.data(), grids_at(first, out.size(), arrived.payloads[p], room), false, out);
    });
  }

 private:
  using BlockHeads = std::array<BucketHead, kBlock / 32>;
  using BlockGrids = std::array<Grid, kBlock / 32>;

  void encode_block(std::size_t first, const Input& input, std::span<std::byte> payload) const {
    const std::size_t count = std::min(kBlock, n_ - first);
    add_residual(input, first, count);
    const std::span<const float> v = corrected(input).subspan(first, count);
    if (format_.bucket) {
      BlockHeads heads;
      format_.heads_of(v, format_, heads.data());
      for (std::size_t at = 0, b = 0; at < count; at += bucket_, ++b)
        write_head(first + at, heads[b], payload);
    }
    Codes codes;
    BlockGrids room;
    const Grids grids = grids_at(first, count, payload, room);
    to_codes(v, grids, {format_.is_stochastic, input.keys.own, first}, codes.data());
    if (!input.residual.empty())
      add_codes(codes.data(), grids, true, input.residual.subspan(first, count));
    write_codes(codes, first, count, payload);
  }

  /// Grids of elements [first, first + count) from the payload.
  Grids grids_at(std::size_t first, std::size_t count, std::span<const std::byte> payload,
                 BlockGrids& room) const {
    const std::size_t buckets = format_.bucket ? (count + bucket_ - 1) / bucket_ : 1;
    for (std::size_t b = 0; b < buckets; ++b) room[b] = grid_at(first + b * bucket_, payload);
    return {room.data(), bucket_, format_.top, format_.is_signed};
  }

  std::size_t codes_end() const { return codes_at_ + code_bytes(n_); }
  void write_codes(const Codes& codes, std::size_t first, std::size_t count,
                   std::span<std::byte> payload) const {
    const auto to = payload.subspan(codes_at_ + code_bytes(first), code_bytes(count));
    pack_codes(codes.data(), count, format_.bits, to.data());
    if (format_.ternary) std::transform(to.begin(), to.end(), to.begin(), swap_ternary);
  }
  /// False if a code is the most negative number, which stands for no point of the grid. The sender
  /// never writes it, so the payload is damaged.
  bool read_codes(std::span<const std::byte> payload, std::size_t first, std::size_t count,
                  Codes& codes) const {
    auto from = payload.subspan(codes_at_ + code_bytes(first), code_bytes(count));
    std::array<std::byte, kBlock / 4> swapped;
    if (format_.ternary) {
      std::transform(from.begin(), from.end(), swapped.begin(), swap_ternary);
      from = std::span(swapped).first(from.size());
    }
    unpack_codes(from.data(), count, format_.bits, format_.is_signed, codes.data());
    if (!format_.is_signed) return true;
    int least = 0;
    for (std::size_t i = 0; i < count; ++i) least = std::min<int>(least, codes[i]);
    return least >= -format_.top;
  }
  /// Blocks begin at whole bytes.
  std::size_t code_bytes(std::size_t count) const {
    return (count * to_index(format_.bits) + 7) / 8;
  }

  std::size_t head_at(std::size_t element) const {
    return element / bucket_ * 4 * format_.head_size;
  }
  void write_head(std::size_t element, const BucketHead& head, std::span<std::byte> payload) const {
    for (std::size_t i = 0; i < format_.head_size; ++i)
      write_at(payload, head_at(element) + 4 * i, head[i]);
  }
  Grid grid_at(std::size_t element, std::span<const std::byte> payload) const {
    BucketHead head = {};
    for (std::size_t i = 0; i < format_.head_size; ++i)
      head[i] = read_at<float>(payload, head_at(element) + 4 * i);
    return format_.grid_of(head);
  }
  /// Refuses a payload that no sender writes: a scale that is not finite or below zero, or bits
  /// after the last code.
  void check(std::span<const std::byte> payload, std::size_t p) const {
    for (std::size_t element = 0; element < n_; element += bucket_) {
      const Grid grid = grid_at(element, payload);
      if (!std::isfinite(grid.base) || !std::isfinite(grid.unit) || grid.unit < 0)
        refuse_payload(format_.method, p, "a scale that no bucket has");
    }
    const std::size_t used = n_ * to_index(format_.bits) % 8;
    if (used != 0 && std::to_integer<int>(payload[codes_end() - 1]) >> used)
      refuse_payload(format_.method, p, "bits after the last element");
    check_zero_from(payload, codes_end(), format_.method, p);
  }

  const GridFormat& format_;
  std::size_t n_, bucket_, codes_at_, bytes_;
};

}  // namespace

void HostOps::send(const Sending& tensor, const GridFormat& format) {
  tensor.sent = GridCoder(format, tensor.elements()).encode(tensor, tensor.payload);
}
void HostOps::receive(const Arriving& tensor, const GridFormat& format) {
  GridCoder(format, tensor.mean.size()).decode(tensor, tensor.mean);
}

// Writes and reads payloads of entries (payload.hpp) in memory of the host. The methods that
// choose the entries are in method/: topk, mstopk, sidco, threshold and dgc.
//
// A payload of `threshold` may have all values in place of entries, with kAllValues as the count.
// Example of three ranks: rank 0 sends the entries 5 and 9, rank 1 all values, rank 2 none. Rank
// 1's payload is given the indices 0, 1, 2 and so on, so that one loop averages all three.

namespace {

static_assert(std::endian::native == std::endian::little, "payloads are little-endian");

/// Values first, then indices: [4 count] bytes each, without gaps.
std::size_t write_entries(const Selection& sent, bool is_counted, std::span<std::byte> payload) {
  const std::size_t head = is_counted ? kCountBytes : 0, bytes = 4 * sent.size();
  if (is_counted) write_at(payload, 0, static_cast<std::uint32_t>(sent.size()));
  if (bytes == 0) return head;  // vectors without memory
  std::memcpy(payload.data() + head, sent.values().data(), bytes);
  std::memcpy(payload.data() + head + bytes, sent.indices().data(), bytes);
  return head + 2 * bytes;
}

std::size_t write_all(const Input& input, std::span<std::byte> payload) {
  const std::span<const float> v = corrected(input);
  write_at(payload, 0, kAllValues);
  for (std::size_t i = 0; i < v.size(); ++i)
    write_at(payload, kCountBytes + 4 * i, v[i] + 0.0f);  // -0.0 travels as +0.0
  std::fill(input.residual.begin(), input.residual.end(), 0.0f);
  return kCountBytes + v.size_bytes();
}

/// Entries of one rank's payload.
struct Entries {
  std::span<const std::byte> values, indices;  // of 4 bytes each
  std::size_t count = 0;
};

/// Refuses indices that do not ascend, or that are out of range.
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

/// Refuses a payload unless it has the format's number of entries or, if it begins with their
/// count, as many as that says and no more than the format's number. A payload with all of n values
/// is given indices, so that all ranks are averaged in one way. `all` has these: 0, 1, 2 and so on.
/// It grows once, because every rank has n elements, so entries of earlier ranks stay valid.
Entries read_entries(std::span<const std::byte> payload, const EntryFormat& format, std::size_t n,
                     std::size_t rank, std::vector<std::uint32_t>& all) {
  const auto refuse = [&](const std::string& why) { refuse_payload(format.method, rank, why); };
  std::size_t count = to_index(format.most_of(static_cast<std::int64_t>(n)));
  if (format.is_counted) {
    if (payload.size() < kCountBytes)
      refuse(fmt::format("expected a count, found {} bytes", payload.size()));
    const auto said = read_at<std::uint32_t>(payload, 0);
    if (format.may_be_all && said == kAllValues) {
      check_bytes(payload, kCountBytes + 4 * n, format.method, rank);
      for (auto i = static_cast<std::uint32_t>(all.size()); i < n; ++i) all.push_back(i);
      return {payload.subspan(kCountBytes), std::as_bytes(std::span(all)), n};
    }
    if (said > count) refuse(fmt::format("expected at most {} entries, found {}", count, said));
    count = said;
    payload = payload.subspan(kCountBytes);
  }
  check_bytes(payload, 8 * count, format.method, rank);
  return {payload.first(4 * count), payload.subspan(4 * count), count};
}

}  // namespace

void HostOps::send_entries(const Sending& tensor, const Chosen& chosen, const EntryFormat& format) {
  if (!chosen.is_all) clear_sent(chosen.sent, tensor.residual);
  tensor.sent = chosen.is_all ? write_all(tensor, tensor.payload)
                              : write_entries(chosen.sent, format.is_counted, tensor.payload);
}

/// Nothing is written before all indices are checked. Then it goes through the mean block by block,
/// so that the sums stay in the cache. `next` is a rank's place in its list: indices ascend, so the
/// entries of a block follow those of the block before.
///
/// Example: blocks of 4,096 elements; rank 0 sends the indices 5 and 9,000, rank 1 sends 5, rank 2
/// sends 4,100. Block 0 takes the first entry of ranks 0 and 1, and adds them in that order. Block
/// 1 takes the only entry of rank 2. Block 2 takes the second entry of rank 0. Each list is read
/// once.
void HostOps::average_entries(const Arriving& tensor, const EntryFormat& format) {
  check_one_a_rank(tensor, format.method);
  const std::size_t n = tensor.mean.size();
  std::vector<std::uint32_t> all;
  std::vector<Entries> ranks;
  for (std::size_t r = 0; r < tensor.payloads.size(); ++r) {
    ranks.push_back(read_entries(tensor.payloads[r], format, n, r, all));
    check_ascending(ranks[r], n, format.method, r);
  }
  std::vector<std::size_t> next(ranks.size(), 0);  // entries of each rank that are added
  const auto add = [&](std::size_t r, std::size_t first, std::span<float> out) {
    const Entries& entries = ranks[r];
    std::size_t i = next[r];
    for (; i < entries.count; ++i) {
      const std::size_t at = read_at<std::uint32_t>(entries.indices, 4 * i) - first;
      if (at >= out.size()) break;
      out[at] += read_at<float>(entries.values, 4 * i);
    }
    next[r] = i;
  };
  compress::average(tensor, tensor.mean, add);
}

}  // namespace linerate::compress
