#include "linerate/torch_adapter/stream_compression.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "linerate/compress/method/built_in.hpp"
#include "linerate/core/error.hpp"

namespace linerate::torch_adapter {

using compress::BucketPart;
using doc::Task;
using doc::TaskGraph;
using doc::TaskKind;
using torch_codecs::TensorOps;

StreamCompression::StreamCompression(PayloadMemory& memory, c10::Device device, int rank, int ranks,
                                     std::uint64_t seed)
    : CompressionOver(
          rank, ranks, seed,
          [device](const doc::Component& component) {
            return torch_codecs::over_tensors(component, device);
          },
          [device](const auto& name, const auto& shape, compress::CompressedTensorState state) {
            return std::make_unique<Parameter>(name, shape, std::move(state), device);
          }),
      memory_(memory),
      device_(device) {}

bool StreamCompression::codes(const std::string& compressor) {
  const std::vector<std::string> names = compress::built_in_compressors();
  return std::ranges::find(names, compressor) != names.end();
}

void StreamCompression::set_plan(std::shared_ptr<const doc::Plan> plan) {
  std::size_t most = 0;
  if (!plan->gradient_shapes.empty())  // else nothing is encoded
    for (const TaskGraph& graph : plan->variants) most = std::max(most, graph.buckets().size());
  const auto flags = at::TensorOptions().device(device_).dtype(at::kBool);
  usable_ = at::ones({static_cast<std::int64_t>(most)}, flags);
  damaged_ = at::zeros_like(usable_);
  homes_.clear();
  CompressionOver::set_plan(std::move(plan));
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
    for (const auto& [name, parameter] : tensors_) parameter->forget_sent(*none);
  CompressionOver::begin_dense(graph, shapes);
}

/// All of them by one call of the first one's codec, from a copy that has them one after the other.
void StreamCompression::take_dense_means(const std::vector<DenseMean>& means) {
  const compress::TensorMethod& method = codings_.dense_method();
  std::vector<at::Tensor> parts;
  TensorOps::Arriving tensors;
  std::int64_t first = 0;
  for (const auto& [name, shape, mean] : means) {
    if (!method.compressor->rounds(shape).empty()) continue;
    Parameter& parameter = tensor_of(name, shape);
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
  if (scale != 1) tensors.means.mul_(1 / scale);
  tensors.codecs.front()->decode_bucket(0, tensors);
  if (scale != 1) tensors.means.mul_(scale);
  at::_foreach_copy_(parts, TensorOps::parts_of(tensors.means, tensors.places));
}

at::Tensor StreamCompression::found_infinite() const {
  const bool are_all = std::ssize(checked_) == usable_.numel();
  if (checked_.empty()) return at::zeros({}, usable_.options());
  return (are_all ? usable_ : at::stack(checked_)).all().logical_not_();
}

void StreamCompression::settle(const at::Tensor& none) {
  LINERATE_CHECK(counted_.has_value(), "a step settled that was not kept");
  if (!none.defined()) return counted_.reset();
  // Each bucket's residuals are those before or after the step, by one operator. Residuals of
  // parameters that no rank used stay as they were.
  for (auto& [names, home] : homes_) {
    if (!home.is_touched || !home.residual.defined()) continue;
    for (Parameter* const parameter : home.tensors)
      if (parameter && counted_->contains(parameter->name())) parameter->forget_next();
    at::where_out(home.residual, none, home.residual, home.next);
  }
  std::vector<torch_codecs::KeptTensor*> kept;
  for (const auto& [name, parameter] : tensors_)
    if (!counted_->contains(name)) parameter->add_kept(kept);
  torch_codecs::KeptTensor::undo_if(kept, none);
  bool sent = false;
  for (const auto& [name, parameter] : tensors_)
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
  --steps_;
  counted_.reset();
}

void StreamCompression::load(compress::CompressionState state) {
  homes_.clear();
  CompressionOver::load(std::move(state));
}

StreamCompression::Home& StreamCompression::home_of(const CodedBucket& bucket,
                                                    const at::Tensor& values) {
  Home& home = homes_[bucket.names];
  home.is_touched = true;
  home.tensors = bucket.tensors;
  const bool keeps = std::ranges::any_of(
      home.tensors, [](const Parameter* one) { return one && one->keeps_residual(); });
  if (!keeps) return home.residual.reset(), home.next.reset(), home;
  if (!home.residual.defined()) {
    home.residual = at::zeros_like(values);
    home.next = at::zeros_like(values);
  }
  bucket.for_each_coded([&](Parameter& parameter, const BucketPart& part) {
    const at::Tensor residual = values_of_part(home.residual, part);
    if (!parameter.lives_in(residual)) parameter.live_in(residual, values_of_part(home.next, part));
  });
  return home;
}

at::Tensor StreamCompression::values_of(const CodedBucket&, std::int32_t payload) {
  return memory_.values(payload);
}
at::Tensor StreamCompression::bytes_of(const CodedBucket&, std::int32_t payload) {
  return memory_.values(payload).view(at::kByte);
}
void StreamCompression::copy(const std::vector<at::Tensor>& to,
                             const std::vector<at::Tensor>& from) {
  at::_foreach_copy_(to, from);
}
void StreamCompression::multiply(const std::vector<at::Tensor>& values, float by) {
  at::_foreach_mul_(values, by);
}

TensorOps::Arrays StreamCompression::arrays_of(const CodedBucket& bucket,
                                               const at::Tensor& values) const {
  return {values, homes_.at(bucket.names).next};
}

/// A rank's block of the payload that is gathered.
at::Tensor StreamCompression::block_of(const CodedBucket& bucket, int rank) {
  const at::Tensor bytes = bytes_of(bucket, bucket.payloads.front());
  const std::int64_t block = bytes.numel() / ranks_;
  return bytes.narrow(0, rank * block, block);
}

void StreamCompression::note_damage(const CodedBucket& bucket, const at::Tensor& damaged) {
  if (!damaged.defined()) return;
  may_be_damaged_ = true;
  damaged_.select(0, bucket.bucket).logical_or_(damaged);
}

void StreamCompression::run(const TaskGraph& graph, const Task& task) {
  if (task.kind == TaskKind::encode) memory_.fill(task.first);
  CompressionOver::run(graph, task);
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

void StreamCompression::begin_tensors(CodedBucket& bucket, const at::Tensor& values) {
  check_usable(bucket, values);
  bucket.for_each_coded([&](Parameter& parameter, const BucketPart&) {
    parameter.use(bucket.method);  // another variant may code it otherwise
  });
  const Home& home = home_of(bucket, values);
  if (home.residual.defined() && bucket.step.two_phase) home.next.copy_(home.residual);
  bucket.for_each_coded([&](Parameter& parameter, const BucketPart& part) {
    parameter.begin_step(seed_, steps_, rank_, values_of_part(values, part));
  });
}

/// Each coded part's place in a payload, for rounds whose parts have fixed sizes.
std::vector<at::Tensor> StreamCompression::parts_in(const CodedBucket& bucket, std::size_t round,
                                                    const at::Tensor& payload) {
  std::vector<at::Tensor> parts;
  for (const BucketPart& part : bucket.layout.parts)
    if (part.is_coded()) parts.push_back(payload.narrow(0, part.offset[round], part.bytes[round]));
  return parts;
}

/// The codec of the bucket's first coded tensor is called for all of them (encode_bucket).
TensorOps::Codec& StreamCompression::encode_all(CodedBucket& bucket, std::size_t round,
                                                const std::vector<at::Tensor>& payloads,
                                                TensorOps::Block* block, const at::Tensor& values) {
  const Home& home = homes_.at(bucket.names);
  TensorOps::Sending tensors{values, home.residual, home.next, {}, payloads, {}, {}, {}};
  tensors.block = block;
  bucket.for_each_coded([&](Parameter& parameter, const BucketPart& part) {
    tensors.places.push_back({part.value, part.shape.elements});
    tensors.keys.push_back(parameter.keys());
    tensors.codecs.push_back(parameter.codec());
  });
  tensors.ranks = ranks_;
  tensors.phase = bucket.step.phase;
  tensors.loss_scale = loss_scale();
  TensorOps::Codec& first = *tensors.codecs.at(0);
  first.encode_bucket(static_cast<int>(round), tensors);
  return first;
}

void StreamCompression::encode_sum(CodedBucket& bucket, std::size_t round,
                                   const at::Tensor& values) {
  const TensorOps::Codec& codec =
      encode_all(bucket, round, parts_in(bucket, round, bytes_of(bucket, bucket.payloads[round])),
                 nullptr, values);
  if (const at::Tensor& overflowed = codec.any_beyond(); overflowed.defined())
    usable_.select(0, bucket.bucket).logical_and_(overflowed.logical_not());
}

/// If a part's size depends on values, the parts are first encoded into rooms of the most bytes.
/// write_parts() then packs them one after the other into this rank's block, each after its size,
/// all on the device.
void StreamCompression::encode_gathered(CodedBucket& bucket, const at::Tensor& values) {
  const at::Tensor own = block_of(bucket, rank_);
  if (!bucket.layout.rounds.front().is_bound) {
    encode_all(bucket, 0, parts_in(bucket, 0, own), nullptr, values);
    return;
  }
  TensorOps::Block block{own};
  encode_all(bucket, 0, {}, &block, values);
  if (bucket.counts >= 0)
    memory_.values(bucket.counts).select(0, rank_).copy_(block.end * compress::kPartSizeBytes);
}

void StreamCompression::decode_all(CodedBucket& bucket, std::size_t round,
                                   std::vector<Arrived> arrived, TensorOps::Block* block,
                                   const at::Tensor& values) {
  TensorOps::Arriving tensors{values, {}, std::move(arrived), {}, block, ranks_};
  bucket.for_each_coded([&](Parameter& parameter, const BucketPart& part) {
    tensors.places.push_back({part.value, part.shape.elements});
    tensors.codecs.push_back(parameter.codec());
  });
  TensorOps::Codec& first = *tensors.codecs.at(0);
  first.decode_bucket(static_cast<int>(round), tensors);
  note_damage(bucket, first.damaged());
}

/// The parts of each tensor in these payloads: one sum, or one payload of each rank.
std::vector<StreamCompression::Arrived> StreamCompression::arrived_in(
    const CodedBucket& bucket, std::size_t round, const std::vector<at::Tensor>& payloads) const {
  std::vector<Arrived> arrived;
  for (const at::Tensor& payload : payloads) {
    const std::vector<at::Tensor> parts = parts_in(bucket, round, payload);
    arrived.resize(parts.size(), Arrived{{}, ranks_, {}});
    for (std::size_t t = 0; t < parts.size(); ++t) arrived[t].payloads.push_back(parts[t]);
  }
  return arrived;
}

void StreamCompression::decode_sum(CodedBucket& bucket, std::size_t round,
                                   const at::Tensor& values) {
  decode_all(bucket, round, arrived_in(bucket, round, {bytes_of(bucket, bucket.payloads[round])}),
             nullptr, values);
}

void StreamCompression::decode_gathered(CodedBucket& bucket, const at::Tensor& values) {
  if (bucket.layout.rounds.front().is_bound) {
    TensorOps::Block block{bytes_of(bucket, bucket.payloads.front()).view({ranks_, -1})};
    return decode_all(bucket, 0, {}, &block, values);
  }
  std::vector<at::Tensor> blocks;
  for (int r = 0; r < ranks_; ++r) blocks.push_back(block_of(bucket, r));
  decode_all(bucket, 0, arrived_in(bucket, 0, blocks), nullptr, values);
}

}  // namespace linerate::torch_adapter
