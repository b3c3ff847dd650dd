#include "linerate/torch_adapter/stream_compression.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "linerate/compress/method/built_in.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/exec/compression.hpp"
#include "linerate/torch_codecs/coded_parameter.hpp"
#include "linerate/torch_codecs/tensor_ops.hpp"

namespace linerate::torch_adapter {
namespace {

using compress::BucketPart;
using compress::Combine;
using doc::Task;
using doc::TaskGraph;
using doc::TaskKind;
using torch_codecs::TensorOps;

at::Tensor values_of_part(const at::Tensor& values, const BucketPart& part) {
  return values.narrow(0, part.value, part.shape.elements);
}

void multiply(const at::Tensor& values, float by) {
  if (by != 1) values.mul_(by);
}

std::vector<TensorOps::Place> places_of(const auto& bucket) {
  std::vector<TensorOps::Place> places;
  for (const BucketPart& part : bucket.layout.parts)
    if (part.is_coded()) places.push_back({part.value, part.shape.elements});
  return places;
}

/// The codec of a bucket's first coded tensor. Codecs code a whole bucket at once (encode_bucket),
/// and this one is called for all of them.
TensorOps::Codec& first_codec(const auto& bucket) {
  for (const auto* tensor : bucket.tensors)
    if (tensor) return *tensor->codec();
  throw InternalError("a bucket that is encoded without a tensor that is");
}

auto exchange_of(const auto& bucket) { return exec::two_phase_exchange_of<TensorOps>(bucket); }

}  // namespace

StreamCompression::StreamCompression(PayloadMemory& memory, c10::Device device, int rank, int ranks,
                                     std::uint64_t seed)
    : memory_(memory),
      device_(device),
      rank_(rank),
      ranks_(ranks),
      seed_(seed),
      buckets_(
          rank, ranks,
          [device](const doc::Component& component) {
            return torch_codecs::over_tensors(component, device);
          },
          [device](const auto& name, const auto& shape, compress::CompressedTensorState state) {
            return std::make_unique<Parameter>(name, shape, std::move(state), device);
          }) {}

StreamCompression::~StreamCompression() = default;

bool StreamCompression::codes(const std::string& compressor) {
  const std::vector<std::string> names = compress::built_in_compressors();
  return std::find(names.begin(), names.end(), compressor) != names.end();
}

void StreamCompression::set_plan(std::shared_ptr<const doc::Plan> plan) {
  std::size_t most = 0;
  if (!plan->gradient_shapes.empty())  // else nothing is encoded
    for (const TaskGraph& graph : plan->variants) most = std::max(most, graph.buckets().size());
  const auto flags = at::TensorOptions().device(device_).dtype(at::kBool);
  usable_ = at::ones({static_cast<std::int64_t>(most)}, flags);
  damaged_ = at::zeros_like(usable_);
  homes_.clear();
  buckets_.set_plan(std::move(plan));
}

void StreamCompression::begin_step() {
  LINERATE_CHECK(!counted_, "a step begun before the one before it is settled");
  checked_.clear();
  if (std::exchange(may_be_damaged_, false)) damaged_.zero_();
  for (auto& [names, home] : homes_) home.is_touched = false;
  owed_.clear();
}

/// Collects the residuals that this step sends dense. A residual that an earlier step has sent is
/// zero on the device. The host learns later whether that step counted; until then it adds the
/// zeros once more.
void StreamCompression::begin_dense(const TaskGraph& graph,
                                    std::span<const compress::Shape> shapes) {
  if (const std::optional<bool> none = none_late_.take())
    for (const auto& [name, parameter] : buckets_.tensors()) parameter->forget_sent(*none);
  for (const auto& [position, parameter] : buckets_.dense_ones(graph, shapes)) {
    const at::Tensor owed = parameter->begin_dense(rank_);
    if (!owed.defined()) continue;
    owed_.resize(shapes.size());
    owed_[position] = owed;
  }
}

/// All of them by one call of the first one's codec, from a copy that has them one after the other.
void StreamCompression::take_dense_means(const std::vector<DenseMean>& means) {
  const compress::TensorMethod& method = buckets_.dense_method();
  std::vector<at::Tensor> parts;
  TensorOps::Arriving tensors;
  std::int64_t first = 0;
  for (const auto& [name, shape, mean] : means) {
    if (!method.compressor->rounds(shape).empty()) continue;
    Parameter& parameter = buckets_.tensor_of(name, shape);
    parameter.use(method);
    parameter.begin_dense_mean();
    parts.push_back(mean);
    tensors.places.push_back({first, shape.elements});
    tensors.codecs.push_back(parameter.codec());
    first += shape.elements;
  }
  if (parts.empty()) return;
  tensors.means = at::cat(parts);
  tensors.arrived.resize(parts.size());
  const float scale = loss_scale().value_or(1);
  multiply(tensors.means, 1 / scale);
  tensors.codecs.front()->decode_bucket(0, tensors);
  multiply(tensors.means, scale);
  at::_foreach_copy_(parts, TensorOps::parts_of(tensors.means, tensors.places));
}

void StreamCompression::keep(std::set<std::string> unused) {
  buckets_.count_step();
  counted_ = std::move(unused);
}

void StreamCompression::drop() {
  for (const auto& [name, parameter] : buckets_.tensors()) parameter->drop();
}

at::Tensor StreamCompression::found_infinite() const {
  const bool are_all = std::ssize(checked_) == usable_.numel();
  if (checked_.empty()) return at::zeros({}, usable_.options());
  return (are_all ? usable_ : at::stack(checked_)).all().logical_not_();
}

void StreamCompression::settle(const at::Tensor& none) {
  LINERATE_CHECK(counted_.has_value(), "a step settled that was not kept");
  if (!none.defined()) return counted_.reset();
  keep_residuals(none);
  std::vector<torch_codecs::KeptTensor*> kept;
  for (const auto& [name, parameter] : buckets_.tensors())
    if (!counted_->contains(name)) parameter->add_kept(kept);
  torch_codecs::KeptTensor::undo_if(kept, none);
  bool sent = false;
  for (const auto& [name, parameter] : buckets_.tensors())
    if (counted_->contains(name))
      parameter->drop();
    else
      sent = parameter->keep(none) || sent;
  counted_.reset();
  if (sent) none_late_.ask(none);
  if (may_be_damaged_) damaged_late_.ask(damaged_.any());
}

void StreamCompression::take_back() {
  LINERATE_CHECK(counted_.has_value(), "a step taken back that was not kept");
  drop();
  buckets_.uncount_step();
  counted_.reset();
}

compress::CompressionState StreamCompression::save() const { return buckets_.save(); }

void StreamCompression::load(compress::CompressionState state) {
  homes_.clear();
  buckets_.load(std::move(state));
}

StreamCompression::Home& StreamCompression::home_of(const CodedBucket& bucket,
                                                    const at::Tensor& values) {
  Home& home = homes_[bucket.names];
  home.is_touched = true;
  home.tensors = bucket.tensors;
  const bool keeps = std::any_of(home.tensors.begin(), home.tensors.end(),
                                 [](const Parameter* one) { return one && one->keeps_residual(); });
  if (!keeps) return home.residual.reset(), home.next.reset(), home;
  if (!home.residual.defined()) {
    home.residual = at::zeros_like(values);
    home.next = at::zeros_like(values);
  }
  each_coded(const_cast<CodedBucket&>(bucket),
             [&](Parameter& parameter, const BucketPart& part, std::size_t) {
               const at::Tensor residual = values_of_part(home.residual, part);
               if (!parameter.lives_in(residual))
                 parameter.live_in(residual, values_of_part(home.next, part));
             });
  return home;
}

/// A bucket's arrays for the two-phase exchange.
TensorOps::Arrays StreamCompression::arrays_of(const CodedBucket& bucket,
                                               const at::Tensor& values) const {
  return {values, homes_.at(bucket.names).next};
}

/// Chooses each bucket's residuals between before and after the step, by one operator. Residuals of
/// parameters that no rank used stay as they were.
void StreamCompression::keep_residuals(const at::Tensor& none) {
  for (auto& [names, home] : homes_) {
    if (!home.is_touched || !home.residual.defined()) continue;
    for (Parameter* const parameter : home.tensors)
      if (parameter && counted_->contains(parameter->name())) parameter->forget_next();
    at::where_out(home.residual, none, home.residual, home.next);
  }
}

at::Tensor StreamCompression::bytes_of(std::int32_t payload) const {
  return memory_.values(payload).view(at::kByte);
}

/// A rank's block of a payload that is gathered.
at::Tensor StreamCompression::block_of(std::int32_t payload, int rank) const {
  const at::Tensor bytes = bytes_of(payload);
  const std::int64_t block = bytes.numel() / ranks_;
  return bytes.narrow(0, rank * block, block);
}

template <typename Visit>
void StreamCompression::each_coded(CodedBucket& bucket, Visit&& visit) {
  for (std::size_t i = 0; i < bucket.tensors.size(); ++i)
    if (bucket.tensors[i]) visit(*bucket.tensors[i], bucket.layout.parts[i], i);
}

void StreamCompression::note_damage(const CodedBucket& bucket, const at::Tensor& damaged) {
  if (!damaged.defined()) return;
  may_be_damaged_ = true;
  damaged_.select(0, bucket.bucket).logical_or_(damaged);
}

void StreamCompression::run(const TaskGraph& graph, const Task& task) {
  CodedBucket& bucket = buckets_.of(graph, task);
  const at::Tensor& values = memory_.values(task.first);
  if (task.kind == TaskKind::decode) return decode(bucket, values);
  const int round = buckets_.round_of(task);
  memory_.fill(task.first);
  if (round == 0)
    encode(bucket, values);
  else
    encode_round(bucket, to_index(round), values);
}

/// Takes a bucket's gradients for zero if one of them is not usable. The largest magnitude is a NaN
/// if an element is, and a NaN is not less than or equal to any bound. So one norm and one
/// comparison find infinities and NaNs.
void StreamCompression::check_usable(const CodedBucket& bucket, const at::Tensor& values) {
  if (values.numel() == 0) return;
  at::Tensor usable = checked_.emplace_back(usable_.select(0, bucket.bucket));
  const at::Tensor largest =
      at::linalg_vector_norm(values, std::numeric_limits<double>::infinity());
  at::le_out(usable, largest, exec::kGreatestGradient);
  at::where_out(const_cast<at::Tensor&>(values), usable, values, at::scalar_tensor(0.0f));
}

// ---- encode ----

void StreamCompression::encode(CodedBucket& bucket, const at::Tensor& values) {
  check_usable(bucket, values);
  begin_tensors(bucket, values);
  if (bucket.step.two_phase)
    exchange_of(bucket).encode(arrays_of(bucket, values), bytes_of(bucket.payloads.front()),
                               bucket.step.phase);
  else if (bucket.layout.rounds.front().combine == Combine::sum)
    encode_sum(bucket, 0, values);
  else
    encode_gathered(bucket, values);
  send_dense(bucket, values);
}

void StreamCompression::begin_tensors(CodedBucket& bucket, const at::Tensor& values) {
  each_coded(bucket, [&](Parameter& parameter, const BucketPart&, std::size_t) {
    parameter.use(bucket.method);  // another variant may code it otherwise
  });
  const Home& home = home_of(bucket, values);
  if (home.residual.defined() && bucket.step.two_phase) home.next.copy_(home.residual);
  each_coded(bucket, [&](Parameter& parameter, const BucketPart& part, std::size_t) {
    parameter.begin_step(seed_, buckets_.steps(), rank_, values_of_part(values, part));
  });
}

/// Reads what came back from the last round, then encodes this one.
void StreamCompression::encode_round(CodedBucket& bucket, std::size_t round,
                                     const at::Tensor& values) {
  if (bucket.has_owners())
    return note_damage(bucket, exchange_of(bucket).reduce(bytes_of(bucket.payloads[1]),
                                                          bytes_of(bucket.payloads[2])));
  decode_sum(bucket, round - 1, {});
  encode_sum(bucket, round, values);
}

/// Each coded part's place in a payload, for rounds whose parts have fixed sizes.
std::vector<at::Tensor> StreamCompression::parts_in(const CodedBucket& bucket, std::size_t round,
                                                    const at::Tensor& payload) {
  std::vector<at::Tensor> parts;
  for (const BucketPart& part : bucket.layout.parts)
    if (part.is_coded()) parts.push_back(payload.narrow(0, part.offset[round], part.bytes[round]));
  return parts;
}

TensorOps::Codec& StreamCompression::encode_all(CodedBucket& bucket, std::size_t round,
                                                const std::vector<at::Tensor>& payloads,
                                                TensorOps::Block* block, const at::Tensor& values) {
  TensorOps::Codec& first = first_codec(bucket);
  const Home& home = homes_.at(bucket.names);
  TensorOps::Sending tensors{values, home.residual, home.next, places_of(bucket), payloads, {}, {},
                             {}};
  tensors.block = block;
  each_coded(bucket, [&](Parameter& parameter, const BucketPart&, std::size_t) {
    tensors.keys.push_back(parameter.keys());
    tensors.codecs.push_back(parameter.codec());
  });
  tensors.of_ranks = ranks_;
  tensors.phase = bucket.step.phase;
  tensors.scale = loss_scale();
  first.encode_bucket(static_cast<int>(round), tensors);
  return first;
}

void StreamCompression::encode_sum(CodedBucket& bucket, std::size_t round,
                                   const at::Tensor& values) {
  const TensorOps::Codec& codec = encode_all(
      bucket, round, parts_in(bucket, round, bytes_of(bucket.payloads[round])), nullptr, values);
  if (const at::Tensor& overflowed = codec.any_beyond(); overflowed.defined())
    usable_.select(0, bucket.bucket).logical_and_(overflowed.logical_not());
}

/// If a part's size depends on values, the parts are first encoded into rooms of the most bytes.
/// write_parts() then packs them one after the other into this rank's block, each after its size,
/// all on the device.
void StreamCompression::encode_gathered(CodedBucket& bucket, const at::Tensor& values) {
  const at::Tensor own = block_of(bucket.payloads.front(), rank_);
  if (!bucket.layout.rounds.front().is_bound) {
    encode_all(bucket, 0, parts_in(bucket, 0, own), nullptr, values);
    return;
  }
  TensorOps::Block block{own};
  encode_all(bucket, 0, {}, &block, values);
  if (bucket.counts >= 0)
    memory_.values(bucket.counts).select(0, rank_).copy_(block.end * compress::kPartSizeBytes);
}

// ---- decode ----

void StreamCompression::decode(CodedBucket& bucket, const at::Tensor& values) {
  if (bucket.step.two_phase)
    note_damage(bucket, exchange_of(bucket).finish(bytes_of(bucket.payloads.back()),
                                                   arrays_of(bucket, values)));
  else if (bucket.layout.rounds.back().combine == Combine::sum)
    decode_sum(bucket, bucket.layout.rounds.size() - 1, values);
  else
    decode_gathered(bucket, values);
  take_dense(bucket, values);
  multiply(values, loss_scale().value_or(1));
}

void StreamCompression::decode_all(CodedBucket& bucket, std::size_t round,
                                   std::vector<Arrived> arrived, TensorOps::Block* block,
                                   const at::Tensor& values) {
  TensorOps::Arriving tensors{values, places_of(bucket), std::move(arrived), {}, block, ranks_};
  each_coded(bucket, [&](Parameter& parameter, const BucketPart&, std::size_t) {
    tensors.codecs.push_back(parameter.codec());
  });
  TensorOps::Codec& first = first_codec(bucket);
  first.decode_bucket(static_cast<int>(round), tensors);
  note_damage(bucket, first.damaged());
}

/// The parts of each tensor in these payloads: one sum, or one payload of each rank.
std::vector<StreamCompression::Arrived> StreamCompression::arrived_in(
    const CodedBucket& bucket, std::size_t round, const std::vector<at::Tensor>& payloads) const {
  std::vector<Arrived> arrived(places_of(bucket).size(), Arrived{{}, ranks_, {}});
  for (const at::Tensor& payload : payloads) {
    const std::vector<at::Tensor> parts = parts_in(bucket, round, payload);
    for (std::size_t t = 0; t < parts.size(); ++t) arrived[t].payloads.push_back(parts[t]);
  }
  return arrived;
}

/// Decodes a round's sum. Undefined `values`: a round before the last one, whose result the codecs
/// keep.
void StreamCompression::decode_sum(CodedBucket& bucket, std::size_t round,
                                   const at::Tensor& values) {
  decode_all(bucket, round, arrived_in(bucket, round, {bytes_of(bucket.payloads[round])}), nullptr,
             values);
}

void StreamCompression::decode_gathered(CodedBucket& bucket, const at::Tensor& values) {
  if (bucket.layout.rounds.front().is_bound) {
    TensorOps::Block block{bytes_of(bucket.payloads.front()).view({ranks_, -1})};
    return decode_all(bucket, 0, {}, &block, values);
  }
  std::vector<at::Tensor> blocks;
  for (int r = 0; r < ranks_; ++r) blocks.push_back(block_of(bucket.payloads.front(), r));
  decode_all(bucket, 0, arrived_in(bucket, 0, blocks), nullptr, values);
}

// ---- what travels dense ----

/// The sums of gradients that travel dense: in a payload of their own, or after the first round's
/// sums.
at::Tensor StreamCompression::dense_of(const CodedBucket& bucket) const {
  const bool rides = bucket.dense < 0;
  const at::Tensor& values = memory_.values(rides ? bucket.payloads.front() : bucket.dense);
  return values.narrow(0, rides ? bucket.layout.dense_begin : 0, bucket.layout.dense_elements);
}

StreamCompression::DenseParts StreamCompression::dense_parts(const CodedBucket& bucket,
                                                             const at::Tensor& values) const {
  const at::Tensor dense = dense_of(bucket);
  DenseParts parts;
  for (const BucketPart& part : bucket.layout.parts) {
    if (part.is_coded()) continue;
    parts.values.push_back(values_of_part(values, part));
    parts.sent.push_back(dense.narrow(0, part.dense, part.shape.elements));
  }
  return parts;
}

void StreamCompression::send_dense(const CodedBucket& bucket, const at::Tensor& values) {
  if (bucket.layout.dense_elements == 0) return;
  const DenseParts parts = dense_parts(bucket, values);
  at::_foreach_copy_(parts.sent, parts.values);
}

void StreamCompression::take_dense(const CodedBucket& bucket, const at::Tensor& values) {
  if (bucket.layout.dense_elements == 0) return;
  const DenseParts parts = dense_parts(bucket, values);
  at::_foreach_copy_(parts.values, parts.sent);
  at::_foreach_mul_(parts.values, 1.0f / static_cast<float>(ranks_));
}

}  // namespace linerate::torch_adapter
