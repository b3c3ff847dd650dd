#include "linerate/compress/bucket_layout.hpp"

#include "linerate/compress/payload.hpp"
#include "linerate/core/error.hpp"

namespace linerate::compress {
namespace {

/// What a part takes in a payload.
std::int64_t room_of(const Round& round) {
  if (round.combine == Combine::sum) return round.bytes;
  return pad4(round.bytes) + (round.is_bound ? kPartSizeBytes : 0);
}

void add_rounds(Part& part, const std::vector<Round>& rounds, BucketLayout& layout) {
  if (layout.rounds.empty())
    for (const Round& r : rounds) layout.rounds.push_back({r.combine, r.dtype, 0, r.is_bound});
  LINERATE_CHECK(layout.rounds.size() == rounds.size(),
                 "a compressor with another number of rounds for each shape");
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    BucketRound& whole = layout.rounds[i];
    LINERATE_CHECK(whole.combine == rounds[i].combine && whole.dtype == rounds[i].dtype &&
                       whole.is_bound == rounds[i].is_bound,
                   "a compressor whose rounds differ in kind by shape");
    part.offset.push_back(whole.elements * size_of(whole.dtype));
    part.bytes.push_back(rounds[i].bytes);
    whole.elements += room_of(rounds[i]) / size_of(whole.dtype);
  }
}

}  // namespace

std::int64_t BucketLayout::coded_elements() const {
  std::int64_t sum = 0;
  for (const Part& part : parts)
    if (part.is_coded()) sum += part.shape.elements;
  return sum;
}

BucketLayout layout_of(const Compressor& compressor, std::span<const Shape> shapes) {
  BucketLayout layout;
  std::int64_t value = 0;
  for (const Shape& shape : shapes) {
    Part& part = layout.parts.emplace_back(Part{shape, value, {}, {}, -1});
    value += shape.elements;
    const std::vector<Round> rounds = compressor.rounds(shape);
    if (rounds.empty()) {
      part.dense = layout.dense_elements;
      layout.dense_elements += shape.elements;
    } else {
      add_rounds(part, rounds, layout);
    }
  }
  if (layout.is_coded() && layout.dense_elements > 0 &&
      layout.rounds.front().combine == Combine::sum && layout.rounds.front().dtype == DType::f32) {
    layout.dense_begin = layout.rounds.front().elements;
    layout.rounds.front().elements += layout.dense_elements;
  }
  return layout;
}

}  // namespace linerate::compress
