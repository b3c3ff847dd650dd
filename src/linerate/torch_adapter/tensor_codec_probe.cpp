#include "linerate/torch_adapter/tensor_codec_probe.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "linerate/compress/bucket_layout.hpp"
#include "linerate/compress/noise.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"
#include "linerate/exec/compression.hpp"
#include "linerate/torch_codecs/coded_parameter.hpp"
#include "linerate/torch_codecs/parts.hpp"

namespace linerate::torch_adapter {
namespace {

/// One tensor of a rank that is alone, step after step.
class CodedSteps {
 public:
  CodedSteps(const compress::Compressor& compressor, const compress::Shape& shape,
             const at::Tensor& gradient)
      : rounds_(compressor.rounds(shape)),
        parameter_("probe", shape, {}, gradient.device()),
        gradient_(gradient.narrow(0, 0, shape.elements).clone()),
        mean_(at::empty_like(gradient_)),
        infinite_(at::zeros({}, gradient.options().dtype(at::kBool))) {
    parameter_.use({"probe", &compressor});
    for (const compress::Round& round : rounds_)
      payloads_.push_back(at::zeros({room_of(round)}, gradient.options().dtype(at::kByte)));
  }

  void encode(std::size_t round) {
    if (round == 0) begin();
    const torch_codecs::TensorPayload sent =
        parameter_.encode(static_cast<int>(round), gradient_, 1, -1);
    if (has_size(rounds_[round])) {
      torch_codecs::PartsWriter parts(payloads_[round]);
      parts.put(sent);
      static_cast<void>(parts.finish());
    } else {
      payloads_[round].narrow(0, 0, sent.bytes.numel()).copy_(sent.bytes);
    }
  }
  void decode(std::size_t round) {
    const bool is_last = round + 1 == rounds_.size();
    parameter_.decode(static_cast<int>(round), arrived(round), is_last ? mean_ : at::Tensor());
  }
  void keep() { parameter_.keep(infinite_); }

 private:
  /// In a bucket, before the part itself.
  static bool has_size(const compress::Round& round) {
    return round.is_bound && round.combine == compress::Combine::gather;
  }
  static std::int64_t room_of(const compress::Round& round) {
    return has_size(round) ? compress::kPartSizeBytes + compress::pad4(round.bytes) : round.bytes;
  }
  torch_codecs::TensorArrived arrived(std::size_t round) const {
    if (has_size(rounds_[round]))
      return torch_codecs::PartsReader({payloads_[round]}).next(rounds_[round].bytes, 1);
    return {{payloads_[round].narrow(0, 0, parameter_.sent_bytes())}, 1, {}};
  }
  void begin() {
    infinite_.copy_((gradient_.abs() <= exec::kGreatestGradient).all().logical_not());
    gradient_.masked_fill_(infinite_, 0);
    parameter_.begin_step(1, ++number_, 0, gradient_, {});
  }

  std::vector<compress::Round> rounds_;
  torch_codecs::CodedParameter parameter_;
  at::Tensor gradient_, mean_, infinite_;
  std::vector<at::Tensor> payloads_;  // by round
  std::int64_t number_ = 0;
};

/// So many that they leave the caches in between, as in a step, and little memory is taken.
std::size_t tensors_in_turn(const compress::Shape& shape) {
  constexpr std::int64_t kMemory = std::int64_t{512} << 20, kArrays = 5;  // bytes
  const std::int64_t each = kArrays * size_of(DType::f32) * shape.elements;
  return to_index(std::clamp<std::int64_t>(kMemory / each, 2, 8));
}

/// encode(0), decode(0), encode(1) ..., keep(): each of all tensors, before the next one.
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

/// Of one tensor's step.
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

/// Where the host is the slower one, by the largest such tensor.
void note_host(const std::string& codec, const std::string& device, const StepTimes& step,
               double bytes, std::vector<std::string>& notes) {
  const double device_s = step.encode_s + step.decode_s;
  if (!step.was_queued)
    notes = {fmt::format("{}: the host waits for {} within it: its times are those of both", codec,
                         device)};
  else if (step.host_s > device_s)
    notes = {fmt::format(
        "{}: for a tensor of {} the host takes {} to enqueue what {} does in {}: steps of many "
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
      tensors.push_back(std::make_unique<CodedSteps>(*compressor, shape, gradient));
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
