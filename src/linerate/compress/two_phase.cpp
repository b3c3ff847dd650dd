// Cuts tensors into chunks, lays the chunks out in blocks, and holds one rank's codecs for a
// tensor. These are one for each chunk, and one more for the mean of the rank's own chunk.
// two_phase_exchange.hpp calls these codecs.
#include "linerate/compress/two_phase.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>

#include "linerate/compress/dense.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/rng.hpp"

namespace linerate::compress {
namespace {

/// The bytes of a chunk's payload, at most. A chunk may be so small that the compressor sends it
/// dense, which takes 4 bytes an element.
std::int64_t bound_of(const Compressor& compressor, const Shape& shape) {
  const std::vector<Round> rounds = compressor.rounds(shape);
  return rounds.empty() ? 4 * shape.elements : rounds[0].bytes;
}

TwoPhase::Coder coder_of(const Compressor& compressor, std::int64_t elements,
                         const TwoPhase::Making& making) {
  const Shape shape{elements, 1};
  const std::vector<Round> rounds = compressor.rounds(shape);
  if (rounds.empty()) return {making.dense_codec(shape), elements, 4 * elements, false, true};
  return {made_codec(compressor, shape), elements, rounds[0].bytes, rounds[0].is_bound, false};
}

/// Loads a chunk's codec. With this number of ranks the chunk may be so small that it travels
/// dense. Its codec then keeps nothing, whatever was saved.
void load_chunk(Codec& codec, const SavedState& saved) {
  if (!codec.state().empty()) codec.load(saved);
}

}  // namespace

Keys keys_of_chunk(const Keys& keys, std::uint64_t stream) {
  return {random_key(keys.shared, stream), random_key(keys.own, stream)};
}

bool fits_two_phase(const Compressor& compressor) {
  const std::vector<Round> rounds = compressor.of_chunks().rounds({std::int64_t{1} << 20, 1});
  return rounds.size() == 1 && rounds[0].combine == Combine::gather &&
         compressor.momentum() != Momentum::own;
}

/// Block c has chunk c of each tensor, one after the other. All blocks get the size of the largest,
/// so that one all-to-all of equal blocks carries them.
///
/// Example: three ranks, and two tensors of 10,000 and 5,000 elements. The first has chunks of
/// 4,096, 4,096 and 1,808 elements, the second of 4,096, 904 and 0. With 4 bytes an element, the
/// second tensor has offset 16,384 in blocks 0 and 1. Block 0 is the largest, with 32,768 bytes.
/// Blocks 1 and 2 are padded to that.
TwoPhaseLayout two_phase_layout_of(const Compressor& compressor, const BucketLayout& bucket,
                                   int ranks) {
  const Compressor& coder = compressor.of_chunks();
  TwoPhaseLayout layout;
  layout.is_bound = bucket.is_coded() && bucket.rounds.front().is_bound;
  const std::int64_t head = layout.is_bound ? kPartSizeBytes : 0;
  std::vector<std::int64_t> ends(to_index(ranks));
  for (const BucketPart& part : bucket.parts) {
    std::vector<std::int64_t>& offset = layout.offset.emplace_back();
    if (!part.is_coded()) continue;
    const std::vector<Chunk> chunks = cut_into_chunks(part.shape.elements, ranks);
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      offset.push_back(ends[c]);
      if (chunks[c].elements == 0) continue;
      ends[c] += head + pad4(bound_of(coder, {chunks[c].elements, 1}));
    }
  }
  layout.block_bytes = *std::max_element(ends.begin(), ends.end());
  return layout;
}

/// Equal chunks of whole multiples. So the last chunks of a small tensor may be empty.
std::vector<Chunk> cut_into_chunks(std::int64_t elements, int ranks) {
  const std::int64_t size = ceil_div(elements, ranks * kChunkMultiple) * kChunkMultiple;
  std::vector<Chunk> chunks;
  for (std::int64_t r = 0; r < ranks; ++r) {
    const std::int64_t first = std::min(r * size, elements);
    chunks.push_back({first, std::min(size, elements - first)});
  }
  return chunks;
}

const TwoPhase::Making& TwoPhase::on_host() {
  static const Making making{
      dense_codec, [](std::int64_t elements) {
        return std::make_unique<Kept<std::vector<float>>>(std::vector<float>(to_index(elements)));
      }};
  return making;
}

TwoPhase::TwoPhase(const Compressor& of_tensors, std::int64_t elements, int ranks, int rank,
                   const Making& making)
    : chunks_(cut_into_chunks(elements, ranks)) {
  const Compressor& compressor = of_tensors.of_chunks();
  if (!fits_two_phase(compressor))
    throw UsageError(
        "two-phase exchange: expected a compressor of single tensors whose payloads are gathered "
        "in one round");
  for (const Chunk& chunk : chunks_)
    workers_.push_back(coder_of(compressor, chunk.elements, making));
  const std::int64_t own = chunks_[to_index(rank)].elements;
  const std::unique_ptr<const Compressor> of_means = compressor.of_means();
  owner_ = coder_of(of_means ? *of_means : compressor, own, making);
  if (const std::int64_t most = workers_[to_index(rank)].bytes; owner_.bytes > most)
    throw UsageError(fmt::format(
        "two-phase exchange: of_means() states {} bytes for {} elements, the compressor {}: "
        "what encodes means must not need more",
        owner_.bytes, own, most));
  owed_ = making.zeros(keeps_residual(compressor) ? own : 0);
}

std::vector<KeptField*> TwoPhase::kept() {
  std::vector<KeptField*> all;
  const auto add = [&](const Coder& coder) {
    for (const StateField& field : coder.codec->state()) all.push_back(field.kept);
  };
  for (const Coder& worker : workers_) add(worker);
  add(owner_);
  all.push_back(owed_.get());
  return all;
}

void TwoPhase::keep() {
  for (KeptField* one : kept()) one->keep();
}

void TwoPhase::drop() {
  for (KeptField* one : kept()) one->drop();
}

/// The owner's residual is one more field after those of the owner's codec.
TwoPhaseState TwoPhase::save() {
  TwoPhaseState saved;
  for (const Coder& worker : workers_) saved.workers.push_back(worker.codec->save());
  saved.server = owner_.codec->save();
  const std::span<const std::byte> owed = owed_->bytes();
  saved.server.push_back(
      {std::string(kServerResidual), Passing::own, true, {owed.begin(), owed.end()}});
  return saved;
}

void TwoPhase::load(const TwoPhaseState& saved) {
  const auto refuse = [](const std::string& why) {
    throw InputError("checkpoint", "state of a two-phase exchange: " + why);
  };
  if (saved.workers.size() != workers_.size())
    refuse(fmt::format("expected {} chunks, found {}", workers_.size(), saved.workers.size()));
  if (saved.server.empty() || saved.server.back().name != kServerResidual)
    refuse(fmt::format("expected the field \"{}\", found none", kServerResidual));
  const std::vector<std::byte>& owed = saved.server.back().bytes;
  if (const std::size_t expected = owed_->bytes().size(); owed.size() != expected)
    refuse(fmt::format("the owner's residual: expected {} bytes, found {}", expected, owed.size()));
  load_workers(saved.workers);
  load_chunk(*owner_.codec, {saved.server.begin(), saved.server.end() - 1});
  owed_->drop();
  std::copy(owed.begin(), owed.end(), owed_->bytes().begin());
}

void TwoPhase::load_workers(const std::vector<SavedState>& saved) {
  for (std::size_t c = 0; c < workers_.size(); ++c) load_chunk(*workers_[c].codec, saved[c]);
}

}  // namespace linerate::compress
