#include "linerate/compress/bucket_layout.hpp"

#include <fmt/format.h>

#include "linerate/compress/payload.hpp"
#include "linerate/core/error.hpp"

namespace linerate::compress {
namespace {

/// So many times what a tensor takes, and so many bytes: no payload is larger.
constexpr std::int64_t kMostTimes = 8, kMostMore = 4096;

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

/// What the executor can run.
void check(const std::vector<Round>& rounds, const Shape& shape, const Refusal& refuse) {
  for (const Round& round : rounds) {
    check_round(round, shape, refuse);
    if (rounds.size() > 1 && round.combine == Combine::gather)
      refuse("sums, if there are several rounds", "one that is gathered");
  }
}

/// What a part takes in a payload.
std::int64_t room_of(const Round& round, bool has_size) {
  if (round.combine == Combine::sum) return round.bytes;
  return pad4(round.bytes) + (has_size ? kPartSizeBytes : 0);
}

/// The kinds of a bucket's rounds: those of its tensors. One whose size depends on its values makes
/// the whole a bound.
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

/// Padding of an eighth at most saves the message before it, and on a device a wait of the host.
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
