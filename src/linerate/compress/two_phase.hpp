// The two-phase exchange of one tensor, as numbers. Every rank owns a chunk of the tensor. Phase 1:
// each rank encodes every chunk for its owner. The owner decodes all the payloads of its chunk, and
// encodes their mean again. Phase 2: all ranks decode all owners' payloads. A rank sends 2 c (W -
// 1) / W bytes for a payload of c bytes, whatever the number W of ranks. A gather would send c (W -
// 1) (reference: Tang et al. 2021, arXiv 2102.02888).
//
// Both encodings keep the part that they did not send, so nothing is lost:
//
//      (1/W) sum of gradients = sum of means + (1/W) sum of ranks' residuals + owners' residuals
//
// An owner's residual is in units of the mean. Example: three ranks have the gradients 1, 2 and 6
// of an element, so the mean is 3. They send 1, 1 and 5, and keep 0, 1 and 1. The owner finds the
// mean 7/3, sends 2, and keeps 1/3. Indeed 3 = 2 + (0 + 1 + 1)/3 + 1/3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/compress/codec.hpp"
#include "linerate/compress/method/formats.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/state.hpp"

namespace linerate::compress {

/// Elements [first, first + elements) of a tensor, one chunk a rank; the last ones may be empty.
struct Chunk {
  std::int64_t first = 0, elements = 0;
};
/// All chunks but a tensor's last one are a multiple of so many elements. So a chunk has whole
/// words of signs, whole buckets and whole blocks.
inline constexpr std::int64_t kChunkMultiple = 4096;
std::vector<Chunk> cut_into_chunks(std::int64_t elements, int ranks);

/// Whether a method's payloads can take this exchange. They must be gathered in one round, and so
/// must those of flat chunks. The method must not hold the optimizer's momentum, because an owner
/// would add it a second time.
bool fits_two_phase(const Compressor& compressor);

/// The keys of a chunk's own stream, by the chunk's number. An owner encodes means with
/// kOwnerStream, which no chunk has.
Keys keys_of_chunk(const Keys& keys, std::uint64_t stream);
inline constexpr std::uint64_t kOwnerStream = ~std::uint64_t{0};

/// The places of a bucket's chunks in the blocks that ranks exchange. In phase 1 each rank sends a
/// block to the owner of chunk c. It has chunk c of all tensors. In phase 2 each owner sends its
/// block to all ranks.
struct TwoPhaseLayout {
  std::int64_t block_bytes = 0;                   // of the largest owner, padded with zeros
  std::vector<std::vector<std::int64_t>> offset;  // [parts][ranks]; empty: it travels dense
  bool is_bound = false;                          // a chunk's bytes follow their number (u32)
};
TwoPhaseLayout two_phase_layout_of(const Compressor& compressor, const BucketLayout& bucket,
                                   int ranks);

/// The state that a rank keeps for a tensor that takes this exchange.
struct TwoPhaseState {
  std::vector<SavedState> workers;  // by chunk
  SavedState server;                // of the rank's own chunk, with kServerResidual

  bool operator==(const TwoPhaseState&) const = default;
};
/// The name of the field with the owner's residual: an array in units of the mean.
inline constexpr std::string_view kServerResidual = "server residual";

/// Appends all that a codec keeps.
void add_kept(Codec& codec, std::vector<KeptField*>& all);

/// One rank's codecs of a tensor's chunks, with all that they keep. TwoPhaseExchange carries the
/// tensors of a bucket. At the end of a step all of kept() is kept or dropped. Thread safety: as a
/// Codec.
class TwoPhase {
 public:
  struct Coder {
    std::unique_ptr<Codec> codec;
    std::int64_t elements = 0;
    std::int64_t bytes = 0;  // of its payload, at most
    bool is_bound = false;   // it may have fewer
    bool is_dense = false;   // compression does not pay: its payload is f32
  };
  /// Made by a back end: the codec of a chunk that travels dense, and an array that is kept.
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
  /// The coder of a chunk. It also reads the payload of the chunk's owner.
  Coder& worker(std::size_t chunk) { return workers_[chunk]; }
  /// The coder of means of the rank's own chunk.
  Coder& owner() { return owner_; }
  /// The part of its chunk's mean that this owner has not sent: f32 in units of the mean, as
  /// Making::zeros() made it. It has no elements without error feedback.
  KeptField& owed() { return *owed_; }
  /// The memory for the means of the rank's own chunk, on a host.
  std::vector<float>& room() { return room_; }

  /// All that it keeps.
  std::vector<KeptField*> kept();
  /// As a Codec's, for the same compressor, shape, ranks and rank.
  TwoPhaseState save();
  void load(const TwoPhaseState& saved);
  /// Loads the workers' codecs alone; the owner's begins anew.
  void load_workers(const std::vector<SavedState>& saved);

 private:
  std::vector<Chunk> chunks_;
  std::vector<Coder> workers_;  // by chunk
  Coder owner_;
  std::unique_ptr<KeptField> owed_;
  std::vector<float> room_;
};

template <class Ops, class Format>
class FormatCodec;  // method/sign_codecs.hpp

/// What the two-phase exchange of a tensor needs of a back end. `making_of`: of a chunk's shape.
template <class Ops, class MakingOf>
TwoPhase::Making two_phase_making(MakingOf making_of) {
  return {[=](const Shape& shape) {
            return std::make_unique<FormatCodec<Ops, DenseFormat>>(making_of(shape), DenseFormat());
          },
          [=](std::int64_t elements) {
            return std::make_unique<typename Ops::KeptValues>(
                Ops::kept_zeros(making_of({elements, 1}), elements));
          }};
}

/// The compressor's codec. Throws UsageError if it makes none.
std::unique_ptr<Codec> made_codec(const Compressor& compressor, const Shape& shape);

// The state of a run's compressors on one rank, as bytes for a checkpoint.

/// The state of one parameter.
struct CompressedTensorState {
  std::int64_t elements = 0;
  std::vector<float> residual;  // [elements] in gradient units; empty: the method keeps none
  std::string method;           // "topk(density=0.01)": whose the state below is
  SavedState codec;             // of a codec of the whole tensor
  TwoPhaseState two_phase;      // else

  bool operator==(const CompressedTensorState&) const = default;
};

/// The fields of a whole tensor's codec for each chunk. Throws InputError for an array that is not
/// empty and has not the tensor's elements.
std::vector<SavedState> cut(const SavedState& whole, const std::vector<Chunk>& chunks);

/// Moves all that is owed to `residual`, which has the same meaning for training. That is the part
/// that codecs have not sent, and the part that the owner of this rank's chunk kept. `residual` is
/// empty afterwards if nothing is owed.
void own_all_owed(CompressedTensorState& state, int rank);

struct CompressionState {
  std::int64_t step = 0;  // steps that counted: where random streams and phases go on
  std::map<std::string, CompressedTensorState> tensors;  // by parameter
};

/// Whether anything is owed to any parameter.
bool owes(const CompressionState& state, int rank);

std::string to_bytes(const CompressionState& state);
/// `place` names the file. Throws InputError for what is cut off or foreign.
CompressionState compression_state_from(std::string_view bytes, const std::string& place);

/// The state with which a rank of `ranks` goes on, so that the sum that is owed stays the same in
/// the mean over ranks. With as many ranks as before each rank gets its own state. With another
/// number each rank gets the mean of all residuals. Each field of a codec passes as its Passing
/// says. Fields of the two-phase exchange are joined and cut into the new chunks. A rank that lacks
/// a parameter, or its residual, owes that parameter nothing. `parts` is in the order of the ranks
/// that saved.
CompressionState state_for(int rank, int ranks, std::span<const CompressionState> parts);

}  // namespace linerate::compress
