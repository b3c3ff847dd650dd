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
#include <string_view>
#include <vector>

#include "linerate/compress/bucket_layout.hpp"
#include "linerate/compress/codec.hpp"

namespace linerate::compress {

/// Elements [first, first + elements) of a tensor, one chunk a rank; the last ones may be empty.
struct Chunk {
  std::int64_t first = 0, elements = 0;
};
/// A chunk is a multiple of so many elements, but for the last one of a tensor: of whole words of
/// signs, of whole buckets and blocks.
inline constexpr std::int64_t kChunkMultiple = 4096;
std::vector<Chunk> cut_into_chunks(std::int64_t elements, int ranks,
                                   std::int64_t multiple = kChunkMultiple);

/// Whether a method's payloads can take it: gathered in one round, of flat chunks too, and without
/// momentum that is the optimizer's (an owner would add it again).
bool fits_two_phase(const Compressor& compressor);

/// Chunks draw from streams of their own, by their number; an owner encodes means from one that no
/// chunk has.
Keys keys_of_chunk(const Keys& keys, std::uint64_t stream);
inline constexpr std::uint64_t kOwnerStream = ~std::uint64_t{0};

/// Where a bucket's chunks are in the blocks that ranks exchange: in phase 1 each rank sends the
/// owner of chunk c a block of the tensors' chunks c, in phase 2 the owner everybody.
struct TwoPhaseLayout {
  std::int64_t block_bytes = 0;                   // of the largest owner, padded with zeros
  std::vector<std::vector<std::int64_t>> offset;  // [parts][ranks]; empty: it travels dense
  bool is_bound = false;                          // a chunk's bytes follow their number (u32)
};
TwoPhaseLayout two_phase_layout_of(const Compressor& compressor, const BucketLayout& bucket,
                                   int ranks);

/// What a rank keeps of a tensor in it.
struct TwoPhaseState {
  std::vector<SavedState> workers;  // by chunk
  SavedState server;                // of the rank's own chunk, with kServerResidual

  bool operator==(const TwoPhaseState&) const = default;
};
/// What an owner still owes of its chunk: an array in units of the mean.
inline constexpr std::string_view kServerResidual = "server residual";

/// One rank's part. Calls of a step: encode() for every chunk that is not empty, reduce() if this
/// rank's own is not, finish(), then keep() or drop(). Of a compressor with momentum the owner's
/// codec is Compressor::of_means()'s.
class TwoPhase {
 public:
  /// Throws UsageError for a compressor that is not gathered in one round. A chunk that should
  /// travel dense does, as f32.
  TwoPhase(const Compressor& compressor, std::int64_t elements, int ranks, int rank,
           std::int64_t multiple = kChunkMultiple);

  const std::vector<Chunk>& chunks() const { return chunks_; }
  /// Of the rank's own chunk.
  std::int64_t own_elements() const { return static_cast<std::int64_t>(server_mean_.size()); }
  /// Most bytes of a chunk's payload in either phase.
  std::size_t bound(int chunk) const;

  /// Phase 1: the chunk's part of `input`, whose spans are the whole tensor's.
  std::size_t encode(int chunk, const Input& input, std::span<std::byte> payload);
  /// At the owner: `arrived` of all ranks, in their order. Its residual is kept here.
  std::size_t reduce(const Arrived& arrived, const Keys& keys, std::span<std::byte> payload);
  /// Phase 2: the owners' payloads, one a chunk (empty for an empty one), to mean[elements].
  void finish(std::span<const std::span<const std::byte>> payloads, std::span<float> mean);

  /// A phase in which the method sums whole tensors (a warm-up that its codecs follow), as Codec's
  /// encode() and decode() of such a round; payload and sum are f32[elements]. Returns another
  /// number than the payload's if a codec did.
  std::size_t encode_dense(const Input& input, std::span<std::byte> payload);
  void decode_dense(std::span<const std::byte> sum, int ranks, std::span<float> mean);

  /// What this owner has not sent of its chunk, in units of the mean; empty for a compressor
  /// without error feedback.
  const std::vector<float>& server_residual() const { return server_residual_.now(); }

  /// As a Codec's, for the same compressor, shape, ranks and rank.
  void keep();
  void drop();
  TwoPhaseState save();
  void load(const TwoPhaseState& saved);
  /// What the workers' codecs go on with; the owner's begins anew.
  void load_workers(const std::vector<SavedState>& saved);

 private:
  std::vector<Codec*> coders();
  std::vector<Chunk> chunks_;
  std::vector<std::unique_ptr<Codec>> workers_;  // by chunk; they read what owners send, too
  std::vector<bool> is_plain_;                   // a chunk that travels dense, as f32
  std::vector<std::size_t> bounds_;
  std::unique_ptr<Codec> server_;
  Kept<std::vector<float>> server_residual_;
  std::vector<float> server_mean_;
};

}  // namespace linerate::compress
