// The state of one parameter from step to step. A step may be given up at any time until keep(): a
// rank found an infinity, or a peer failed. So nothing is changed in place.
//
// Step with error feedback: begin_step() copies `residual_` to `next_`. The codec reads and writes
// `next_`. keep() swaps both, drop() does nothing. Example: the residual of an element is .5 and
// its gradient 1, so v is 1.5. The payload decodes to 1, so the codec leaves .5 in `next_`. If the
// third of three ranks reports an overflow, all three call drop(), and each residual is what it
// was.
//
// Change of the method, as `auto` or a warm-up asks for: use() makes another codec. What the old
// method owes must reach the optimizer some day. So it becomes the residual of the new method. A
// method without error feedback cannot keep a residual, so it adds the residual to the next
// gradient. Some codecs keep one in a field of their own, such as dgc's accumulator, and then the
// residual is added to that field.
#include "linerate/compress/coded_tensor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>

#include "linerate/compress/host_ops.hpp"
#include "linerate/compress/keep_denormals.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/compress/two_phase.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"

namespace linerate::compress {
namespace {

std::string_view compressor_in(std::string_view label) {
  return label.substr(0, label.find_first_of("(,"));
}

/// The fields of the chunks' codecs as the fields of one codec of the whole tensor. Arrays are put
/// one after the other. Single numbers are those of the first chunk. Empty chunks keep nothing. A
/// chunk that travels dense keeps nothing either, so the arrays are then too short, and cut()
/// refuses them.
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

}  // namespace

/// The key does not depend on how many random numbers earlier steps drew, nor on other parameters.
/// So a run that starts again at step 500 draws what the first run drew there.
Keys keys_of_step(std::uint64_t seed, std::int64_t step, std::string_view name, int rank) {
  const std::uint64_t shared =
      random_key(random_key(seed, static_cast<std::uint64_t>(step)), hash_bytes(name));
  return {shared, random_key(shared, static_cast<std::uint64_t>(rank) + 1)};
}

ParameterCodecs::ParameterCodecs(std::string name, const Shape& shape, CompressedTensorState saved)
    : loaded_(std::move(saved)),
      may_owe_elsewhere_(!loaded_.method.empty() || !loaded_.residual.empty()),
      name_(std::move(name)),
      shape_(shape) {
  if (loaded_.residual.size() != to_index(shape.elements)) loaded_.residual.clear();
}

void ParameterCodecs::make_codecs(const TensorMethod& method, const TwoPhase::Making& making) {
  const Compressor& compressor = *method.compressor;
  label_ = method.label;
  keeps_ = keeps_residual(compressor);
  codec_.reset();
  two_phase_.reset();
  if (method.two_phase)
    two_phase_ =
        std::make_unique<TwoPhase>(compressor, shape_.elements, method.ranks, method.rank, making);
  else
    codec_ = method.is_dense ? compressor.of_dense(shape_) : made_codec(compressor, shape_);
  loaded_ = {};
}

void ParameterCodecs::load_codecs(const CompressedTensorState& from) {
  if (two_phase_)
    two_phase_->load(from.two_phase);
  else if (codec_)
    codec_->load(from.codec);
}

CompressedTensorState ParameterCodecs::state_of_codecs() const {
  CompressedTensorState state = loaded_;
  state.elements = shape_.elements;
  if (two_phase_ || codec_) state.method = label_;
  if (two_phase_) state.two_phase = two_phase_->save();
  if (codec_) state.codec = codec_->save();
  return state;
}

std::vector<float> ParameterCodecs::forget_codecs(CompressedTensorState state, int rank) {
  loaded_ = std::move(state);
  own_all_owed(loaded_, rank);
  label_.clear();
  codec_.reset();
  two_phase_.reset();
  keeps_ = false;
  return std::exchange(loaded_.residual, {});
}

std::vector<KeptField*> ParameterCodecs::kept() const {
  if (two_phase_) return two_phase_->kept();
  std::vector<KeptField*> all;
  if (codec_) compress::add_kept(*codec_, all);
  return all;
}

void ParameterCodecs::begin_codecs(std::uint64_t seed, std::int64_t step, int rank) {
  keys_ = keys_of_step(seed, step, name_, rank);
  is_touched_ = may_owe_elsewhere_ = true;
}

bool ParameterCodecs::keep_codecs() {
  if (!std::exchange(is_touched_, false)) return false;
  for (KeptField* const one : kept()) one->keep();
  return true;
}

void ParameterCodecs::drop() {
  sends_residual_ = false;
  if (!std::exchange(is_touched_, false)) return;
  for (KeptField* const one : kept()) one->drop();
}

CodedTensor::CodedTensor(std::string name, const Shape& shape, CompressedTensorState saved)
    : ParameterCodecs(std::move(name), shape, std::move(saved)),
      residual_(std::exchange(loaded_.residual, {})) {}

void CodedTensor::use(const TensorMethod& method) {
  if (uses(method)) return;
  const CompressedTensorState before = state();
  try {
    make_codecs(method, TwoPhase::on_host());
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("compressor {}, \"{}\": {}", label_, name(), e.what()));
  }
  compressor_ = method.compressor;
  if (keeps_) {
    residual_.resize(to_index(shape().elements), 0);
    next_.resize(residual_.size());
  }
  if (before.method != label_)
    succeed(before, method.rank);
  else
    load_codecs(before);
  give_residual_to_codec();
}

/// Decides what the new method takes over. If it is the same compressor by other options, its codec
/// may go on with the old fields, and those are then no longer owed. All that is still owed
/// elsewhere becomes the residual.
void CodedTensor::succeed(CompressedTensorState before, int rank) {
  const bool had_owners = !before.two_phase.workers.empty();
  const SavedState kept = had_owners ? joined(before.two_phase.workers) : before.codec;
  if (!kept.empty() && compressor_in(before.method) == compressor_in(label_) && take(kept)) {
    before.codec.clear();
    for (SavedState& worker : before.two_phase.workers) worker.clear();
  }
  own_all_owed(before, rank);
  if (!before.residual.empty()) residual_ = std::move(before.residual);
}

/// A codec with a residual of its own, such as dgc's accumulator, adds the residual to it. As part
/// of the gradient the residual would pass the codec's momentum, and so count several times.
void CodedTensor::give_residual_to_codec() {
  if (keeps_ || !codec_ || residual_.empty()) return;
  for (const StateField& field : codec_->state()) {
    const std::span<std::byte> bytes = field.kept->bytes();
    if (field.passing != Passing::owed || bytes.size() != residual_.size() * sizeof(float))
      continue;
    std::vector<float> owed = floats_in(bytes);
    std::transform(owed.begin(), owed.end(), residual_.begin(), owed.begin(), std::plus<>());
    std::memcpy(bytes.data(), owed.data(), bytes.size());
    residual_.clear();
    return;
  }
}

/// Gives the codec the fields that another codec kept. False if the codec could not have kept them,
/// because it has other fields or other sizes.
bool CodedTensor::take(const SavedState& kept) {
  try {
    if (!two_phase_) {
      if (codec_) codec_->load(kept);
      return codec_ != nullptr;
    }
    two_phase_->load_workers(cut(kept, two_phase_->chunks()));
    return true;
  } catch (const InputError&) {  // other fields, or others' sizes
    return false;
  }
}

void CodedTensor::begin_step(std::uint64_t seed, std::int64_t step, int rank,
                             std::span<float> gradient, std::optional<float> loss_scale) {
  const KeepDenormals keep;
  loss_scale_ = loss_scale;
  begin_codecs(seed, step, rank);
  sends_residual_ = !keeps_ && !residual_.empty();
  if (keeps_)
    next_ = residual_;
  else if (sends_residual_)
    std::transform(gradient.begin(), gradient.end(), residual_.begin(), gradient.begin(),
                   std::plus<>());
}

/// Brings all that is owed into the residual, once. That holds whether the step counts or not. The
/// codec is forgotten, and made again by the next use().
std::span<const float> CodedTensor::begin_dense(int rank) {
  if (std::exchange(may_owe_elsewhere_, false)) residual_ = forget_codecs(state(), rank);
  sends_residual_ = !residual_.empty();
  return residual_;
}

void CodedTensor::take_dense(std::span<float> mean) {
  const KeepDenormals keep;
  is_touched_ = true;
  if (codec_) codec_->decode(0, {}, mean);
}

void CodedTensor::keep() {
  if (std::exchange(sends_residual_, false)) residual_.clear();
  if (keep_codecs() && keeps_) std::swap(residual_, next_);
}

std::size_t CodedTensor::encode(int round, std::span<const float> gradient, int ranks, int phase,
                                std::span<std::byte> payload) {
  const KeepDenormals keep;
  sent_ = codec_->encode(round, {gradient, next_residual(), keys(), ranks, phase, loss_scale_},
                         payload);
  if (sent_ == payload.size()) return sent_;
  const std::vector<Round> rounds = rounds_of(*compressor_, shape(), phase);
  const bool is_bound = !rounds.empty() && rounds.at(to_index(round)).is_bound;
  check_sent(sent_, payload.size(), is_bound, {label_, name(), round, shape().elements});
  return sent_;
}

void CodedTensor::decode(int round, const Arrived& arrived, std::span<float> mean) {
  const KeepDenormals keep;
  codec_->decode(round, arrived, mean);
}

CompressedTensorState CodedTensor::state() const {
  CompressedTensorState state = state_of_codecs();
  state.residual = residual_;
  return state;
}

// Chunks of the two-phase exchange on the host, coded one after the other. A chunk is a part of its
// tensor's arrays, so nothing is copied.

namespace {

std::span<float> part_of_chunk(std::span<float> tensor, const ChunkCall::Item& item) {
  return part_if_any(tensor, to_index(item.in_tensor), to_index(item.coder->elements));
}

}  // namespace

void HostOps::send_chunks(const ChunkCall& call, const Arrays& arrays,
                          const std::vector<Bytes>& rooms) {
  const KeepDenormals keep;
  for (std::size_t i = 0; i < call.items.size(); ++i) {
    const ChunkCall::Item& item = call.items[i];
    const Input input{part_of_chunk(arrays.values[item.tensor], item),
                      part_of_chunk(arrays.residuals[item.tensor], item), item.keys, call.ranks,
                      call.phase};
    put_part(rooms[i], 0, call.has_sizes, [&](std::span<std::byte> bytes) {
      const std::span<std::byte> room = bytes.first(to_index(item.bytes));
      const std::size_t sent = item.coder->codec->encode(0, input, room);
      check_sent(sent, room.size(), item.is_bound,
                 {item.method, item.name, 0, item.coder->elements});
      return sent;
    });
  }
}

HostOps::Damage HostOps::average_chunks(const ChunkCall& call,
                                        const std::vector<std::vector<Bytes>>& arrived,
                                        const Arrays& means) {
  const KeepDenormals keep;
  for (std::size_t i = 0; i < call.items.size(); ++i) {
    const ChunkCall::Item& item = call.items[i];
    std::vector<std::span<const std::byte>> payloads;
    for (const Bytes& room : arrived[i]) {
      std::size_t at = 0;
      payloads.push_back(get_part(room, at, call.has_sizes, to_index(item.bytes), item.name));
    }
    item.coder->codec->decode(0, {payloads, call.ranks},
                              part_of_chunk(means.values[item.tensor], item));
  }
  return {};
}

/// The arrays for the means of own chunks. The residuals are the kept fields themselves.
HostOps::Arrays HostOps::own_chunks(const std::vector<TwoPhase*>& owners) {
  Arrays all;
  for (TwoPhase* const one : owners) {
    one->room().resize(to_index(one->owner().elements));
    all.values.emplace_back(one->room());
    all.residuals.emplace_back(static_cast<KeptValues&>(one->owed()).changed());
  }
  return all;
}

/// The kept fields have them already.
void HostOps::keep_owed(const std::vector<TwoPhase*>&, const Arrays&) {}

}  // namespace linerate::compress
