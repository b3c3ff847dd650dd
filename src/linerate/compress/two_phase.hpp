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
#include <functional>
#include <memory>
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
std::vector<Chunk> cut_into_chunks(std::int64_t elements, int ranks);

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

/// What one rank has of a tensor in it: what codes its chunks, and what that keeps. A bucket's
/// tensors travel by TwoPhaseExchange. Calls of a step end with keep() or drop().
/// Thread safety: as a Codec.
class TwoPhase {
 public:
  struct Coder {
    std::unique_ptr<Codec> codec;
    std::int64_t elements = 0;
    std::int64_t bytes = 0;  // of its payload, at most
    bool is_bound = false;   // it may have fewer
    bool is_dense = false;   // compression does not pay: its payload is f32
  };
  /// What a back end makes: the codec of a chunk that travels dense, and an array that is kept.
  struct Making {
    std::function<std::unique_ptr<Codec>(const Shape&)> dense_codec;
    std::function<std::unique_ptr<KeptField>(std::int64_t elements)> zeros;
  };
  static const Making& on_host();

  /// Throws UsageError for a compressor that is not gathered in one round. Of a compressor with
  /// momentum the owner's codec is Compressor::of_means()'s.
  TwoPhase(const Compressor& compressor, std::int64_t elements, int ranks, int rank,
           const Making& making = on_host());

  const std::vector<Chunk>& chunks() const { return chunks_; }
  /// Of each chunk: it also reads what the chunk's owner sends.
  Coder& worker(std::size_t chunk) { return workers_[chunk]; }
  /// Of means of the rank's own chunk.
  Coder& owner() { return owner_; }
  /// What this owner has not sent of its chunk, f32 in units of the mean, as Making::zeros() made
  /// it; of no elements without error feedback.
  KeptField& owed() { return *owed_; }
  /// Where a host has the means of its own chunk.
  std::vector<float>& room() { return room_; }

  /// All that it keeps.
  std::vector<KeptField*> kept();
  /// As a Codec's, for the same compressor, shape, ranks and rank.
  void keep();
  void drop();
  TwoPhaseState save();
  void load(const TwoPhaseState& saved);
  /// What the workers' codecs go on with; the owner's begins anew.
  void load_workers(const std::vector<SavedState>& saved);

 private:
  std::vector<Chunk> chunks_;
  std::vector<Coder> workers_;  // by chunk
  Coder owner_;
  std::unique_ptr<KeptField> owed_;
  std::vector<float> room_;
};

}  // namespace linerate::compress
