// The checks of payloads and of the parts in them. A rank's payload comes from another process,
// which may be of another version or damaged. So sizes are checked before a byte is read, and the
// message names method, payload and tensor.
#include "linerate/compress/payload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"

namespace linerate::compress {

std::vector<Round> one_round_if_smaller(const Shape& shape, Round round) {
  if (round.bytes >= 4 * shape.elements) return {};
  return {round};
}

namespace {

/// Throws InputError unless so many payloads arrived, each of `bytes` bytes if these are known.
void check_arrived(const Arrived& arrived, std::size_t payloads, std::optional<std::size_t> bytes,
                   std::string_view method) {
  if (arrived.payloads.size() != payloads)
    throw InputError(fmt::format("{}: expected {} payloads, found {}", method, payloads,
                                 arrived.payloads.size()));
  for (std::size_t p = 0; bytes && p < payloads; ++p)
    check_bytes(arrived.payloads[p], *bytes, method, p);
}

}  // namespace

void check_one_a_rank(const Arrived& arrived, std::string_view method) {
  check_arrived(arrived, to_index(arrived.ranks), {}, method);
}
void check_gathered(const Arrived& arrived, std::size_t bytes, std::string_view method) {
  check_arrived(arrived, to_index(arrived.ranks), bytes, method);
}
void check_sum(const Arrived& arrived, std::size_t bytes, std::string_view method) {
  check_arrived(arrived, 1, bytes, method);
}

void check_bytes(std::span<const std::byte> payload, std::size_t bytes, std::string_view method,
                 std::size_t rank) {
  if (payload.size() != bytes)
    refuse_payload(method, rank, fmt::format("expected {} bytes, found {}", bytes, payload.size()));
}

void refuse_payload(std::string_view method, std::size_t payload, std::string_view why) {
  throw InputError(fmt::format("{}: payload {}: {}", method, payload, why));
}

void zero_from(std::span<std::byte> payload, std::size_t used) {
  std::fill(payload.begin() + static_cast<std::ptrdiff_t>(used), payload.end(), std::byte{0});
}

void check_zero_from(std::span<const std::byte> payload, std::size_t used, std::string_view method,
                     std::size_t rank) {
  const auto behind = payload.subspan(used);
  if (std::any_of(behind.begin(), behind.end(), [](std::byte b) { return b != std::byte{0}; }))
    refuse_payload(method, rank, "bits after the last element");
}

void read_mean(const Arrived& arrived, std::span<float> mean, std::string_view method) {
  check_sum(arrived, mean.size_bytes(), method);
  std::memcpy(mean.data(), arrived.payloads[0].data(), mean.size_bytes());
  const float share = 1.0f / static_cast<float>(arrived.ranks);
  for (float& element : mean) element *= share;
}

/// The comparisons are written so that no sum can wrap around for a damaged size.
std::span<const std::byte> get_part(std::span<const std::byte> block, std::size_t& at,
                                    bool has_size, std::size_t bytes, std::string_view tensor) {
  const auto fail = [&](std::uint64_t found) {
    throw CommError(
        fmt::format("\"{}\": a rank sent {} bytes, expected at most {} of {} that are left: what "
                    "was exchanged is damaged",
                    tensor, found, bytes, block.size() - std::min(at, block.size())));
  };
  std::size_t size = bytes;
  if (has_size) {
    if (at + kPartSizeBytes > block.size()) fail(kPartSizeBytes);
    size = read_at<std::uint32_t>(block, at);
    if (size > bytes) fail(size);
    at += kPartSizeBytes;
  }
  if (size > block.size() || at > block.size() - size) fail(size);
  const auto part = block.subspan(at, size);
  at += to_index(pad4(static_cast<std::int64_t>(size)));
  return part;
}

void check_sent(std::size_t sent, std::size_t room, bool is_bound, const Sender& sender) {
  if (sent == room || (is_bound && sent < room)) return;
  throw UsageError(fmt::format(
      "compressor {}: \"{}\", encode() of round {}: expected {}{} bytes, as its rounds() state for "
      "{} elements, found {}; return what was written, and state is_bound if that varies",
      sender.method, sender.tensor, sender.round, is_bound ? "at most " : "", room, sender.elements,
      sent));
}

Round gathered_entries(std::int64_t most, std::int64_t as_a_rule) {
  return {Combine::gather, DType::u8, kCountBytes + kEntryBytes * most, true,
          kCountBytes + kEntryBytes * as_a_rule};
}

std::int64_t entries_of(double density, std::int64_t elements) {
  const auto k = static_cast<std::int64_t>(std::floor(density * static_cast<double>(elements)));
  return std::min(std::max<std::int64_t>(1, k), elements);
}

void clear_sent(const Selection& sent, std::span<float> residual) {
  if (residual.empty()) return;
  for (const std::uint32_t i : sent.indices()) residual[i] = 0;
}

// Lays out the encoded tensors of a bucket in the payloads of its rounds. The planner asks once for
// the bytes that a bucket puts on the wire. The executor and the streams ask for the offsets.
//
// Example: a bucket of three tensors under topk(density=0.01, dense_below=1000), with 100,000, 50
// and 20,000 elements. The first takes 1,000 entries of 8 bytes, so its part has offset 0 and 8,000
// bytes. The second is too small for the option, so rounds() is empty and the tensor travels dense.
// The third has offset 8,000 and 1,600 bytes. The payload of the only round has 9,600 bytes. It is
// gathered, so the 50 dense elements need an all-reduce of their own. With powersgd the first round
// sums f32, so the 50 elements would follow the factors in that round.
//
// Rounds come from a program's own compressors, too. So check() refuses, with the shape in the
// message, each list of rounds that the executor cannot run.

namespace {

/// No payload has more bytes than this many times the tensor's own, plus this many. A size beyond
/// that is a mistake in a program's own compressor, such as a count of bits taken for bytes.
constexpr std::int64_t kMostTimes = 8, kMostMore = 4096;

// `refuse(expected, found)` throws the UsageError for a rounds() that no bucket can have.

void check_round(const Round& round, const Shape& shape, const auto& refuse) {
  const std::int64_t most = kMostTimes * 4 * shape.elements + kMostMore;
  if (round.bytes < 0 || round.bytes > most)
    refuse(fmt::format("0 to {} bytes", most), fmt::format("{}", round.bytes));
  if (round.is_bound && (round.expected < 0 || round.expected > round.bytes))
    refuse(fmt::format("as a rule 0 to {} bytes, which is the bound", round.bytes),
           fmt::format("{}", round.expected));
  if (round.combine == Combine::gather && round.dtype != DType::u8)
    refuse("u8 of a payload that is gathered", std::string(name_of(round.dtype)));
  if (round.bytes % size_of(round.dtype) != 0)
    refuse(fmt::format("whole elements of {}", name_of(round.dtype)),
           fmt::format("{} bytes", round.bytes));
}

/// Refuses what the executor cannot run. Several rounds must all be sums. The payload of round i +
/// 1 is made of one sum, not of each rank's payload.
void check(const std::vector<Round>& rounds, const Shape& shape, const auto& refuse) {
  for (const Round& round : rounds) {
    check_round(round, shape, refuse);
    if (rounds.size() > 1 && round.combine == Combine::gather)
      refuse("sums, if there are several rounds", "one that is gathered");
  }
}

/// The bytes that a part takes in a payload. A gathered part is padded to whole words. If some part
/// of the round has only a bound, each part is also preceded by its size.
std::int64_t room_of(const Round& round, bool has_size) {
  if (round.combine == Combine::sum) return round.bytes;
  return pad4(round.bytes) + (has_size ? kPartSizeBytes : 0);
}

/// Takes over, or compares, the kinds of rounds: all tensors of a bucket must have the same. One
/// tensor whose size depends on its values makes the round of the whole bucket a bound.
void join(std::vector<BucketRound>& whole, const std::vector<Round>& rounds, const auto& refuse) {
  if (whole.empty())
    for (const Round& r : rounds) whole.push_back({r.combine, r.dtype, 0, false});
  if (whole.size() != rounds.size())
    refuse(fmt::format("{} rounds, as another tensor of the bucket has", whole.size()),
           fmt::format("{}", rounds.size()));
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    if (whole[i].combine != rounds[i].combine || whole[i].dtype != rounds[i].dtype)
      refuse("the same sums and types for all shapes", fmt::format("others in round {}", i));
    whole[i].is_bound = whole[i].is_bound || rounds[i].is_bound;
  }
}

/// Puts a part at the end of each round. The running length `elements` of a round is the offset of
/// the next part. `expected` runs along with the usual size, where there is one.
void place(BucketPart& part, const std::vector<Round>& rounds, std::vector<BucketRound>& whole) {
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    part.offset.push_back(whole[i].elements * size_of(whole[i].dtype));
    part.bytes.push_back(rounds[i].bytes);
    Round as_a_rule = rounds[i];
    if (as_a_rule.is_bound && as_a_rule.expected > 0) as_a_rule.bytes = as_a_rule.expected;
    if (rounds[i].is_bound && rounds[i].expected == 0) whole[i].tells_sizes = true;
    whole[i].elements += room_of(rounds[i], whole[i].is_bound) / size_of(whole[i].dtype);
    whole[i].expected += room_of(as_a_rule, whole[i].is_bound) / size_of(whole[i].dtype);
  }
}

/// A round with a bound can travel in two ways. Either all ranks pad their payloads to the bound.
/// Or ranks first exchange their sizes and then send only what they have. That costs one more
/// message and, on a device, a wait of the host. So up to an eighth of padding is accepted.
///
/// Example: payloads usually have 900 elements. With a bound of 1,000 ranks pad, because 1,000 is
/// at most 900 + 112. With a bound of 1,100 they tell sizes. If a codec names no usual size, ranks
/// always tell sizes.
void choose_between_sizes_and_padding(BucketRound& round) {
  if (round.is_bound && round.elements > round.expected + round.expected / 8)
    round.tells_sizes = true;
}

}  // namespace

std::vector<Round> rounds_of(const Compressor& compressor, const Shape& shape, int phase) {
  return phase < 0 ? compressor.rounds(shape) : compressor.rounds(shape, phase);
}

BucketLayout layout_of(const Compressor& compressor, std::span<const Shape> shapes, int phase,
                       const std::string& name) {
  BucketLayout layout;
  std::vector<std::vector<Round>> rounds;  // by part
  for (const Shape& shape : shapes) {
    rounds.push_back(rounds_of(compressor, shape, phase));
    if (rounds.back().empty()) continue;
    const auto refuse = [&](const std::string& expected, const std::string& found) {
      throw UsageError(
          fmt::format("compressor {}: rounds() of {} elements in {} rows: expected {}, found {}",
                      name, shape.elements, shape.rows, expected, found));
    };
    check(rounds.back(), shape, refuse);
    join(layout.rounds, rounds.back(), refuse);
  }
  std::int64_t value = 0;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    BucketPart& part = layout.parts.emplace_back(BucketPart{shapes[i], value, {}, {}, -1});
    value += part.shape.elements;
    if (rounds[i].empty()) {
      part.dense = layout.dense_elements;
      layout.dense_elements += part.shape.elements;
    } else {
      place(part, rounds[i], layout.rounds);
    }
  }
  for (BucketRound& round : layout.rounds) choose_between_sizes_and_padding(round);
  if (layout.is_coded() && layout.dense_elements > 0 &&
      layout.rounds.front().combine == Combine::sum && layout.rounds.front().dtype == DType::f32) {
    layout.dense_begin = layout.rounds.front().elements;
    layout.rounds.front().elements += layout.dense_elements;
  }
  return layout;
}

DistinctIndices::DistinctIndices(std::uint64_t key, std::uint64_t n) : n_(n) {
  const int bits = std::bit_width(n - 1);
  low_bits_ = (bits + 1) / 2;
  low_mask_ = static_cast<std::uint32_t>((std::uint64_t{1} << low_bits_) - 1);
  high_mask_ = static_cast<std::uint32_t>((std::uint64_t{1} << (bits - low_bits_)) - 1);
  for (std::uint64_t round = 0; round < 2 * kTurns; ++round)
    keys_[round] = static_cast<std::uint32_t>(random_bits(key, round) >> 32);
}

// The finaliser of MurmurHash3 (Appleby): every bit of x reaches every bit of the answer.
std::uint32_t DistinctIndices::mixed(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}

/// One walk of the network on [0, 2^bits). A turn changes the high half by a function of the low
/// half, then the low half by a function of the high half. Each of the two steps can be undone by
/// repeating it, so the whole is a bijection, whatever mixed() is.
std::uint64_t DistinctIndices::permuted(std::uint64_t i) const {
  auto low = static_cast<std::uint32_t>(i) & low_mask_;
  auto high = static_cast<std::uint32_t>(i >> low_bits_) & high_mask_;
  for (int turn = 0; turn < kTurns; ++turn) {
    high ^= mixed(low ^ keys_[2 * turn]) & high_mask_;
    low ^= mixed(high ^ keys_[2 * turn + 1]) & low_mask_;
  }
  return static_cast<std::uint64_t>(high) << low_bits_ | low;
}

}  // namespace linerate::compress
