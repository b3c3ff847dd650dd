#include "linerate/compress/two_phase.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/compress/dense.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/rng.hpp"

namespace linerate::compress {
namespace {

bool is_gathered_at_once(const std::vector<Round>& rounds) {
  return rounds.size() == 1 && rounds[0].combine == Combine::gather;
}

/// Of a chunk, and whether it compresses.
std::unique_ptr<Codec> codec_of(const Compressor& compressor, const Shape& shape) {
  return compressor.rounds(shape).empty() ? dense_codec(shape) : compressor.codec(shape);
}
std::size_t bound_of(const Compressor& compressor, const Shape& shape) {
  const std::vector<Round> rounds = compressor.rounds(shape);
  return static_cast<std::size_t>(rounds.empty() ? 4 * shape.elements : rounds[0].bytes);
}

template <class T>
std::span<T> part(std::span<T> all, const Chunk& chunk) {
  if (all.empty()) return all;
  return all.subspan(static_cast<std::size_t>(chunk.first),
                     static_cast<std::size_t>(chunk.elements));
}

/// Chunks draw from streams of their own, and the server from one that no worker has.
Keys keys_of_chunk(const Keys& keys, std::uint64_t stream) {
  return {random_key(keys.shared, stream), random_key(keys.own, stream)};
}
constexpr std::uint64_t kServerStream = ~std::uint64_t{0};

}  // namespace

std::vector<Chunk> cut_into_chunks(std::int64_t elements, int ranks, std::int64_t multiple) {
  const std::int64_t size = ceil_div(elements, ranks * multiple) * multiple;
  std::vector<Chunk> chunks;
  for (std::int64_t r = 0; r < ranks; ++r) {
    const std::int64_t first = std::min(r * size, elements);
    chunks.push_back({first, std::min(size, elements - first)});
  }
  return chunks;
}

TwoPhase::TwoPhase(const Compressor& compressor, std::int64_t elements, int ranks, int rank,
                   std::int64_t multiple)
    : chunks_(cut_into_chunks(elements, ranks, multiple)) {
  for (const Chunk& chunk : chunks_) {
    const Shape shape{chunk.elements, 1};
    const std::vector<Round> rounds = compressor.rounds(shape);
    if (!rounds.empty() && !is_gathered_at_once(rounds))
      throw UsageError(
          "two-phase exchange: expected a compressor whose payloads are gathered in one "
          "round");
    workers_.push_back(codec_of(compressor, shape));
    readers_.push_back(codec_of(compressor, shape));
    bounds_.push_back(bound_of(compressor, shape));
  }
  const Chunk& own = chunks_[static_cast<std::size_t>(rank)];
  server_ = codec_of(compressor, {own.elements, 1});
  server_mean_.resize(static_cast<std::size_t>(own.elements));
  if (keeps_residual(compressor)) server_residual_.resize(server_mean_.size());
}

std::size_t TwoPhase::bound(int chunk) const { return bounds_[static_cast<std::size_t>(chunk)]; }

std::size_t TwoPhase::encode(int chunk, const Input& input, std::span<std::byte> payload) {
  const auto c = static_cast<std::size_t>(chunk);
  const Keys keys = keys_of_chunk(input.keys, c);
  return workers_[c]->encode(
      0, {part(input.gradient, chunks_[c]), part(input.residual, chunks_[c]), keys, input.ranks},
      payload);
}

std::size_t TwoPhase::reduce(const Arrived& arrived, const Keys& keys,
                             std::span<std::byte> payload) {
  const Keys own = keys_of_chunk(keys, kServerStream);
  server_->decode(0, arrived, server_mean_);
  return server_->encode(0, {server_mean_, server_residual_, own, 1}, payload);
}

void TwoPhase::finish(std::span<const std::span<const std::byte>> payloads, std::span<float> mean) {
  if (payloads.size() != chunks_.size())
    throw InputError(fmt::format("two-phase exchange: expected {} payloads, found {}",
                                 chunks_.size(), payloads.size()));
  for (std::size_t c = 0; c < chunks_.size(); ++c)
    if (chunks_[c].elements > 0)
      readers_[c]->decode(0, {payloads.subspan(c, 1), 1}, part(mean, chunks_[c]));
}

}  // namespace linerate::compress
