#include "linerate/compress/coded_tensor.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "linerate/core/hash.hpp"
#include "linerate/core/rng.hpp"

namespace linerate::compress {

CodedTensor::CodedTensor(std::string name, const Shape& shape, CompressedTensorState saved)
    : name_(std::move(name)), shape_(shape), loaded_(std::move(saved)) {
  if (loaded_.residual.size() == static_cast<std::size_t>(shape.elements))
    residual_ = std::move(loaded_.residual);
  loaded_.residual.clear();
}

void CodedTensor::use(const TensorMethod& method) {
  if (label_ == method.label) return;
  label_ = method.label;
  keeps_ = keeps_residual(*method.compressor);
  if (keeps_) {
    residual_.resize(static_cast<std::size_t>(shape_.elements), 0);
    next_.resize(residual_.size());
  }
  codec_.reset();
  two_phase_.reset();
  if (method.two_phase)
    two_phase_ =
        std::make_unique<TwoPhase>(*method.compressor, shape_.elements, method.ranks, method.rank);
  else
    codec_ =
        method.is_dense ? method.compressor->of_dense(shape_) : method.compressor->codec(shape_);
  if (loaded_.method == label_)
    two_phase_ ? two_phase_->load(loaded_.two_phase) : codec_->load(loaded_.codec);
  loaded_ = {};
}

void CodedTensor::begin_step(std::uint64_t seed, std::int64_t step, int rank,
                             std::span<float> gradient) {
  keys_.shared = random_key(random_key(seed, static_cast<std::uint64_t>(step)), hash_bytes(name_));
  keys_.own = random_key(keys_.shared, static_cast<std::uint64_t>(rank) + 1);
  is_touched_ = true;
  if (keeps_)
    next_ = residual_;
  else if (!residual_.empty())
    std::transform(gradient.begin(), gradient.end(), residual_.begin(), gradient.begin(),
                   std::plus<>());
}

void CodedTensor::take_dense(std::span<float> mean) {
  is_touched_ = true;
  codec_->decode(0, {}, mean);
}

void CodedTensor::keep() {
  if (!is_touched_) return;
  is_touched_ = false;
  if (keeps_)
    std::swap(residual_, next_);
  else
    residual_.clear();
  two_phase_ ? two_phase_->keep() : codec_->keep();
}

void CodedTensor::drop() {
  if (!is_touched_) return;
  is_touched_ = false;
  two_phase_ ? two_phase_->drop() : codec_->drop();
}

std::size_t CodedTensor::encode(int round, std::span<const float> gradient, int ranks, int phase,
                                std::span<std::byte> payload) {
  const Input input{gradient, keeps_ ? std::span(next_) : std::span<float>(), keys_, ranks, phase};
  sent_ =
      two_phase_ ? two_phase_->encode_dense(input, payload) : codec_->encode(round, input, payload);
  return sent_;
}

void CodedTensor::decode(int round, const Arrived& arrived, std::span<float> mean) {
  if (two_phase_)
    two_phase_->decode_dense(arrived.payloads[0], arrived.ranks, mean);
  else
    codec_->decode(round, arrived, mean);
}

std::size_t CodedTensor::encode_chunk(int chunk, std::span<const float> gradient, int ranks,
                                      std::span<std::byte> payload) {
  return two_phase_->encode(
      chunk, {gradient, keeps_ ? std::span(next_) : std::span<float>(), keys_, ranks}, payload);
}

CompressedTensorState CodedTensor::state() const {
  CompressedTensorState state{shape_.elements, residual_, label_, {}, {}};
  if (two_phase_) {
    state.two_phase = two_phase_->save();
  } else if (codec_) {
    state.codec = codec_->save();
  } else {  // no step has used it since it was loaded
    state.method = loaded_.method;
    state.codec = loaded_.codec;
    state.two_phase = loaded_.two_phase;
  }
  return state;
}

}  // namespace linerate::compress
