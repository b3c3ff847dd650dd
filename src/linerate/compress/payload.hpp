// Shared by the payloads of all compressors: sizes, checks, and the mean of several payloads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "linerate/compress/codec.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {

/// Sections of a payload begin on a 4-byte boundary.
constexpr std::int64_t pad4(std::int64_t bytes) { return (bytes + 3) / 4 * 4; }
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The rounds of a method with one: none if its payload is not smaller than the dense tensor's 4
/// bytes an element.
std::vector<Round> one_round_if_smaller(const Shape& shape, Round round);

/// Throws InputError unless a payload of each rank arrived.
void check_one_a_rank(const Arrived& arrived, std::string_view method);
/// Throws InputError unless one of `bytes` bytes did.
void check_gathered(const Arrived& arrived, std::size_t bytes, std::string_view method);
/// Throws InputError unless one payload arrived, the ranks' sum, of `bytes` bytes.
void check_sum(const Arrived& arrived, std::size_t bytes, std::string_view method);
/// Throws InputError that names method and payload.
[[noreturn]] void refuse_payload(std::string_view method, std::size_t payload,
                                 std::string_view why);

/// Fills a payload after its `used` bytes with zeros, so that equal tensors have equal payloads.
/// check_zero_from() refuses a payload that has others there.
void zero_from(std::span<std::byte> payload, std::size_t used);
void check_zero_from(std::span<const std::byte> payload, std::size_t used, std::string_view method,
                     std::size_t rank);

/// Reads a sum of f32 over the ranks as their mean. Throws InputError for another size.
void read_mean(const Arrived& arrived, std::span<float> mean, std::string_view method);

/// A number of a payload, at any address.
template <class T>
T read_at(std::span<const std::byte> payload, std::size_t offset) {
  T value;
  std::memcpy(&value, payload.data() + offset, sizeof value);
  return value;
}
template <class T>
void write_at(std::span<std::byte> payload, std::size_t offset, T value) {
  std::memcpy(payload.data() + offset, &value, sizeof value);
}

/// Elements that decoders work on at a time: in the first-level cache, a multiple of every block.
inline constexpr std::size_t kDecodeBlock = 4096;

/// mean[i] = (sum over payloads in the order of ranks, in f32) * (1 / ranks). `add(payload, first,
/// out)` adds what payload number `payload` says of elements [first, first + out.size()) to out.
/// A block of elements at a time, so that sums stay in the cache while payloads stream by.
///
/// Example with three ranks: block 0 is set to zeros, and ranks 0, 1 and 2 add to it in this order.
/// It is multiplied by f32(1/3). Then comes block 1. Each rank does this in the same order, so all
/// have the same bits.
template <class Add>
void average(const Arrived& arrived, std::span<float> mean, Add&& add) {
  const float share = 1.0f / static_cast<float>(arrived.ranks);
  for (std::size_t first = 0; first < mean.size(); first += kDecodeBlock) {
    const auto out = mean.subspan(first, std::min(kDecodeBlock, mean.size() - first));
    std::fill(out.begin(), out.end(), 0.0f);
    for (std::size_t p = 0; p < arrived.payloads.size(); ++p) add(p, first, out);
    if (arrived.ranks > 1)
      for (float& element : out) element *= share;
  }
}

/// A part whose size depends on the values begins with its bytes (u32). Such parts follow one
/// another without gaps. So a part's place is known only when the sizes of those before it are
/// read.
inline constexpr std::int64_t kPartSizeBytes = 4;

constexpr bool has_size(const Round& round) {
  return round.is_bound && round.combine == Combine::gather;
}

/// Writes a coded part at `at`, after its size if the Plan knows only a bound, and returns what it
/// takes: whole words.
template <typename Encode>
std::size_t put_part(std::span<std::byte> block, std::size_t at, bool has_size,
                     const Encode& encode) {
  const std::size_t head = has_size ? kPartSizeBytes : 0;
  const std::size_t sent = encode(block.subspan(at + head));
  if (has_size) {
    const auto size = static_cast<std::uint32_t>(sent);
    std::memcpy(block.data() + at, &size, sizeof size);
  }
  const auto whole = to_index(pad4(static_cast<std::int64_t>(sent)));
  std::fill_n(block.data() + at + head + sent, whole - sent, std::byte{0});
  return head + whole;
}

/// The coded part at `at`, which moves past it: as many bytes as its size says, or `bytes`. What
/// another rank wrote is checked: throws CommError that names the tensor.
std::span<const std::byte> get_part(std::span<const std::byte> block, std::size_t& at,
                                    bool has_size, std::size_t bytes, std::string_view tensor);

/// The sender of a payload, for messages.
struct Sender {
  std::string_view method, tensor;
  int round = 0;
  std::int64_t elements = 0;
};
/// Throws UsageError for a codec that says it wrote more than its room, or less if that is exact.
void check_sent(std::size_t sent, std::size_t room, bool is_bound, const Sender& sender);

}  // namespace linerate::compress
