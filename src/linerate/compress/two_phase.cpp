#include "linerate/compress/two_phase.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "linerate/compress/dense.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/rng.hpp"

namespace linerate::compress {
namespace {

/// The codec of a chunk; the dense one if compression does not pay.
std::unique_ptr<Codec> codec_of(const Compressor& compressor, const Shape& shape) {
  return compressor.rounds(shape).empty() ? dense_codec(shape) : made_codec(compressor, shape);
}
std::size_t bound_of(const Compressor& compressor, const Shape& shape) {
  const std::vector<Round> rounds = compressor.rounds(shape);
  return to_index(rounds.empty() ? 4 * shape.elements : rounds[0].bytes);
}

template <class T>
std::span<T> part(std::span<T> all, const Chunk& chunk) {
  if (all.empty()) return all;
  return all.subspan(to_index(chunk.first), to_index(chunk.elements));
}

/// A chunk that is dense now, on this number of ranks, keeps nothing.
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
      const auto bytes = static_cast<std::int64_t>(bound_of(coder, {chunks[c].elements, 1}));
      ends[c] += head + pad4(bytes);
    }
  }
  layout.block_bytes = *std::max_element(ends.begin(), ends.end());
  return layout;
}

std::vector<Chunk> cut_into_chunks(std::int64_t elements, int ranks, std::int64_t multiple) {
  const std::int64_t size = ceil_div(elements, ranks * multiple) * multiple;
  std::vector<Chunk> chunks;
  for (std::int64_t r = 0; r < ranks; ++r) {
    const std::int64_t first = std::min(r * size, elements);
    chunks.push_back({first, std::min(size, elements - first)});
  }
  return chunks;
}

TwoPhase::TwoPhase(const Compressor& of_tensors, std::int64_t elements, int ranks, int rank,
                   std::int64_t multiple)
    : chunks_(cut_into_chunks(elements, ranks, multiple)) {
  const Compressor& compressor = of_tensors.of_chunks();
  if (!fits_two_phase(compressor))
    throw UsageError(
        "two-phase exchange: expected a compressor of single tensors whose payloads are gathered "
        "in "
        "one round");
  for (const Chunk& chunk : chunks_) {
    const Shape shape{chunk.elements, 1};
    workers_.push_back(codec_of(compressor, shape));
    is_plain_.push_back(compressor.rounds(shape).empty());
    bounds_.push_back(bound_of(compressor, shape));
  }
  const Chunk& own = chunks_[to_index(rank)];
  const std::unique_ptr<const Compressor> of_means = compressor.of_means();
  server_ = codec_of(of_means ? *of_means : compressor, {own.elements, 1});
  if (of_means && bound_of(*of_means, {own.elements, 1}) > bounds_[to_index(rank)])
    throw UsageError(fmt::format(
        "two-phase exchange: of_means() states {} bytes for {} elements, the compressor {}: "
        "what encodes means must not need more",
        bound_of(*of_means, {own.elements, 1}), own.elements, bounds_[to_index(rank)]));
  server_mean_.resize(to_index(own.elements));
  if (keeps_residual(compressor)) server_residual_ = Kept(std::vector<float>(server_mean_.size()));
}

std::size_t TwoPhase::bound(int chunk) const { return bounds_[to_index(chunk)]; }

std::size_t TwoPhase::encode(int chunk, const Input& input, std::span<std::byte> payload) {
  const auto c = to_index(chunk);
  const Keys keys = keys_of_chunk(input.keys, c);
  return workers_[c]->encode(
      0, {part(input.gradient, chunks_[c]), part(input.residual, chunks_[c]), keys, input.ranks},
      payload);
}

std::size_t TwoPhase::reduce(const Arrived& arrived, const Keys& keys,
                             std::span<std::byte> payload) {
  const Keys own = keys_of_chunk(keys, kOwnerStream);
  server_->decode(0, arrived, server_mean_);
  return server_->encode(0, {server_mean_, server_residual_.changed(), own, 1}, payload);
}

void TwoPhase::finish(std::span<const std::span<const std::byte>> payloads, std::span<float> mean) {
  if (payloads.size() != chunks_.size())
    throw InputError(fmt::format("two-phase exchange: expected {} payloads, found {}",
                                 chunks_.size(), payloads.size()));
  for (std::size_t c = 0; c < chunks_.size(); ++c)
    if (chunks_[c].elements > 0)
      workers_[c]->decode(0, {payloads.subspan(c, 1), 1}, part(mean, chunks_[c]));
}

std::size_t TwoPhase::encode_dense(const Input& input, std::span<std::byte> payload) {
  for (std::size_t c = 0; c < chunks_.size(); ++c) {
    if (chunks_[c].elements == 0) continue;
    const auto bytes =
        payload.subspan(4 * to_index(chunks_[c].first), 4 * to_index(chunks_[c].elements));
    const Input own{part(input.gradient, chunks_[c]), part(input.residual, chunks_[c]),
                    keys_of_chunk(input.keys, c), input.ranks, input.phase};
    const std::size_t sent = workers_[c]->encode(0, own, bytes);
    if (sent < bytes.size()) return 4 * to_index(chunks_[c].first) + sent;
    if (sent > bytes.size()) return payload.size() + sent - bytes.size();
  }
  return payload.size();
}

void TwoPhase::decode_dense(std::span<const std::byte> sum, int ranks, std::span<float> mean) {
  for (std::size_t c = 0; c < chunks_.size(); ++c) {
    if (chunks_[c].elements == 0) continue;
    const std::span<float> values = part(mean, chunks_[c]);
    const std::span<const std::byte> bytes =
        sum.subspan(4 * to_index(chunks_[c].first), values.size_bytes());
    if (is_plain_[c]) {
      std::memcpy(values.data(), bytes.data(), bytes.size());
      for (float& value : values) value *= 1.0f / static_cast<float>(ranks);
    } else {
      workers_[c]->decode(0, {{&bytes, 1}, ranks}, values);
    }
  }
}

std::vector<Codec*> TwoPhase::coders() {
  std::vector<Codec*> all;
  for (const auto& codec : workers_) all.push_back(codec.get());
  all.push_back(server_.get());
  return all;
}

void TwoPhase::keep() {
  for (Codec* codec : coders()) codec->keep();
  server_residual_.keep();
}

void TwoPhase::drop() {
  for (Codec* codec : coders()) codec->drop();
  server_residual_.drop();
}

TwoPhaseState TwoPhase::save() {
  TwoPhaseState saved;
  for (const auto& worker : workers_) saved.workers.push_back(worker->save());
  saved.server = server_->save();
  const std::span<const std::byte> owed = server_residual_.bytes();
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
  if (owed.size() != server_residual_.bytes().size())
    refuse(fmt::format("the owner's residual: expected {} bytes, found {}",
                       server_residual_.bytes().size(), owed.size()));
  load_workers(saved.workers);
  load_chunk(*server_, {saved.server.begin(), saved.server.end() - 1});
  server_residual_.drop();
  std::copy(owed.begin(), owed.end(), server_residual_.bytes().begin());
}

void TwoPhase::load_workers(const std::vector<SavedState>& saved) {
  for (std::size_t c = 0; c < workers_.size(); ++c) load_chunk(*workers_[c], saved[c]);
}

}  // namespace linerate::compress
