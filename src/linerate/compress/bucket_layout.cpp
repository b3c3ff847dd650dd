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
#include "linerate/compress/bucket_layout.hpp"

#include <fmt/format.h>

#include "linerate/compress/payload.hpp"
#include "linerate/core/error.hpp"

namespace linerate::compress {
namespace {

/// No payload has more bytes than this many times the tensor's own, plus this many. A size beyond
/// that is a mistake in a program's own compressor, such as a count of bits taken for bytes.
constexpr std::int64_t kMostTimes = 8, kMostMore = 4096;

/// Throws the UsageError for a rounds() that no bucket can have. The message begins with the
/// compressor and the shape.
class Refusal {
 public:
  Refusal(const std::string& name, const Shape& shape)
      : place_(fmt::format("compressor {}: rounds() of {} elements in {} rows", name,
                           shape.elements, shape.rows)) {}
  [[noreturn]] void operator()(const std::string& expected, const std::string& found) const {
    throw UsageError(fmt::format("{}: expected {}, found {}", place_, expected, found));
  }

 private:
  std::string place_;
};

void check_round(const Round& round, const Shape& shape, const Refusal& refuse) {
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
void check(const std::vector<Round>& rounds, const Shape& shape, const Refusal& refuse) {
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
void join(std::vector<BucketRound>& whole, const std::vector<Round>& rounds,
          const Refusal& refuse) {
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

std::int64_t BucketLayout::coded_elements() const {
  std::int64_t sum = 0;
  for (const BucketPart& part : parts)
    if (part.is_coded()) sum += part.shape.elements;
  return sum;
}

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
    const Refusal refuse(name, shape);
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

}  // namespace linerate::compress
