// A parameter as compressors see it on one rank, with what a step leaves for the next one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/compress/codec.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/two_phase.hpp"
#include "linerate/core/index.hpp"

namespace linerate::compress {

/// A compressor and its user: a parameter's codecs are made for these.
struct TensorMethod {
  std::string label;  // the compressor's text and how it is exchanged
  const Compressor* compressor = nullptr;
  bool two_phase = false;
  int rank = 0, ranks = 1;
  bool is_dense = false;  // the compressor's of_dense() alone sees it
};

/// The keys of a parameter in a step: from (seed, step, name), and its own from the rank too.
Keys keys_of_step(std::uint64_t seed, std::int64_t step, std::string_view name, int rank);

/// The codecs of one parameter on one rank, with what they keep from step to step, over either back
/// end. The classes that derive from it hold the residual, each where it computes: CodedTensor on
/// the host, CodedParameter (torch_codecs) on a device.
/// Thread safety: one thread at a time.
class ParameterCodecs {
 public:
  const std::string& name() const { return name_; }
  const Shape& shape() const { return shape_; }
  /// The parts that a TwoPhaseExchange of its bucket uses, after begin_step().
  TwoPhase& two_phase() const { return *two_phase_; }
  const Keys& keys() const { return keys_; }
  /// Whether this step sends what is owed with the gradient.
  bool sends_residual() const { return sends_residual_; }
  /// The step does not count: everything is as it was before.
  void drop();

 protected:
  ParameterCodecs(std::string name, const Shape& shape, CompressedTensorState saved);

  bool uses(const TensorMethod& method) const { return label_ == method.label; }
  /// Makes other codecs. They have the state of codecs that begin.
  void make_codecs(const TensorMethod& method, const TwoPhase::Making& making);
  /// Loads what codecs of the same method kept.
  void load_codecs(const CompressedTensorState& from);
  /// The state but for the residual. Before a method is used it is what was loaded.
  CompressedTensorState state_of_codecs() const;
  /// Forgets the codecs of this state, and returns all that is owed. use() goes on with the rest.
  std::vector<float> forget_codecs(CompressedTensorState state, int rank);
  /// All that the codecs keep.
  std::vector<KeptField*> kept() const;
  void begin_codecs(std::uint64_t seed, std::int64_t step, int rank);
  /// The step counts. False if it did not touch the codecs.
  bool keep_codecs();

  std::string label_;
  std::unique_ptr<Codec> codec_;
  std::unique_ptr<TwoPhase> two_phase_;
  bool keeps_ = false;            // the method has error feedback
  CompressedTensorState loaded_;  // of codecs that have not been made yet
  bool is_touched_ = false;       // by this step
  bool sends_residual_ = false;   // with this step's gradient: owed no more once the step counts
  bool may_owe_elsewhere_;        // than in the residual

 private:
  std::string name_;
  Shape shape_;
  Keys keys_;
};

/// Holds the state of one parameter on the host and calls its codec. Only this class calls codecs
/// of whole tensors. While it does so the thread keeps denormals (keep_denormals.hpp), so that no
/// codec has to.
class CodedTensor : public ParameterCodecs {
 public:
  CodedTensor(std::string name, const Shape& shape, CompressedTensorState saved);

  /// This method codes it from now on. What is owed stays owed: the residual, what owners of the
  /// two-phase exchange kept, and what a codec had not sent. What else a codec remembered stays if
  /// the compressor is the same by other options or another exchange, and it fits. A method without
  /// error feedback sends the residual that another one left with the next gradient.
  void use(const TensorMethod& method);

  /// Before the first encode of a step: `gradient` may get what is still owed.
  /// `loss_scale` is Input's.
  void begin_step(std::uint64_t seed, std::int64_t step, int rank, std::span<float> gradient,
                  std::optional<float> loss_scale = {});
  /// Before a step in which it travels dense: all that is owed to it, for the caller to add to its
  /// gradient. Nothing of it is owed any more once the step counts. Empty: nothing is owed.
  std::span<const float> begin_dense(int rank);
  /// In place of encode() and decode(), for a tensor that travels dense: its mean has come.
  void take_dense(std::span<float> mean);
  /// The step counts.
  void keep();

  /// As Codec's encode() and decode(); `ranks` of the mean. `payload` has the room that its Round
  /// states. Throws UsageError for a codec that says it wrote more, or less where the Round is
  /// exact. Not in the two-phase exchange.
  std::size_t encode(int round, std::span<const float> gradient, int ranks, int phase,
                     std::span<std::byte> payload);
  void decode(int round, const Arrived& arrived, std::span<float> mean);
  /// The residual that this step writes: empty without error feedback.
  std::span<float> next_residual() { return keeps_ ? std::span(next_) : std::span<float>(); }

  /// The bytes that encode() returned last.
  std::size_t sent_bytes() const { return sent_; }
  /// As Codec's.
  bool overflowed() const { return codec_ && codec_->overflowed(); }

  CompressedTensorState state() const;

 private:
  void succeed(CompressedTensorState before, int rank);
  void give_residual_to_codec();
  bool take(const SavedState& kept);

  const Compressor* compressor_ = nullptr;  // of the method
  std::vector<float> residual_;             // as the last step that counts left it; empty: zeros
  std::vector<float> next_;                 // as this step leaves it
  std::optional<float> loss_scale_;         // of this step
  std::size_t sent_ = 0;
};

// The two-phase exchange of a bucket on one rank, over either back end. This class decides which
// chunks are coded when, and where they lie in the blocks. All chunks of a phase are coded in one
// call, as the tensors of a bucket are.
//
// Example with three ranks and one tensor: encode() on each rank writes blocks 0, 1 and 2. An
// all-to-all brings rank 1 the blocks 1 of ranks 0, 1 and 2. reduce() on rank 1 decodes these three
// to the mean of chunk 1, and encodes it to block 1 of the next buffer. An all-gather brings every
// rank the blocks 0, 1 and 2 of their owners, and finish() decodes them to the tensor's mean. All
// ranks decode the same bytes, so the means are the same bits everywhere.

/// Chunks that a back end codes in one call.
struct ChunkCall {
  struct Item {
    TwoPhase::Coder* coder = nullptr;
    std::size_t chunk = 0;                      // of its tensor
    std::size_t tensor = 0;                     // whose arrays a host's are
    std::int64_t in_tensor = 0, in_bucket = 0;  // its first element there, and in a device's arrays
    std::int64_t bytes = 0;                     // of its payload, at most
    bool is_bound = false;
    Keys keys = {};
    std::string_view method = {}, name = {};  // for messages: the compressor's, the tensor's
  };
  std::vector<Item> items;
  int ranks = 1;           // of the mean
  int phase = -1;          // Input's
  bool has_sizes = false;  // a payload follows its bytes (u32)
};

/// `Ops` has the types Bytes and Arrays (values and residuals of a bucket), and these functions.
/// - send_chunks(call, arrays, rooms) writes each item's payload to its room. It leaves the part
///   that was not sent in the residuals.
/// - average_chunks(call, arrived, arrays) writes the mean of an item's payloads to the values.
/// - own_chunks(owners) returns arrays for the means of the rank's own chunks, with the residuals
///   of those.
/// - keep_owed(owners, arrays) keeps these residuals.
template <class Ops>
class TwoPhaseExchange {
 public:
  using Arrays = typename Ops::Arrays;
  using Bytes = typename Ops::Bytes;
  using Damage = typename Ops::Damage;

  /// All outlive it. No `chunks`: a phase in which whole tensors are summed, and codecs follow by
  /// chunks. Payload and sum are then f32 of each tensor, where the bucket's only round has it.
  TwoPhaseExchange(const TensorMethod& method, const BucketLayout& bucket,
                   const TwoPhaseLayout& chunks)
      : method_(method), bucket_(bucket), chunks_(chunks), is_sum_(chunks.offset.empty()) {}

  /// A part of the bucket. Arrays have the tensors in this order.
  void add(std::size_t part, TwoPhase& tensor, const Keys& keys, std::string_view name) {
    tensors_.push_back({part, &tensor, &keys, name});
  }

  /// Phase 1: a block for each owner. `phase` of the method is only told codecs of a sum.
  void encode(const Arrays& gradients, const Bytes& to_owners, int phase = -1) const {
    const ChunkCall call = all_chunks(method_.ranks, is_sum_ ? phase : -1);
    std::vector<Bytes> rooms;
    for (const ChunkCall::Item& item : call.items)
      rooms.push_back(room(to_owners, item.chunk, item));
    Ops::send_chunks(call, gradients, rooms);
  }

  /// At an owner: decodes the mean of the ranks' blocks, and encodes it to the owner's block of
  /// phase 2. Items of this call have their own arrays, in which only the rank's own chunks lie. So
  /// their places are counted anew. The second encoding is told of one rank, because it sends a
  /// mean, not one of `ranks` parts of a sum.
  Damage reduce(const Bytes& of_ranks, const Bytes& of_owners) const {
    ChunkCall call{{}, method_.ranks, -1, chunks_.is_bound};
    std::vector<std::vector<Bytes>> arrived;
    std::vector<Bytes> rooms;
    std::vector<TwoPhase*> owners;
    const auto own = to_index(method_.rank);
    std::int64_t elements = 0;
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      TwoPhase& tensor = *tensors_[t].tensor;
      if (tensor.chunks()[own].elements == 0) continue;
      ChunkCall::Item item = item_of(t, own);
      std::vector<Bytes>& one = arrived.emplace_back();
      for (std::size_t r = 0; r < to_index(method_.ranks); ++r)
        one.push_back(room(of_ranks, r, item));
      rooms.push_back(room(of_owners, own, item));
      item.coder = &tensor.owner();
      item.is_bound = item.coder->is_bound;
      item.keys = keys_of_chunk(*tensors_[t].keys, kOwnerStream);
      item.tensor = owners.size();
      item.in_tensor = 0;
      item.in_bucket = elements;
      elements += item.coder->elements;
      call.items.push_back(item);
      owners.push_back(&tensor);
    }
    if (owners.empty()) return {};
    const Arrays means = Ops::own_chunks(owners);
    const Damage damage = Ops::average_chunks(call, arrived, means);
    call.ranks = 1;
    Ops::send_chunks(call, means, rooms);
    Ops::keep_owed(owners, means);
    return damage;
  }

  /// Phase 2: writes the means from the blocks of all owners. Each chunk has one payload, its
  /// owner's. In a phase of sums that payload is the sum of all ranks.
  Damage finish(const Bytes& of_owners, const Arrays& means) const {
    const ChunkCall call = all_chunks(is_sum_ ? method_.ranks : 1, -1);
    std::vector<std::vector<Bytes>> arrived;
    for (const ChunkCall::Item& item : call.items)
      arrived.push_back({room(of_owners, item.chunk, item)});
    return Ops::average_chunks(call, arrived, means);
  }

 private:
  struct OfBucket {
    std::size_t part = 0;
    TwoPhase* tensor = nullptr;
    const Keys* keys = nullptr;
    std::string_view name;
  };

  ChunkCall::Item item_of(std::size_t t, std::size_t chunk) const {
    const OfBucket& one = tensors_[t];
    TwoPhase::Coder& worker = one.tensor->worker(chunk);
    ChunkCall::Item item{&worker, chunk, t, one.tensor->chunks()[chunk].first};
    item.in_bucket = bucket_.parts[one.part].value + item.in_tensor;
    item.bytes = is_sum_ ? 4 * worker.elements : worker.bytes;
    item.is_bound = !is_sum_ && worker.is_bound;
    item.keys = keys_of_chunk(*one.keys, chunk);
    item.method = method_.label;
    item.name = one.name;
    return item;
  }
  /// The items of all chunks that are not empty, tensor by tensor.
  ChunkCall all_chunks(int ranks, int phase) const {
    ChunkCall call{{}, ranks, phase, chunks_.is_bound};
    for (std::size_t t = 0; t < tensors_.size(); ++t)
      for (std::size_t c = 0; c < tensors_[t].tensor->chunks().size(); ++c)
        if (tensors_[t].tensor->chunks()[c].elements > 0) call.items.push_back(item_of(t, c));
    return call;
  }

  /// The bytes of an item in a payload of several blocks. In a phase of sums there are no blocks,
  /// and the item lies where its tensor does.
  Bytes room(const Bytes& payload, std::size_t block, const ChunkCall::Item& item) const {
    const std::size_t part = tensors_[item.tensor].part;
    if (is_sum_)
      return Ops::part(payload, bucket_.parts[part].offset[0] + 4 * item.in_tensor, item.bytes);
    return Ops::part(
        payload,
        static_cast<std::int64_t>(block) * chunks_.block_bytes + chunks_.offset[part][item.chunk],
        (chunks_.is_bound ? kPartSizeBytes : 0) + pad4(item.bytes));
  }

  const TensorMethod& method_;
  const BucketLayout& bucket_;
  const TwoPhaseLayout& chunks_;
  bool is_sum_;
  std::vector<OfBucket> tensors_;
};

}  // namespace linerate::compress
