#include "linerate/compress/coded_tensor.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>

#include "linerate/compress/keep_denormals.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/hash.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/rng.hpp"

namespace linerate::compress {
namespace {

std::string_view compressor_in(std::string_view label) {
  return label.substr(0, label.find_first_of("(,"));
}

/// What the codecs of chunks keep, as one of the whole tensor would: arrays one after the other,
/// numbers of the first. Empty chunks keep nothing; after one that is dense arrays are too short.
SavedState joined(const std::vector<SavedState>& chunks) {
  SavedState whole;
  for (const SavedState& fields : chunks) {
    if (whole.empty()) {
      whole = fields;
      continue;
    }
    for (std::size_t f = 0; f < std::min(whole.size(), fields.size()); ++f)
      if (whole[f].is_array)
        whole[f].bytes.insert(whole[f].bytes.end(), fields[f].bytes.begin(), fields[f].bytes.end());
  }
  return whole;
}

/// The other way round, of arrays that have the tensor's elements.
std::vector<SavedState> cut(const SavedState& whole, const std::vector<Chunk>& chunks) {
  std::vector<SavedState> parts;
  for (const Chunk& chunk : chunks) {
    SavedState& fields = parts.emplace_back(whole);
    for (SavedField& field : fields) {
      if (!field.is_array) continue;
      const auto begin = field.bytes.begin() + chunk.first * std::ptrdiff_t{sizeof(float)};
      field.bytes = {begin, begin + chunk.elements * std::ptrdiff_t{sizeof(float)}};
    }
  }
  return parts;
}

bool has_arrays_of(const SavedState& state, std::int64_t elements) {
  return std::all_of(state.begin(), state.end(), [&](const SavedField& field) {
    return !field.is_array || field.bytes.size() == to_index(elements) * sizeof(float);
  });
}

/// Adds `times` what the field holds.
void add(const SavedField& field, float times, std::span<float> to) {
  std::vector<float> values(field.bytes.size() / sizeof(float));
  if (values.size() != to.size()) return;
  if (!values.empty()) std::memcpy(values.data(), field.bytes.data(), field.bytes.size());
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += times * values[i];
}

bool owes(const SavedState& state) {
  return std::any_of(state.begin(), state.end(),
                     [](const SavedField& field) { return field.passing == Passing::owed; });
}

}  // namespace

Keys keys_of_step(std::uint64_t seed, std::int64_t step, std::string_view name, int rank) {
  const std::uint64_t shared =
      random_key(random_key(seed, static_cast<std::uint64_t>(step)), hash_bytes(name));
  return {shared, random_key(shared, static_cast<std::uint64_t>(rank) + 1)};
}

CodedTensor::CodedTensor(std::string name, const Shape& shape, CompressedTensorState saved)
    : name_(std::move(name)), shape_(shape), loaded_(std::move(saved)) {
  if (loaded_.residual.size() == to_index(shape.elements)) residual_ = std::move(loaded_.residual);
  loaded_.residual.clear();
}

void CodedTensor::use(const TensorMethod& method) {
  if (label_ == method.label) return;
  const CompressedTensorState before = state();
  label_ = method.label;
  keeps_ = keeps_residual(*method.compressor);
  if (keeps_) {
    residual_.resize(to_index(shape_.elements), 0);
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
  loaded_ = {};
  if (before.method == label_)
    two_phase_ ? two_phase_->load(before.two_phase) : codec_->load(before.codec);
  else
    succeed(before, method);
}

/// Of an empty method, nothing.
void CodedTensor::succeed(const CompressedTensorState& before, const TensorMethod& method) {
  add_owed(before.two_phase, method);
  const bool had_owners = !before.two_phase.workers.empty();
  const SavedState kept = had_owners ? joined(before.two_phase.workers) : before.codec;
  if (kept.empty()) return;
  if (compressor_in(before.method) == compressor_in(label_) && take(kept)) return;
  if (!owes(kept)) return;
  residual_.resize(to_index(shape_.elements), 0);
  next_.resize(residual_.size());
  for (const SavedField& field : kept)
    if (field.passing == Passing::owed) add(field, 1, residual_);
}

/// An owner's debt is of the mean: as its own residual it weighs as many times less as ranks are.
void CodedTensor::add_owed(const TwoPhaseState& owner, const TensorMethod& method) {
  for (const SavedField& field : owner.server) {
    if (field.name != kServerResidual || field.bytes.empty()) continue;
    residual_.resize(to_index(shape_.elements), 0);
    next_.resize(residual_.size());
    const auto ranks = static_cast<int>(owner.workers.size());
    const Chunk own = cut_into_chunks(shape_.elements, ranks)[to_index(method.rank)];
    add(field, static_cast<float>(ranks),
        std::span(residual_).subspan(to_index(own.first), to_index(own.elements)));
  }
}

/// Whether the method's codec is one that could have kept this.
bool CodedTensor::take(const SavedState& kept) {
  try {
    if (!two_phase_) {
      codec_->load(kept);
      return true;
    }
    if (!has_arrays_of(kept, shape_.elements)) return false;
    two_phase_->load_workers(cut(kept, two_phase_->chunks()));
    return true;
  } catch (const InputError&) {  // other fields, or others' sizes
    return false;
  }
}

void CodedTensor::begin_step(std::uint64_t seed, std::int64_t step, int rank,
                             std::span<float> gradient) {
  const KeepDenormals keep;
  keys_ = keys_of_step(seed, step, name_, rank);
  is_touched_ = true;
  if (keeps_)
    next_ = residual_;
  else if (!residual_.empty())
    std::transform(gradient.begin(), gradient.end(), residual_.begin(), gradient.begin(),
                   std::plus<>());
}

void CodedTensor::take_dense(std::span<float> mean) {
  const KeepDenormals keep;
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
  const KeepDenormals keep;
  const Input input{gradient, keeps_ ? std::span(next_) : std::span<float>(), keys_, ranks, phase};
  sent_ =
      two_phase_ ? two_phase_->encode_dense(input, payload) : codec_->encode(round, input, payload);
  return sent_;
}

void CodedTensor::decode(int round, const Arrived& arrived, std::span<float> mean) {
  const KeepDenormals keep;
  if (two_phase_)
    two_phase_->decode_dense(arrived.payloads[0], arrived.ranks, mean);
  else
    codec_->decode(round, arrived, mean);
}

std::size_t CodedTensor::encode_chunk(int chunk, std::span<const float> gradient, int ranks,
                                      std::span<std::byte> payload) {
  const KeepDenormals keep;
  return two_phase_->encode(
      chunk, {gradient, keeps_ ? std::span(next_) : std::span<float>(), keys_, ranks}, payload);
}

std::size_t CodedTensor::reduce_chunk(const Arrived& arrived, std::span<std::byte> payload) {
  const KeepDenormals keep;
  return two_phase_->reduce(arrived, keys_, payload);
}

void CodedTensor::finish_chunks(std::span<const std::span<const std::byte>> payloads,
                                std::span<float> mean) {
  const KeepDenormals keep;
  two_phase_->finish(payloads, mean);
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
