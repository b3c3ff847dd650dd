#include "linerate/compress/bucket_layout.hpp"

#include "linerate/compress/payload.hpp"
#include "linerate/core/error.hpp"

namespace linerate::compress {
namespace {

/// What a part takes in a payload.
std::int64_t room_of(const Round& round, bool has_size) {
  if (round.combine == Combine::sum) return round.bytes;
  return pad4(round.bytes) + (has_size ? kPartSizeBytes : 0);
}

/// The kinds of a bucket's rounds: those of its tensors. One whose size depends on its values makes
/// the whole a bound.
void join(std::vector<BucketRound>& whole, const std::vector<Round>& rounds) {
  if (whole.empty())
    for (const Round& r : rounds) whole.push_back({r.combine, r.dtype, 0, false});
  LINERATE_CHECK(whole.size() == rounds.size(),
                 "a compressor with another number of rounds for each shape");
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    LINERATE_CHECK(whole[i].combine == rounds[i].combine && whole[i].dtype == rounds[i].dtype,
                   "a compressor whose rounds differ in kind by shape");
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

BucketLayout layout_of(const Compressor& compressor, std::span<const Shape> shapes, int phase) {
  BucketLayout layout;
  std::vector<std::vector<Round>> rounds;  // by part
  for (const Shape& shape : shapes) {
    rounds.push_back(rounds_of(compressor, shape, phase));
    if (!rounds.back().empty()) join(layout.rounds, rounds.back());
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
