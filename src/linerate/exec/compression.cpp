// The encode and decode tasks of a bucket, on the host. A bucket's payload has one of three forms.
// - Sums (powersgd, fp16, shared scales): each part has a fixed offset, the same on all ranks, so
//   that an all-reduce may add payloads. Bytes that a part does not use are zero and add nothing.
// - Gathers: the room has a block for each rank, and a rank writes its parts one after the other
//   into its own block. If sizes are known, the blocks stay where they are. If ranks tell each
//   other sizes first (`counts`), the gather packs the blocks (collective.cpp).
// - The two-phase exchange: each rank owns a chunk of every tensor, reduces that chunk for all
//   ranks, and all gather the results (compress/two_phase.hpp).
//
// Compressors of several rounds have an encode task for each. That task first reads what the round
// before brought, then writes its own payload. For example powersgd sends P, reads the sum of all
// P, and then sends Q.
#include "linerate/exec/compression.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/compress/noise.hpp"
#include "linerate/compress/payload.hpp"

namespace linerate::exec {

using compress::BucketPart;
using compress::get_part;
using compress::put_part;
using doc::Task;
using doc::TaskGraph;
using doc::TaskKind;

/// Without its sign bit, a float's bits order like its magnitude, and a NaN's bits are greater than
/// those of infinity. So one maximum over integers finds both infinities and NaNs.
bool are_usable(std::span<const float> gradients, float scale) {
  const float most = std::min(kGreatestGradient * scale, std::numeric_limits<float>::max());
  return compress::largest_magnitude_bits(gradients) <= std::bit_cast<std::uint32_t>(most);
}

std::set<std::string> Compression::operations_of(const doc::Plan& plan) {
  std::set<std::string> names;
  for (const TaskGraph& graph : plan.variants)
    for (const Task& task : graph.tasks)
      if (doc::is_coding(plan, task)) names.emplace(plan.operation_name(task));
  return names;
}

void Compression::begin_step() {
  settle();
  owed_.clear();
  infinite_ = false;
}

/// The mean is of gradients times the loss scale; the state is kept in units of the loss. So the
/// scale is divided out for the compressor and multiplied back for the optimizer.
void Compression::take_dense_mean(const std::string& name, const compress::Shape& shape,
                                  std::span<float> mean) {
  const compress::TensorMethod& method = codings_.dense_method();
  if (!method.compressor->rounds(shape).empty()) return;
  compress::CodedTensor& tensor = tensor_of(name, shape);
  tensor.use(method);
  const float scale = loss_scale().value_or(1);
  if (scale != 1) multiply({mean}, 1 / scale);
  tensor.take_dense(mean);
  if (scale != 1) multiply({mean}, scale);
}

/// Ends the last step for all codecs. Decodes of a kept step are through by now, so its codecs take
/// over what that step wrote. Parameters that no rank used keep their old state, and so does every
/// codec of a step that was not kept.
void Compression::settle() const {
  for (const auto& [name, tensor] : tensors_)
    counted_ && !counted_->contains(name) ? tensor->keep() : tensor->drop();
  counted_.reset();
}

compress::CompressionState Compression::save() const {
  if (counted_) settle();
  return CompressionOver::save();
}

std::span<float> Compression::values_of(const CodedBucket& bucket, std::int32_t payload) {
  const comm::Buffer b = payloads_.buffer(*bucket.graph, payload);
  return {static_cast<float*>(b.data), to_index(b.count.value)};
}

std::span<std::byte> Compression::bytes_of(const CodedBucket& bucket, std::int32_t payload) {
  const comm::Buffer b = payloads_.buffer(*bucket.graph, payload);
  return {static_cast<std::byte*>(b.data), to_index(b.count.value * size_of(b.dtype))};
}

std::span<std::int64_t> Compression::counts_of(const CodedBucket& bucket) {
  const comm::Buffer b = payloads_.buffer(*bucket.graph, bucket.counts);
  return {static_cast<std::int64_t*>(b.data), to_index(b.count.value)};
}

void Compression::copy(const std::vector<std::span<float>>& to,
                       const std::vector<std::span<float>>& from) {
  for (std::size_t i = 0; i < to.size(); ++i)
    std::copy(from[i].begin(), from[i].end(), to[i].begin());
}
void Compression::multiply(const std::vector<std::span<float>>& values, float by) {
  for (const std::span<float> all : values)
    for (float& value : all) value *= by;
}

/// A bucket with an infinite gradient is encoded as zeros. Codecs then see finite numbers alone,
/// and the other ranks get a payload that they can decode.
void Compression::begin_tensors(CodedBucket& bucket, const std::span<float>& values) {
  if (!are_usable(values)) {
    infinite_ = true;
    std::fill(values.begin(), values.end(), 0.0f);
  }
  bucket.for_each_coded([&](compress::CodedTensor& tensor, const BucketPart& part) {
    tensor.use(bucket.method);  // another variant may code it otherwise
    tensor.begin_step(seed_, steps_, rank_, values_of_part(values, part), loss_scale());
  });
}

compress::HostOps::Arrays Compression::arrays_of(const CodedBucket& bucket,
                                                 const std::span<float>& values) const {
  compress::HostOps::Arrays arrays;
  bucket.for_each_coded([&](compress::CodedTensor& tensor, const BucketPart& part) {
    arrays.values.push_back(values_of_part(values, part));
    arrays.residuals.push_back(tensor.next_residual());
  });
  return arrays;
}

/// The bytes of its room that a part does not use are set to zero, so they add nothing to the sum.
void Compression::encode_sum(CodedBucket& bucket, std::size_t round,
                             const std::span<float>& values) {
  const std::span<std::byte> payload = bytes_of(bucket, bucket.payloads[round]);
  bucket.for_each_coded([&](compress::CodedTensor& tensor, const BucketPart& part) {
    const auto bytes = payload.subspan(to_index(part.offset[round]), to_index(part.bytes[round]));
    const std::size_t sent = tensor.encode(static_cast<int>(round), values_of_part(values, part),
                                           ranks_, bucket.step.phase, bytes);
    infinite_ = infinite_ || tensor.overflowed();
    compress::zero_from(bytes, sent);
  });
}

/// Writes this rank's parts one after the other to its own block. If sizes depend on values
/// (`has_size`), each part begins with its size.
void Compression::encode_gathered(CodedBucket& bucket, const std::span<float>& values) {
  const std::span<std::byte> payload = bytes_of(bucket, bucket.payloads.front());
  const std::size_t room = payload.size() / to_index(ranks_);
  const std::span<std::byte> own = payload.subspan(to_index(rank_) * room, room);
  const bool has_size = bucket.layout.rounds.front().is_bound;
  std::size_t sent = 0;
  bucket.for_each_coded([&](compress::CodedTensor& tensor, const BucketPart& part) {
    sent += put_part(own, sent, has_size, [&](std::span<std::byte> bytes) {
      return tensor.encode(0, values_of_part(values, part), ranks_, bucket.step.phase,
                           bytes.first(to_index(part.bytes[0])));
    });
  });
  if (bucket.counts >= 0)
    counts_of(bucket)[to_index(rank_)] = static_cast<std::int64_t>(sent);
  else  // what was there before goes nowhere
    compress::zero_from(own, sent);
}

void Compression::decode_sum(CodedBucket& bucket, std::size_t round,
                             const std::span<float>& values) {
  const std::span<const std::byte> payload = bytes_of(bucket, bucket.payloads[round]);
  bucket.for_each_coded([&](compress::CodedTensor& tensor, const BucketPart& part) {
    const std::size_t size =
        bucket.layout.rounds[round].is_bound ? tensor.sent_bytes() : to_index(part.bytes[round]);
    const std::span<const std::byte> sum = payload.subspan(to_index(part.offset[round]), size);
    tensor.decode(static_cast<int>(round), {{&sum, 1}, ranks_},
                  values.empty() ? values : values_of_part(values, part));
  });
}

/// Finds each rank's block: at equal distances, or one after the other if ranks told each other
/// sizes. Then it decodes tensor by tensor, each from the parts of all ranks. All blocks list their
/// parts in the same order, so one cursor a block is enough.
void Compression::decode_gathered(CodedBucket& bucket, const std::span<float>& values) {
  const std::span<const std::byte> payload = bytes_of(bucket, bucket.payloads.back());
  const bool has_size = bucket.layout.rounds.front().is_bound;
  const auto ranks = to_index(ranks_);
  std::vector<std::span<const std::byte>> blocks;
  for (std::size_t r = 0, begin = 0; r < ranks; ++r) {
    const std::size_t bytes =
        bucket.counts < 0 ? payload.size() / ranks : to_index(counts_of(bucket)[r]);
    blocks.push_back(payload.subspan(begin, bytes));
    begin += bytes;
  }
  std::vector<std::size_t> at(ranks, 0);
  std::vector<std::span<const std::byte>> parts(ranks);
  bucket.for_each_coded([&](compress::CodedTensor& tensor, const BucketPart& part) {
    for (std::size_t r = 0; r < ranks; ++r)
      parts[r] = get_part(blocks[r], at[r], has_size, to_index(part.bytes[0]), tensor.name());
    tensor.decode(0, {parts, ranks_}, values_of_part(values, part));
  });
}

// Runs encode and decode tasks in a rehearsal, so that they take their time. A rehearsal has no
// gradients and sends no payloads. Gradients are noise. A decode reads payloads of all ranks, so
// after each encode the own payload stands in for those of the others.
//
// Example with three ranks, seen from rank 1: encode writes block 1 of a gathered payload. It is
// copied to blocks 0 and 2, and decode reads three payloads of the right form. With the two-phase
// exchange each owner's block is copied in the same way.

CompressionLoad::Memory::Memory(const doc::Plan& plan) {
  std::int64_t most = 0;
  for (const TaskGraph& graph : plan.variants)
    for (const doc::Payload& bucket : graph.buckets()) most = std::max(most, bucket.padded);
  noise_ = compress::noise(most, 1);
  decoded_.resize(noise_.size());
}

comm::Buffer CompressionLoad::Memory::buffer(const TaskGraph& graph, std::int32_t payload) {
  const doc::Payload& p = graph.payloads[to_index(payload)];
  if (p.content == doc::Content::gradients)
    return {(decoding_ ? decoded_ : noise_).data(), {p.elements}, p.dtype};
  std::vector<std::byte>& bytes = encoded_[{&graph, payload}];
  bytes.resize(to_index(p.bytes()));
  return {bytes.data(), {p.padded}, p.dtype};
}

CompressionLoad::CompressionLoad(std::shared_ptr<const doc::Plan> plan, int rank, int ranks)
    : plan_(std::move(plan)),
      rank_(rank),
      ranks_(ranks),
      memory_(*plan_),
      compression_(memory_, rank, ranks, 1) {
  compression_.set_plan(plan_);
}

void CompressionLoad::run(const TaskGraph& graph, const Task& task) {
  const bool begins =
      task.kind == TaskKind::encode &&
      compress::CodingStep::of(plan_->operations[to_index(task.operation)]).round == 0;
  if (begins && !encoded_.insert(task.first).second) {  // one more step
    compression_.keep();
    encoded_ = {task.first};
  }
  memory_.set_decoding(task.kind == TaskKind::decode);
  compression_.run(graph, task);
  if (task.kind == TaskKind::encode) stand_in_for_others(graph, task);
}

/// Fills in what the collective after this encode would bring.
void CompressionLoad::stand_in_for_others(const TaskGraph& graph, const Task& task) {
  const auto step = compress::CodingStep::of(plan_->operations[to_index(task.operation)]);
  const std::vector<std::int32_t> payloads = encoded_payloads(graph, task.first);
  const bool has_owners = step.two_phase && payloads.size() >= 3;
  if (has_owners && step.round == 0) return repeat_own_block(graph, payloads[0], payloads[1]);
  if (has_owners) {  // other owners' blocks have the form of those sent to them
    const comm::Buffer sent = memory_.buffer(graph, payloads[0]);
    const comm::Buffer gathered = memory_.buffer(graph, payloads[2]);
    const std::size_t block = to_index(sent.count.value) / to_index(ranks_);
    for (std::size_t r = 0; r < to_index(ranks_); ++r)
      if (r != to_index(rank_))
        std::memcpy(static_cast<std::byte*>(gathered.data) + r * block,
                    static_cast<const std::byte*>(sent.data) + r * block, block);
    return;
  }
  const std::int32_t counts = counts_of(graph, payloads.front());
  const doc::Payload& first = graph.payloads[to_index(payloads.front())];
  if (counts >= 0)
    repeat_own_part(graph, payloads.front(), counts);
  else if (first.dtype == DType::u8)
    repeat_own_block(graph, payloads.front(), payloads.front());
}

void CompressionLoad::repeat_own_block(const TaskGraph& graph, std::int32_t from, std::int32_t to) {
  const comm::Buffer source = memory_.buffer(graph, from), target = memory_.buffer(graph, to);
  const auto ranks = to_index(ranks_), own = to_index(rank_);
  const std::size_t block = to_index(source.count.value) / ranks;
  const auto* block_begin = static_cast<const std::byte*>(source.data) + own * block;
  for (std::size_t r = 0; r < ranks; ++r)
    if (std::byte* there = static_cast<std::byte*>(target.data) + r * block; there != block_begin)
      std::memcpy(there, block_begin, block);
}

/// In a payload whose sizes are told, parts stand one after the other without gaps. So the own part
/// is moved to the front and repeated, and all sizes become its own.
void CompressionLoad::repeat_own_part(const TaskGraph& graph, std::int32_t payload,
                                      std::int32_t counts) {
  const comm::Buffer room = memory_.buffer(graph, payload), sizes = memory_.buffer(graph, counts);
  auto* const size = static_cast<std::int64_t*>(sizes.data);
  auto* const bytes = static_cast<std::byte*>(room.data);
  const auto ranks = to_index(ranks_), own = to_index(rank_);
  const auto part = to_index(size[own]);
  std::memmove(bytes, bytes + own * (to_index(room.count.value) / ranks), part);
  for (std::size_t r = 1; r < ranks; ++r) std::memcpy(bytes + r * part, bytes, part);
  std::fill_n(size, ranks, size[own]);
}

}  // namespace linerate::exec
