#include "linerate/torch_adapter/tensor_codec_probe.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "linerate/compress/bucket_layout.hpp"
#include "linerate/compress/coded_tensor.hpp"
#include "linerate/compress/noise.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"
#include "linerate/exec/compression.hpp"
#include "linerate/torch_codecs/tensor_ops.hpp"

namespace linerate::torch_adapter {
namespace {

/// A tensor of a rank that is alone: encodes, decodes and keeps, step after step.
class CodedSteps {
 public:
  CodedSteps(const compress::Compressor& compressor, const doc::Component& component,
             const compress::Shape& shape, const at::Tensor& gradient)
      : rounds_(compressor.rounds(shape)),
        codec_(torch_codecs::make_tensor_codec(component, shape, gradient.device())),
        gradient_(gradient.narrow(0, 0, shape.elements).clone()),
        mean_(at::empty_like(gradient_)),
        infinite_(at::zeros({}, gradient.options().dtype(at::kBool))) {
    if (compress::keeps_residual(compressor)) {
      residual_ = at::zeros_like(gradient_);
      next_ = at::zeros_like(gradient_);
    }
    for (std::size_t round = 0; round < rounds_.size(); ++round) {
      const std::int64_t size = has_block(round) ? compress::kPartSizeBytes : 0;
      blocks_.push_back(
          at::zeros({size + rounds_[round].bytes}, gradient.options().dtype(at::kByte)));
    }
  }

  void encode(std::size_t round) {
    if (round == 0) begin();
    TensorOps::Sending tensors{gradient_, residual_, next_,   {{0, gradient_.numel()}},
                               {},        {},        {keys_}, {codec_.get()}};
    TensorOps::Block block{blocks_[round]};
    if (has_block(round))
      tensors.block = &block;
    else
      tensors.payloads = {blocks_[round]};
    codec_->encode_bucket(static_cast<int>(round), tensors);
  }
  void decode(std::size_t round) {
    at::Tensor sent = blocks_[round];
    if (codec_->sent() >= 0) sent = sent.narrow(0, 0, codec_->sent());
    TensorOps::Arriving tensors{mean_, {{0, gradient_.numel()}}, {}, {codec_.get()}};
    TensorOps::Block block{sent.unsqueeze(0)};
    if (has_block(round))
      tensors.block = &block;
    else
      tensors.arrived = {{{sent}, 1, {}}};
    codec_->decode_bucket(static_cast<int>(round), tensors);
  }
  void keep() {
    if (next_.defined()) at::where_out(residual_, infinite_, residual_, next_);
    torch_codecs::KeptTensor::undo_if(codec_->kept(), infinite_);
    codec_->keep();
  }

 private:
  using TensorOps = torch_codecs::TensorOps;

  bool has_block(std::size_t round) const { return compress::has_size(rounds_[round]); }
  void begin() {
    infinite_.copy_((gradient_.abs() <= exec::kGreatestGradient).all().logical_not());
    gradient_.masked_fill_(infinite_, 0);
    keys_ = compress::keys_of_step(1, ++number_, "probe", 0);
  }

  std::vector<compress::Round> rounds_;
  std::unique_ptr<torch_codecs::TensorCodec> codec_;
  at::Tensor gradient_, mean_, infinite_;
  at::Tensor residual_, next_;      // undefined: the method keeps none
  std::vector<at::Tensor> blocks_;  // by round: the payload, with its size if that depends
  compress::Keys keys_;
  std::int64_t number_ = 0;
};

/// How many tensors take turns: so many that each has left the caches when it comes again, as in a
/// step, but not much memory.
std::size_t tensors_in_turn(const compress::Shape& shape) {
  constexpr std::int64_t kMemory = std::int64_t{512} << 20, kArrays = 5;  // bytes
  const std::int64_t each = kArrays * size_of(DType::f32) * shape.elements;
  return to_index(std::clamp<std::int64_t>(kMemory / each, 2, 8));
}

/// The work to time: encode(0), decode(0), encode(1) ..., keep(). Each is done for all tensors
/// before the next begins.
std::vector<exec::QueuedCalls> work_of(std::vector<std::unique_ptr<CodedSteps>>& tensors,
                                       std::size_t rounds) {
  const int count = static_cast<int>(tensors.size());
  std::vector<exec::QueuedCalls> work;
  for (std::size_t round = 0; round < rounds; ++round) {
    work.push_back({count, [&tensors, round](int i) { tensors[to_index(i)]->encode(round); }});
    work.push_back({count, [&tensors, round](int i) { tensors[to_index(i)]->decode(round); }});
  }
  work.push_back({count, [&tensors](int i) { tensors[to_index(i)]->keep(); }});
  return work;
}

/// The times of one tensor's step, in seconds.
struct StepTimes {
  double encode_s = 0, decode_s = 0, host_s = 0;
  bool was_queued = true;
};

StepTimes step_of(const std::vector<exec::CallTimes>& times) {
  StepTimes step;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const bool decodes = i % 2 == 1;  // keep() comes last, where an encode would
    (decodes ? step.decode_s : step.encode_s) += times[i].device_s;
    step.host_s += times[i].host_s;
    step.was_queued = step.was_queued && times[i].was_queued;
  }
  return step;
}

/// Notes if the host is slower than the device; a later, larger tensor replaces the note.
void note_host(const std::string& codec, const std::string& device, const StepTimes& step,
               double bytes, std::vector<std::string>& notes) {
  const double device_s = step.encode_s + step.decode_s;
  if (!step.was_queued)
    notes = {fmt::format("{}: the host waits for {} during coding, so its times are those of both",
                         codec, device)};
  else if (step.host_s > device_s)
    notes = {fmt::format(
        "{}: for a tensor of {} the host takes {} to enqueue what {} does in {}. Steps with many "
        "such tensors wait for the host",
        codec, format_size(bytes), format_time(step.host_s), device, format_time(device_s))};
}

}  // namespace

TensorCodecTimes probe_tensor_codec(comm::Communicator& communicator, TimedQueue& queue,
                                    const doc::Component& component,
                                    const std::vector<std::int64_t>& elements) {
  const c10::NoGradGuard no_grad;
  const auto compressor = torch_codecs::over_tensors(component, queue.device());
  TensorCodecTimes found{{doc::to_text(component), {}, {}}, {}};
  for (const compress::Shape& shape : calibrate::probed_shapes(*compressor, elements)) {
    std::vector<float> noise = compress::noise(shape.elements, 1);
    const at::Tensor gradient =
        at::from_blob(noise.data(), {shape.elements}, at::kFloat).to(queue.device());
    std::vector<std::unique_ptr<CodedSteps>> tensors;
    for (std::size_t i = 0; i < tensors_in_turn(shape); ++i)
      tensors.push_back(std::make_unique<CodedSteps>(*compressor, component, shape, gradient));
    const StepTimes step =
        step_of(queue.time(communicator, work_of(tensors, compressor->rounds(shape).size())));
    const auto bytes = static_cast<double>(shape.elements * size_of(DType::f32));
    found.samples.encode.push_back({.bytes = bytes, .seconds = std::max(step.encode_s, 1e-9)});
    found.samples.decode.push_back({.bytes = bytes, .seconds = std::max(step.decode_s, 1e-9)});
    note_host(found.samples.name, queue.type(), step, bytes, found.notes);
  }
  return found;
}

}  // namespace linerate::torch_adapter
