// The two-phase exchange of one tensor, as numbers: every rank owns a chunk. Phase 1: each rank
// encodes every chunk for its owner. The owner decodes what the ranks sent of it, and encodes the
// mean again; phase 2: all ranks decode all owners' payloads. Volume 2 c (W - 1) / W for a payload
// of c bytes, whatever W (reference: Tang et al. 2021, arXiv 2102.02888).
//
// Both encodings keep what they did not send: (1/W) sum of gradients = sum of means + (1/W) sum of
// the ranks' residuals + the owners' residuals, which are in units of the mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "linerate/compress/codec.hpp"

namespace linerate::compress {

/// Elements [first, first + elements) of a tensor, one chunk a rank; the last ones may be empty.
struct Chunk {
  std::int64_t first = 0, elements = 0;
};
/// Each a multiple of `multiple` but the last: of 32 for words of signs, of a bucket or a block.
std::vector<Chunk> cut_into_chunks(std::int64_t elements, int ranks, std::int64_t multiple);

/// One rank's part. Calls of a step: encode() for every chunk that is not empty, reduce() where
/// this rank's own is not, finish(). A compressor with momentum takes its codec with beta=0: what
/// is averaged is the caller's.
class TwoPhase {
 public:
  /// Throws UsageError for a compressor that is not gathered in one round. Where a chunk had better
  /// travel dense, it does, as f32.
  TwoPhase(const Compressor& compressor, std::int64_t elements, int ranks, int rank,
           std::int64_t multiple = 4096);

  const std::vector<Chunk>& chunks() const { return chunks_; }
  /// At most, of a chunk's payload in either phase.
  std::size_t bound(int chunk) const;

  /// Phase 1: the chunk's part of `input`, whose spans are the whole tensor's.
  std::size_t encode(int chunk, const Input& input, std::span<std::byte> payload);
  /// At the owner: `arrived`, of all ranks, in their order. Its residual is kept here.
  std::size_t reduce(const Arrived& arrived, const Keys& keys, std::span<std::byte> payload);
  /// Phase 2: the owners' payloads, one a chunk (empty for an empty one), to mean[elements].
  void finish(std::span<const std::span<const std::byte>> payloads, std::span<float> mean);

  /// What this owner has not sent of its chunk, in units of the mean; empty for a compressor
  /// without error feedback.
  std::span<float> server_residual() { return server_residual_; }

 private:
  std::vector<Chunk> chunks_;
  std::vector<std::unique_ptr<Codec>> workers_, readers_;
  std::vector<std::size_t> bounds_;
  std::unique_ptr<Codec> server_;
  std::vector<float> server_residual_, server_mean_;
};

}  // namespace linerate::compress
