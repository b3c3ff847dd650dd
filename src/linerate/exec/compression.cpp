#include "linerate/exec/compression.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "linerate/compress/registry.hpp"
#include "linerate/core/hash.hpp"
#include "linerate/core/rng.hpp"
#include "linerate/exec/cast_operation.hpp"

namespace linerate::exec {
namespace {

using compress::BucketLayout;
using compress::Combine;
using compress::Part;
using doc::Task;
using doc::TaskGraph;
using doc::TaskKind;

bool compresses(const doc::Plan& plan, const Task& task) {
  return (task.kind == TaskKind::encode || task.kind == TaskKind::decode) &&
         plan.operation_name(task) != kCast;
}

std::size_t round_of(const doc::Component& operation) {
  const std::string* text = operation.find(compress::kRoundOption);
  return text ? static_cast<std::size_t>(std::stoul(*text)) : 0;
}

}  // namespace

struct Compression::Tensor {
  std::string name;
  compress::Shape shape;
  std::unique_ptr<compress::Codec> codec;
  std::vector<float> residual;   // as the last step that counts left it; empty: none is kept
  std::vector<float> next;       // as this step leaves it
  std::vector<std::byte> saved;  // what the codec remembered before this step
  compress::Keys keys;
  std::size_t sent = 0;     // bytes of the round encoded last
  bool is_touched = false;  // by this step
};

struct Compression::Bucket {
  BucketLayout layout;
  std::vector<Tensor*> tensors;        // by part; null: it travels dense
  std::vector<std::int32_t> payloads;  // by round
  std::int32_t dense = -1;             // the payload of what travels dense
};

Compression::Compression(Payloads& payloads, int rank, int ranks, std::uint64_t seed)
    : payloads_(payloads), rank_(rank), ranks_(ranks), seed_(seed) {}

Compression::~Compression() = default;

std::set<std::string> Compression::operations_of(const doc::Plan& plan) {
  std::set<std::string> names;
  for (const TaskGraph& graph : plan.variants)
    for (const Task& task : graph.tasks)
      if (compresses(plan, task)) names.emplace(plan.operation_name(task));
  return names;
}

void Compression::set_plan(std::shared_ptr<const doc::Plan> plan) {
  buckets_.clear();
  plan_ = std::move(plan);
  for (const TaskGraph& graph : plan_->variants)
    for (const Task& task : graph.tasks) {
      if (!compresses(*plan_, task)) continue;
      const doc::Component& operation = plan_->operations[static_cast<std::size_t>(task.operation)];
      const doc::Component component = compress::without_round(operation);
      const std::string text = doc::to_text({component, {}});
      if (text == compressor_text_) return;
      compressor_ = compress::make_compressor(component);
      compressor_text_ = text;
      // Residuals stay, what another compressor remembered does not.
      for (auto& [name, tensor] : tensors_) tensor->codec.reset();
      return;
    }
}

void Compression::keep() {
  ++step_;
  for (auto& [name, tensor] : tensors_) {
    if (!tensor->is_touched) continue;
    std::swap(tensor->residual, tensor->next);
    tensor->is_touched = false;
  }
}

void Compression::drop() {
  for (auto& [name, tensor] : tensors_) {
    if (!tensor->is_touched) continue;
    tensor->codec->load(tensor->saved);
    tensor->is_touched = false;
  }
}

std::int64_t Compression::residual_bytes() const {
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : tensors_)
    bytes += (tensor->residual.size() + tensor->next.size()) * sizeof(float) + tensor->saved.size();
  return static_cast<std::int64_t>(bytes);
}

CompressionState Compression::save() const {
  CompressionState state = loaded_;
  state.step = step_;
  state.compressor = compressor_text_;
  for (const auto& [name, tensor] : tensors_)
    state.tensors[name] = {tensor->residual,
                           tensor->codec ? tensor->codec->save() : std::vector<std::byte>{}};
  return state;
}

void Compression::load(CompressionState state) {
  step_ = state.step;
  tensors_.clear();
  buckets_.clear();
  loaded_ = std::move(state);
}

/// Residuals and codecs are kept where they fit, else taken from what was loaded, else new.
Compression::Tensor& Compression::tensor_of(const std::string& name, const compress::Shape& shape) {
  std::unique_ptr<Tensor>& tensor = tensors_[name];
  if (!tensor || tensor->shape != shape) {
    tensor = std::make_unique<Tensor>();
    tensor->name = name;
    tensor->shape = shape;
  }
  const compress::Residual kind = compressor_->residual();
  const bool keeps = kind == compress::Residual::needed || kind == compress::Residual::optional;
  const auto n = keeps ? static_cast<std::size_t>(shape.elements) : 0;
  const auto saved = loaded_.tensors.extract(name);
  if (!saved.empty() && saved.mapped().residual.size() == n)
    tensor->residual = saved.mapped().residual;
  tensor->residual.resize(n, 0);
  tensor->next.resize(n);
  if (!tensor->codec) {
    tensor->codec = compressor_->codec(shape);
    if (!saved.empty() && loaded_.compressor == compressor_text_)
      tensor->codec->load(saved.mapped().codec);
  }
  return *tensor;
}

Compression::Bucket& Compression::bucket_of(const TaskGraph& graph, std::int32_t b) {
  std::unique_ptr<Bucket>& slot = buckets_[{&graph, b}];
  if (slot) return *slot;
  slot = std::make_unique<Bucket>();
  const doc::Payload& payload = graph.payloads[static_cast<std::size_t>(b)];
  std::vector<compress::Shape> shapes;
  for (std::int32_t m = payload.begin; m < payload.end; ++m) {
    const auto position = static_cast<std::size_t>(graph.members[static_cast<std::size_t>(m)]);
    const doc::GradientShape& s = plan_->gradient_shapes.at(position);
    shapes.push_back({s.elements, s.rows});
  }
  slot->layout = compress::layout_of(*compressor_, shapes);
  for (std::size_t i = 0; i < slot->layout.parts.size(); ++i) {
    const Part& part = slot->layout.parts[i];
    const auto m = static_cast<std::size_t>(payload.begin) + i;
    const auto position = static_cast<std::size_t>(graph.members[m]);
    slot->tensors.push_back(nullptr);
    if (!part.is_coded()) continue;
    slot->tensors.back() = &tensor_of(plan_->gradient_names[position], part.shape);
  }
  std::vector<std::int32_t> encoded;
  for (std::size_t p = 0; p < graph.payloads.size(); ++p)
    if (graph.payloads[p].content == doc::Content::encoded && graph.payloads[p].of == b)
      encoded.push_back(static_cast<std::int32_t>(p));
  // The Plan adds the dense one behind the first round's, before later rounds'.
  for (std::size_t i = 0; i < encoded.size(); ++i)
    if (i == 1 && slot->layout.has_dense_payload())
      slot->dense = encoded[i];
    else
      slot->payloads.push_back(encoded[i]);
  LINERATE_CHECK(slot->payloads.size() == slot->layout.rounds.size(),
                 "a bucket with other payloads than its compressor has rounds");
  return *slot;
}

std::span<float> Compression::values_of(const TaskGraph& graph, std::int32_t bucket) {
  const comm::Buffer b = payloads_.buffer(graph, bucket);
  return {static_cast<float*>(b.data), static_cast<std::size_t>(b.count.value)};
}

std::span<std::byte> Compression::bytes_of(const TaskGraph& graph, std::int32_t payload) {
  const comm::Buffer b = payloads_.buffer(graph, payload);
  return {static_cast<std::byte*>(b.data),
          static_cast<std::size_t>(b.count.value * size_of(b.dtype))};
}

compress::Input Compression::input_of(Tensor& tensor, std::span<float> gradient) const {
  return {gradient, tensor.next, tensor.keys, ranks_};
}

void Compression::run(const TaskGraph& graph, const Task& task) {
  if (task.kind == TaskKind::decode) return decode(graph, task);
  encode(graph, task, round_of(plan_->operations[static_cast<std::size_t>(task.operation)]));
}

void Compression::encode(const TaskGraph& graph, const Task& task, std::size_t round) {
  Bucket& bucket = bucket_of(graph, task.first);
  const std::span<float> values = values_of(graph, task.first);
  if (round > 0) decode_round(graph, bucket, round - 1, {});
  const compress::BucketRound& whole = bucket.layout.rounds[round];
  std::span<std::byte> payload = bytes_of(graph, bucket.payloads[round]);
  const auto own = static_cast<std::size_t>(whole.elements * size_of(whole.dtype));
  if (whole.combine == Combine::gather)
    payload = payload.subspan(static_cast<std::size_t>(rank_) * own, own);
  for (std::size_t i = 0; i < bucket.tensors.size(); ++i) {
    const Part& part = bucket.layout.parts[i];
    if (!part.is_coded()) continue;
    Tensor& tensor = *bucket.tensors[i];
    const std::span<float> gradient = values.subspan(static_cast<std::size_t>(part.value),
                                                     static_cast<std::size_t>(part.shape.elements));
    if (round == 0) {
      if (!compress::all_finite(gradient)) {
        infinite_ = true;
        std::fill(gradient.begin(), gradient.end(), 0.0f);
      }
      tensor.keys.shared =
          random_key(random_key(seed_, static_cast<std::uint64_t>(step_)), hash_bytes(tensor.name));
      tensor.keys.own = random_key(tensor.keys.shared, static_cast<std::uint64_t>(rank_) + 1);
      tensor.next = tensor.residual;
      tensor.saved = tensor.codec->save();
      tensor.is_touched = true;
    }
    encode_part(tensor, part, gradient, round, whole, payload);
  }
  if (round == 0) copy_dense(graph, bucket, values, false);
}

/// Gathered sizes that depend on the values stand in front; those of sums are the same on every
/// rank, and what is left of the room adds nothing.
void Compression::encode_part(Tensor& tensor, const Part& part, std::span<float> gradient,
                              std::size_t round, const compress::BucketRound& whole,
                              std::span<std::byte> payload) {
  const bool has_size = whole.is_bound && whole.combine == Combine::gather;
  const auto offset = static_cast<std::size_t>(part.offset[round]);
  const auto room = static_cast<std::size_t>(part.bytes[round]);
  const std::span<std::byte> bytes =
      payload.subspan(offset + (has_size ? compress::kPartSizeBytes : 0), room);
  tensor.sent = tensor.codec->encode(static_cast<int>(round), input_of(tensor, gradient), bytes);
  if (has_size) {
    const auto size = static_cast<std::uint32_t>(tensor.sent);
    std::memcpy(payload.data() + offset, &size, sizeof size);
  } else {
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(tensor.sent), bytes.end(), std::byte{0});
  }
}

/// What travels dense, into its payload, or back as the mean.
void Compression::copy_dense(const TaskGraph& graph, Bucket& bucket, std::span<float> values,
                             bool back) {
  if (bucket.layout.dense_elements == 0) return;
  const bool rides = bucket.dense < 0;
  float* dense =
      reinterpret_cast<float*>(bytes_of(graph, rides ? bucket.payloads[0] : bucket.dense).data()) +
      (rides ? bucket.layout.dense_begin : 0);
  const float share = 1.0f / static_cast<float>(ranks_);
  for (const Part& part : bucket.layout.parts) {
    if (part.is_coded()) continue;
    float* value = values.data() + part.value;
    float* there = dense + part.dense;
    const auto n = static_cast<std::size_t>(part.shape.elements);
    if (back)
      std::transform(there, there + n, value, [share](float sum) { return sum * share; });
    else
      std::copy_n(value, n, there);
  }
}

void Compression::decode_round(const TaskGraph& graph, Bucket& bucket, std::size_t round,
                               std::span<float> values) {
  const compress::BucketRound& whole = bucket.layout.rounds[round];
  const bool gathers = whole.combine == Combine::gather;
  const std::span<std::byte> payload = bytes_of(graph, bucket.payloads[round]);
  const auto own = static_cast<std::size_t>(whole.elements * size_of(whole.dtype));
  std::vector<std::span<const std::byte>> arrived(static_cast<std::size_t>(gathers ? ranks_ : 1));
  for (std::size_t i = 0; i < bucket.tensors.size(); ++i) {
    const Part& part = bucket.layout.parts[i];
    if (!part.is_coded()) continue;
    for (std::size_t r = 0; r < arrived.size(); ++r) {
      const std::span<const std::byte> of_rank = payload.subspan(r * own, own);
      auto offset = static_cast<std::size_t>(part.offset[round]);
      auto size = static_cast<std::size_t>(part.bytes[round]);
      if (whole.is_bound && !gathers) size = bucket.tensors[i]->sent;
      if (whole.is_bound && gathers) {
        std::uint32_t sent = 0;
        std::memcpy(&sent, of_rank.data() + offset, sizeof sent);
        if (sent > size)
          throw CommError(fmt::format(
              "\"{}\": rank {} sent {} bytes, expected at most {}: what was exchanged is damaged",
              bucket.tensors[i]->name, r, sent, size));
        size = sent;
        offset += static_cast<std::size_t>(compress::kPartSizeBytes);
      }
      arrived[r] = of_rank.subspan(offset, size);
    }
    std::span<float> mean;
    if (!values.empty())
      mean = values.subspan(static_cast<std::size_t>(part.value),
                            static_cast<std::size_t>(part.shape.elements));
    bucket.tensors[i]->codec->decode(static_cast<int>(round), {arrived, ranks_}, mean);
  }
}

void Compression::decode(const TaskGraph& graph, const Task& task) {
  Bucket& bucket = bucket_of(graph, task.first);
  const std::span<float> values = values_of(graph, task.first);
  decode_round(graph, bucket, bucket.layout.rounds.size() - 1, values);
  copy_dense(graph, bucket, values, true);
}

}  // namespace linerate::exec
