// Shared by the payloads of all compressors: sizes, checks, and the mean of several payloads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/compress/codec.hpp"
#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"

namespace linerate::compress {

/// Sections of a payload begin on a 4-byte boundary.
constexpr std::int64_t pad4(std::int64_t bytes) { return (bytes + 3) / 4 * 4; }
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The rounds of a method with one: none if its payload is not smaller than the dense tensor's 4
/// bytes an element.
std::vector<Round> one_round_if_smaller(const Shape& shape, Round round);

/// A round whose payload every rank reads.
inline Round gathered(std::int64_t bytes) { return {.combine = Combine::gather, .bytes = bytes}; }
/// Of at most so many entries after their count, and as a rule fewer.
Round gathered_entries(std::int64_t most, std::int64_t as_a_rule);

/// Throws InputError unless a payload of each rank arrived.
void check_one_a_rank(const Arrived& arrived, std::string_view method);
/// Throws InputError unless one of `bytes` bytes did.
void check_gathered(const Arrived& arrived, std::size_t bytes, std::string_view method);
/// Throws InputError unless one payload arrived, the ranks' sum, of `bytes` bytes.
void check_sum(const Arrived& arrived, std::size_t bytes, std::string_view method);
/// Throws InputError unless this payload has `bytes` bytes.
void check_bytes(std::span<const std::byte> payload, std::size_t bytes, std::string_view method,
                 std::size_t rank);
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
  if (has_size) write_at(block, at, static_cast<std::uint32_t>(sent));
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

// Payloads of entries: f32 values, then their u32 indices, strictly ascending; if the number of
// entries depends on the values, a u32 count first.

inline constexpr std::int64_t kEntryBytes = 8;
inline constexpr std::int64_t kCountBytes = 4;

/// k = max(1, floor(density * n)), at most n; 0 for n = 0.
std::int64_t entries_of(double density, std::int64_t elements);

/// v - D(C(v)) for entries that travel as they are: what is sent leaves the residual, exactly.
/// Nothing if no residual is kept.
void clear_sent(const Selection& sent, std::span<float> residual);

// How the encoded tensors of a bucket lie in its payloads. Planner and executor share this layout.

/// A tensor of a bucket.
struct BucketPart {
  Shape shape;
  std::int64_t value = 0;  // its first element in the bucket
  /// The offset of each round's bytes in one rank's payload, at the latest: parts before it may
  /// take less than their bound. Empty: it travels dense.
  std::vector<std::int64_t> offset, bytes;
  std::int64_t dense = -1;  // its first element among those that travel dense, -1: it does not

  bool is_coded() const { return dense < 0; }
};

/// A round of a bucket: one payload a rank.
struct BucketRound {
  Combine combine = Combine::gather;
  DType dtype = DType::u8;
  std::int64_t elements = 0;  // of `dtype`, of one rank, with the dense ones that follow
  bool is_bound = false;      // each part is its size (u32) and that many bytes, of at most `bytes`
  std::int64_t expected = 0;  // of a bound: elements as a rule
  /// With a bound: ranks tell each other how much they send, and send no more. Else all ranks send
  /// as much as the bound, which is then little more than the usual size.
  bool tells_sizes = false;
};

struct BucketLayout {
  std::vector<BucketPart> parts;  // in the order of the bucket
  std::vector<BucketRound> rounds;
  /// Elements of tensors for which compression does not pay. If the first round sums f32, as the
  /// bucket has, these elements follow the round's own from element `dense_begin` on. Else they are
  /// a payload of their own.
  std::int64_t dense_elements = 0;
  std::int64_t dense_begin = -1;

  bool is_coded() const { return !rounds.empty(); }
  bool has_dense_payload() const { return dense_elements > 0 && dense_begin < 0; }
};

/// `shapes` in the order of the bucket, whose elements are f32; `phase` as Input has it; `name` of
/// the compressor. A bucket without compressed tensors has no rounds. Throws UsageError for
/// rounds() that no payload can have.
BucketLayout layout_of(const Compressor& compressor, std::span<const Shape> shapes, int phase,
                       const std::string& name);

/// Compressor::rounds(shape), or of a phase.
std::vector<Round> rounds_of(const Compressor& compressor, const Shape& shape, int phase);

// Distinct random indices without memory: a keyed bijection of [0, n).

/// A permutation of [0, n), 1 <= n <= 2^32, that depends on (key, n) alone. So at(0) ... at(k - 1)
/// are k distinct indices, which every rank computes without a table of those that are taken.
///
/// A Feistel network permutes [0, 2^bits), with as many bits as n needs. An answer of n or more is
/// put through the network again until it is below n. This is "cycle walking" (Black & Rogaway
/// 2002, "Ciphers with arbitrary finite domains"). Example: n = 5 takes 3 bits. at(2) may walk from
/// 2 to 6, which is no index, and from 6 to 1. Then 1 is the answer. No other start ends at 1,
/// because the walk backwards from 1 meets 6 and then 2.
class DistinctIndices {
 public:
  DistinctIndices(std::uint64_t key, std::uint64_t n);
  /// i < n. Takes fewer than two walks of the network on average, because 2^bits is less than 2 n.
  std::uint64_t at(std::uint64_t i) const {
    do {
      i = permuted(i);
    } while (i >= n_);
    return i;
  }

 private:
  static constexpr int kTurns = 4;  // two rounds each

  static std::uint32_t mixed(std::uint32_t x);
  std::uint64_t permuted(std::uint64_t i) const;

  std::uint64_t n_;
  int low_bits_;
  std::uint32_t low_mask_, high_mask_;
  std::uint32_t keys_[2 * kTurns];
};

enum class Places : std::uint8_t {
  scattered,
  block,  // one random start and what follows it, modulo n: kinder to memory, the same volume
};
/// Distinct places among n elements, the same on all ranks; `first` is added to each.
template <class Index>
void draw_places(std::uint64_t key, std::uint64_t n, Places places, std::uint64_t first,
                 std::span<Index> out) {
  const DistinctIndices scattered(key, n);
  const std::uint64_t start = random_below(key, 0, n);
  for (std::uint64_t j = 0; j < out.size(); ++j)
    out[j] =
        static_cast<Index>(first + (places == Places::block ? (start + j) % n : scattered.at(j)));
}

}  // namespace linerate::compress
