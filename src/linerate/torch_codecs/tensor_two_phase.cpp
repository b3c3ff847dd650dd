#include "linerate/torch_codecs/tensor_two_phase.hpp"

#include <cstring>
#include <string>

#include "linerate/compress/keep_denormals.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/torch_codecs/words.hpp"

namespace linerate::torch_codecs {
namespace {

using compress::SavedState;

SavedState saved_of(TensorCodec* codec) { return codec ? codec->save() : SavedState(); }

/// A chunk that is dense now, on this number of ranks, keeps nothing.
void load_into(TensorCodec* codec, const SavedState& saved) {
  if (codec && !codec->state().empty()) codec->load(saved);
}

}  // namespace

TensorTwoPhase::TensorTwoPhase(const compress::Compressor& of_tensors, std::int64_t elements,
                               int ranks, int rank, at::Device device)
    : chunks_(compress::cut_into_chunks(elements, ranks)),
      server_residual_(at::zeros({0}, at::TensorOptions().device(device).dtype(at::kFloat))) {
  const compress::Compressor& compressor = of_tensors.of_chunks();
  LINERATE_CHECK(compress::fits_two_phase(compressor), "a compressor that cannot take two phases");
  for (const compress::Chunk& chunk : chunks_)
    workers_.push_back(coder_of(compressor, chunk.elements));
  const std::int64_t own = chunks_[to_index(rank)].elements;
  const std::unique_ptr<const compress::Compressor> of_means = compressor.of_means();
  server_ = coder_of(of_means ? *of_means : compressor, own);
  const auto floats = server_residual_.now().options();
  server_mean_ = at::zeros({own}, floats);
  if (compress::keeps_residual(compressor)) server_residual_ = KeptTensor(at::zeros({own}, floats));
}

TensorTwoPhase::Coder TensorTwoPhase::coder_of(const compress::Compressor& compressor,
                                               std::int64_t elements) {
  const compress::Shape shape{elements, 1};
  const std::vector<compress::Round> rounds = compressor.rounds(shape);
  if (rounds.empty()) return {nullptr, elements, 4 * elements};
  return {as_tensor_codec(compressor.codec(shape)), elements, rounds[0].bytes};
}

std::int64_t TensorTwoPhase::bound(int chunk) const { return workers_[to_index(chunk)].bound; }

at::Tensor TensorTwoPhase::part(const at::Tensor& whole, std::size_t chunk) const {
  if (!whole.defined()) return whole;
  return whole.narrow(0, chunks_[chunk].first, chunks_[chunk].elements);
}

TensorPayload TensorTwoPhase::encode(Coder& coder, const TensorInput& input) {
  if (coder.codec) return coder.codec->encode(0, input);
  const compress::KeepDenormals keep;
  const at::Tensor v = corrected(input);
  keep_residual(input, at::zeros_like(v));
  return {bytes_of(v), {}};
}

void TensorTwoPhase::decode(Coder& coder, const TensorArrived& arrived, const at::Tensor& mean) {
  if (coder.codec) {
    coder.codec->decode(0, arrived, mean);
    damaged_ = either(damaged_, coder.codec->damaged());
    return;
  }
  const compress::KeepDenormals keep;
  average(arrived, mean, [&](std::size_t p) {
    return section(arrived.payloads[p], 0, 4 * coder.elements, at::kFloat);
  });
}

TensorPayload TensorTwoPhase::encode(int chunk, const TensorInput& input) {
  const auto c = to_index(chunk);
  return encode(workers_[c], {part(input.gradient, c), part(input.residual, c),
                              compress::keys_of_chunk(input.keys, c), input.ranks, input.phase});
}

TensorPayload TensorTwoPhase::reduce(const TensorArrived& arrived, const compress::Keys& keys) {
  damaged_.reset();
  decode(server_, arrived, server_mean_);
  TensorInput input{server_mean_, {}, compress::keys_of_chunk(keys, compress::kOwnerStream), 1};
  if (server_residual_.now().numel() > 0) input.residual = server_residual_.now().clone();
  TensorPayload payload = encode(server_, input);
  if (input.residual.defined()) server_residual_.write(input.residual);
  return payload;
}

void TensorTwoPhase::finish(const std::vector<TensorArrived>& owners, const at::Tensor& mean) {
  LINERATE_CHECK(owners.size() == chunks_.size(), "payloads of other chunks");
  damaged_.reset();
  for (std::size_t c = 0; c < chunks_.size(); ++c)
    if (chunks_[c].elements > 0) decode(workers_[c], owners[c], part(mean, c));
}

at::Tensor TensorTwoPhase::encode_dense(const TensorInput& input) {
  std::vector<at::Tensor> parts;
  for (std::size_t c = 0; c < chunks_.size(); ++c)
    if (chunks_[c].elements > 0) parts.push_back(encode(static_cast<int>(c), input).bytes);
  at::Tensor whole = at::cat(parts);
  LINERATE_CHECK(whole.numel() == 4 * input.gradient.numel(),
                 "a dense phase whose payload is not the tensor");
  return whole;
}

void TensorTwoPhase::decode_dense(const at::Tensor& sum, int ranks, const at::Tensor& mean) {
  damaged_.reset();
  for (std::size_t c = 0; c < chunks_.size(); ++c) {
    const compress::Chunk& chunk = chunks_[c];
    if (chunk.elements == 0) continue;
    const at::Tensor bytes = sum.narrow(0, 4 * chunk.first, 4 * chunk.elements);
    const at::Tensor values = part(mean, c);
    if (workers_[c].codec)
      decode(workers_[c], {{bytes}, ranks, {}}, values);
    else
      values.copy_(bytes.view(at::kFloat)).mul_(1.0f / static_cast<float>(ranks));
  }
}

template <typename Act>
void TensorTwoPhase::each_codec(Act&& act) {
  for (const Coder& worker : workers_)
    if (worker.codec) act(*worker.codec);
  if (server_.codec) act(*server_.codec);
}

void TensorTwoPhase::undo_if(const at::Tensor& none) {
  each_codec([&](TensorCodec& codec) { codec.undo_if(none); });
  server_residual_.undo_if(none);
}

void TensorTwoPhase::keep() {
  each_codec([](TensorCodec& codec) { codec.keep(); });
  server_residual_.keep();
}

void TensorTwoPhase::drop() {
  each_codec([](TensorCodec& codec) { codec.drop(); });
  server_residual_.drop();
}

compress::TwoPhaseState TensorTwoPhase::save() {
  compress::TwoPhaseState saved;
  for (const Coder& worker : workers_) saved.workers.push_back(saved_of(worker.codec.get()));
  saved.server = saved_of(server_.codec.get());
  const std::span<const std::byte> owed = server_residual_.bytes();
  saved.server.push_back({std::string(compress::kServerResidual),
                          compress::Passing::own,
                          true,
                          {owed.begin(), owed.end()}});
  return saved;
}

/// The host's TwoPhase has checked it (CodedParameter::use).
void TensorTwoPhase::load(const compress::TwoPhaseState& saved) {
  for (std::size_t c = 0; c < workers_.size(); ++c)
    load_into(workers_[c].codec.get(), saved.workers.at(c));
  load_into(server_.codec.get(), {saved.server.begin(), saved.server.end() - 1});
  const std::vector<std::byte>& owed = saved.server.back().bytes;
  server_residual_.drop();
  std::copy(owed.begin(), owed.end(), server_residual_.bytes().begin());
}

}  // namespace linerate::torch_codecs
