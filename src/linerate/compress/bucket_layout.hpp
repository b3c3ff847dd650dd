// How the encoded tensors of a bucket lie in its payloads. Planner and executor share this layout.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "linerate/compress/codec.hpp"

namespace linerate::compress {

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
  std::int64_t coded_elements() const;
  bool has_dense_payload() const { return dense_elements > 0 && dense_begin < 0; }
};

/// `shapes` in the order of the bucket, whose elements are f32; `phase` as Input has it; `name` of
/// the compressor. A bucket without compressed tensors has no rounds. Throws UsageError for
/// rounds() that no payload can have.
BucketLayout layout_of(const Compressor& compressor, std::span<const Shape> shapes, int phase,
                       const std::string& name);

/// Compressor::rounds(shape), or of a phase.
std::vector<Round> rounds_of(const Compressor& compressor, const Shape& shape, int phase);

}  // namespace linerate::compress
