#include "linerate/torch_adapter/device_probe.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "linerate/comm/fingerprint.hpp"
#include "linerate/compress/coded_tensor.hpp"
#include "linerate/compress/noise.hpp"
#include "linerate/compress/payload.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/intervals.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/exec/compression.hpp"
#include "linerate/exec/streams/stream_program.hpp"
#include "linerate/kfac/curvature_block.hpp"
#include "linerate/kfac/factor_inverse.hpp"
#include "linerate/kfac/preconditioner.hpp"
#include "linerate/torch_codecs/tensor_ops.hpp"

namespace linerate::torch_adapter {

calibrate::DeviceSamples measure_on_device(comm::Communicator& communicator,
                                           const calibrate::DeviceWork& work) {
  at::set_num_threads(work.threads);
  const int turn = calibrate::rank_on_machine(communicator);
  std::optional<TimedQueue> queue;
  comm::require_success(communicator, "device",
                        [&] { queue.emplace(named_device(work.device, turn)); });
  calibrate::DeviceSamples samples{.device = queue->type()};
  for (const doc::Component& component : work.codecs) {
    TensorCodecTimes found = probe_tensor_codec(communicator, *queue, component,
                                                calibrate::CodecProbeOptions{}.elements);
    samples.codecs.push_back(std::move(found.samples));
    samples.notes.insert(samples.notes.end(), found.notes.begin(), found.notes.end());
  }
  if (work.second_order)
    samples.second_order =
        measure_second_order_on(*queue, communicator, kInverseDimensions, samples.notes);
  return samples;
}

// Measures K-FAC's parts with the blocks of training: `linerate calibrate --second-order`. A
// network of probed layers is made up of random numbers, and each part of a step (factor,
// direction, inverse) is timed in turn. `cost` fits curves through the samples, and the planner
// prices K-FAC's tasks by them.

namespace {

using doc::FactorSide;

constexpr std::array kProbedSides = {FactorSide::a, FactorSide::g};
constexpr double kProbedDamping = 0.03, kProbedDecay = 0.95;
/// Matrices of one size that are inverted together.
constexpr int kInvertedTogether = 4;

/// A layer of `in` to `out` channels, on images of size x size; kernel 0: linear.
struct ProbedLayer {
  std::int64_t in, out, kernel, size, batch;
};

/// Layers from LeNet's to ResNets': few rows and many, small and large factors, kernels of 1, 3 and
/// 5.
constexpr std::array kLayers = {ProbedLayer{1, 6, 5, 28, 64},     ProbedLayer{6, 16, 5, 14, 64},
                                ProbedLayer{16, 16, 3, 32, 32},   ProbedLayer{64, 64, 3, 16, 32},
                                ProbedLayer{128, 128, 3, 8, 32},  ProbedLayer{64, 128, 1, 16, 32},
                                ProbedLayer{256, 256, 3, 4, 32},  ProbedLayer{84, 10, 0, 1, 64},
                                ProbedLayer{400, 120, 0, 1, 64},  ProbedLayer{512, 256, 0, 1, 32},
                                ProbedLayer{256, 512, 0, 1, 1024}};

/// A block with an input and a gradient, which computes as in a step.
class ProbedBlock {
 public:
  ProbedBlock(const ProbedLayer& layer, c10::Device device) {
    const at::TensorOptions options = at::TensorOptions().device(device);
    const bool conv = layer.kernel > 0;
    LayerSpec spec{.name = "probed", .kind = conv ? LayerKind::conv : LayerKind::linear};
    spec.weight = conv ? at::randn({layer.out, layer.in, layer.kernel, layer.kernel}, options)
                       : at::randn({layer.out, layer.in}, options);
    spec.bias = at::zeros({layer.out}, options);
    spec.weight.mutable_grad() = at::randn(spec.weight.sizes(), options);
    spec.bias.mutable_grad() = at::randn(spec.bias.sizes(), options);
    damping_there_ = at::full({}, kProbedDamping, options.dtype(at::kDouble));
    block_ = make_block(spec, {});
    if (conv)
      input_.conv.fill(
          {.kernel = layer.kernel, .pad_before = layer.kernel / 2, .pad_after = layer.kernel / 2});
    const auto values_of = [&](std::int64_t channels) {
      return conv ? at::randn({layer.batch, channels, layer.size, layer.size}, options)
                  : at::randn({layer.batch, channels}, options);
    };
    input_.tensor = values_of(layer.in);
    gradient_ = values_of(layer.out);
    const std::int64_t rows = layer.batch * layer.size * layer.size;
    shape_ = block_->shape();
    shape_.rows_a = shape_.rows_g = rows;
  }

  const doc::Block& shape() const { return shape_; }

  void compute_factor(FactorSide side) {
    block_->discard_batch();
    if (side == FactorSide::a)
      block_->add_input(input_);
    else
      block_->add_gradient(input_, gradient_, 1);
    block_->count_terms(static_cast<double>(gradient_.size(0)));
    const CurvatureBlock::Packed sum{{block_.get(), side}, block_->packed_batch(side)};
    CurvatureBlock::update_averages({&sum, 1}, kProbedDecay);
  }
  void invert(FactorSide side) {
    const CurvatureBlock::Factor factor{block_.get(), side};
    CurvatureBlock::invert({&factor, 1}, damping_there_);
  }
  /// Makes both factors and inverts them. Each inverse takes both, because its damping depends on
  /// the ratio of their traces.
  void make_inverses() {
    for (const FactorSide side : kProbedSides) compute_factor(side);
    for (const FactorSide side : kProbedSides) invert(side);
  }
  /// Does what a step does with one layer: its direction, its share of q, and writing into .grad.
  void precondition() {
    CurvatureBlock* const block = block_.get();
    const auto found = CurvatureBlock::directions({&block, 1}, damping_there_);
    q_ = found.products;
    CurvatureBlock::write({&block, 1}, found.directions);
  }

 private:
  at::Tensor damping_there_;
  std::unique_ptr<CurvatureBlock> block_;
  LayerInput input_;
  at::Tensor gradient_, q_;
  doc::Block shape_;
};

/// The parts that are measured, in this order: factors of both sides, directions, inverses.
class ProbedNetwork {
 public:
  /// Inverses of matrices of `dims` rows.
  ProbedNetwork(c10::Device device, std::span<const std::int64_t> dims)
      : dims_(dims.begin(), dims.end()) {
    for (const ProbedLayer& layer : kLayers) layers_.emplace_back(layer, device);
    for (const std::int64_t d : dims_)
      squares_.emplace_back(ProbedLayer{d - 1, 1, 0, 1, 32}, device);
    for (ProbedBlock& block : layers_) block.make_inverses();
    for (ProbedBlock& block : squares_) block.make_inverses();
  }

  std::vector<std::function<void()>> parts() {
    std::vector<std::function<void()>> parts;
    for (ProbedBlock& block : layers_)
      for (const FactorSide side : kProbedSides)
        parts.push_back([&block, side] { block.compute_factor(side); });
    for (ProbedBlock& block : layers_) parts.push_back([&block] { block.precondition(); });
    for (ProbedBlock& block : squares_) parts.push_back([&block] { block.invert(FactorSide::a); });
    return parts;
  }

  /// `seconds`: of parts().
  doc::SecondOrderSamples samples(const std::vector<double>& seconds) const {
    doc::SecondOrderSamples samples;
    auto next = seconds.begin();
    const auto timed = [&](doc::SecondOrderWork work) {
      work.seconds = *next++;
      return work;
    };
    for (const ProbedBlock& block : layers_)
      for (const FactorSide side : kProbedSides)
        samples.factors.push_back(timed(doc::factor_work(block.shape(), side)));
    for (const ProbedBlock& block : layers_)
      samples.directions.push_back(timed(doc::direction_work(block.shape())));
    for (const std::int64_t d : dims_) samples.inverses.push_back({d, *next++});
    return samples;
  }

 private:
  std::vector<std::int64_t> dims_;
  std::vector<ProbedBlock> layers_, squares_;
};

/// Times all parts in turn, as a step computes its layers in turn. So a part's data has left the
/// cache when the part comes again. The first round does not count.
std::vector<double> medians_of(const std::vector<std::function<void()>>& parts,
                               comm::Communicator& communicator) {
  constexpr int kRounds = 7;
  std::vector<std::vector<double>> times(parts.size());
  for (int round = 0; round <= kRounds; ++round) {
    communicator.barrier("costs of K-FAC")->wait();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::int64_t start = steady_ns();
      parts[i]();
      const Span took{start, std::max(steady_ns(), start + 1)};
      if (round > 0) times[i].push_back(took.seconds());
    }
  }
  std::vector<double> medians;
  for (const std::vector<double>& t : times) medians.push_back(median(t));
  communicator.all_reduce(comm::buffer(medians), comm::Reduce::sum, "costs of K-FAC")->wait();
  for (double& s : medians) s /= communicator.size();
  return medians;
}

}  // namespace

doc::SecondOrderSamples measure_second_order(comm::Communicator& communicator, int threads) {
  const c10::NoGradGuard no_grad;
  at::set_num_threads(threads);
  ProbedNetwork network(c10::kCPU, kInverseDimensions);
  return network.samples(medians_of(network.parts(), communicator));
}

doc::SecondOrderSamples measure_second_order_on(TimedQueue& queue, comm::Communicator& communicator,
                                                std::span<const std::int64_t> dims,
                                                std::vector<std::string>& notes) {
  const c10::NoGradGuard no_grad;
  ProbedNetwork network(queue.device(), dims);
  std::vector<double> seconds;
  SlowHost slow;
  for (const std::function<void()>& part : network.parts()) {
    const std::size_t i = seconds.size(), layers = kLayers.size();
    const exec::QueuedCalls calls{queue.calls_in_a_row(), [&part](int) { part(); }};
    const exec::CallTimes times = queue.time(communicator, {calls}).front();
    seconds.push_back(std::max(times.device_s, 1e-9));
    slow.see(i < 2 * layers ? "factors" : i < 3 * layers ? "directions" : "inverses", times);
  }
  if (!slow.note(queue.type()).empty()) notes.push_back(slow.note(queue.type()));
  doc::SecondOrderSamples samples = network.samples(seconds);
  samples.batches = measure_batches(queue, communicator, dims, kInvertedTogether);
  return samples;
}

/// Times `count` inverses one by one and in one call, for each dimension. On a device small
/// inverses hardly fill it, so together they take little more than one alone. A planner that knows
/// both can put several in one task.
std::vector<doc::BatchSample> measure_batches(TimedQueue& queue, comm::Communicator& communicator,
                                              std::span<const std::int64_t> dims, int count) {
  const c10::NoGradGuard no_grad;
  std::vector<doc::BatchSample> samples;
  for (const std::int64_t d : dims) {
    const at::Tensor rows = at::randn({count, d, 32}, at::TensorOptions().device(queue.device()));
    const at::Tensor matrices = at::matmul(rows, rows.mT()) / 32;
    const at::Tensor dampings = at::full({count}, kProbedDamping, matrices.options());
    const exec::QueuedCalls one_by_one{
        count, [&](int i) { damped_inverses(matrices.narrow(0, i, 1), dampings.narrow(0, i, 1)); }};
    const exec::QueuedCalls together{1, [&](int) { damped_inverses(matrices, dampings); }};
    const std::vector<exec::CallTimes> times = queue.time(communicator, {one_by_one, together});
    samples.push_back({d, count, count * times[0].device_s, times[1].device_s});
  }
  std::ranges::sort(
      samples, [](const doc::BatchSample& x, const doc::BatchSample& y) { return x.dim < y.dim; });
  return samples;
}

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

/// The times of one tensor's step, in seconds.
struct CodedStepTimes {
  double encode_s = 0, decode_s = 0, host_s = 0;
  bool was_queued = true;
};

CodedStepTimes step_of(const std::vector<exec::CallTimes>& times) {
  CodedStepTimes step;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const bool decodes = i % 2 == 1;  // keep() comes last, where an encode would
    (decodes ? step.decode_s : step.encode_s) += times[i].device_s;
    step.host_s += times[i].host_s;
    step.was_queued = step.was_queued && times[i].was_queued;
  }
  return step;
}

/// Notes if the host is slower than the device; a later, larger tensor replaces the note.
void note_host(const std::string& codec, const std::string& device, const CodedStepTimes& step,
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
    // So many that each has left the caches when it comes again, as in a step, but not much memory.
    constexpr std::int64_t kMemory = std::int64_t{512} << 20, kArrays = 5;  // bytes
    const auto bytes = static_cast<double>(shape.elements * size_of(DType::f32));
    const auto count = static_cast<int>(
        std::clamp<std::int64_t>(kMemory / (kArrays * size_of(DType::f32) * shape.elements), 2, 8));
    for (int i = 0; i < count; ++i)
      tensors.push_back(std::make_unique<CodedSteps>(*compressor, component, shape, gradient));
    // encode(0), decode(0), encode(1) ..., keep(). Each is done for all before the next begins.
    std::vector<exec::QueuedCalls> work;
    for (std::size_t round = 0; round < compressor->rounds(shape).size(); ++round) {
      work.push_back({count, [&, round](int i) { tensors[to_index(i)]->encode(round); }});
      work.push_back({count, [&, round](int i) { tensors[to_index(i)]->decode(round); }});
    }
    work.push_back({count, [&](int i) { tensors[to_index(i)]->keep(); }});
    const CodedStepTimes step = step_of(queue.time(communicator, work));
    found.samples.encode.push_back({.bytes = bytes, .seconds = std::max(step.encode_s, 1e-9)});
    found.samples.decode.push_back({.bytes = bytes, .seconds = std::max(step.decode_s, 1e-9)});
    note_host(found.samples.name, queue.type(), step, bytes, found.notes);
  }
  return found;
}

// Times collectives of a process group on device memory, for the probe of calibrate. Barriers and
// calls are enqueued in one stream with a mark after each, so the host does not wait between them.
//
// Example with three marks after meet(). Mark 1 follows a barrier, mark 2 an all-reduce of 1 MB,
// and mark 3 one of 4 MB. ends_ns() gives 20, 120 and 420 us. So the calls took 100 and 300 us.

static constexpr auto kProbe = "probe";

GroupCallTrain::GroupCallTrain(comm::TensorGroup& group, comm::Communicator& communicator,
                               c10::Device device, std::int64_t largest_bytes)
    : CallSeries(calibrate::whole_blocks(largest_bytes, group.size())),
      group_(group),
      communicator_(communicator),
      device_(device) {
  const std::int64_t bytes = calibrate::whole_blocks(largest_bytes, group.size());
  whole_ = at::zeros({bytes / static_cast<std::int64_t>(sizeof(float))},
                     at::TensorOptions(device).dtype(at::kFloat));
}

void GroupCallTrain::meet() {
  clock_ = clock_of_current_stream(device_);
  communicator_.barrier(kProbe)->wait();
  marks_ = 0;
  mark();
}

/// An all-reduce of one element serves as barrier: a rank goes on when all ranks have come.
void GroupCallTrain::add_barrier() {
  group_.all_reduce(whole_.narrow(0, 0, 1), comm::Reduce::sum, kProbe);
  mark();
}

void GroupCallTrain::add(const calibrate::Call& call) {
  const at::Tensor all = whole_.narrow(0, 0, call.bytes / static_cast<std::int64_t>(sizeof(float)));
  switch (call.kind) {
    case Collective::all_reduce:
      group_.all_reduce(all, comm::Reduce::sum, kProbe);
      break;
    case Collective::reduce_scatter:
      group_.reduce_scatter(all, comm::Reduce::sum, kProbe);
      break;
    case Collective::all_gather:
      group_.all_gather(all, kProbe);
      break;
    case Collective::all_to_all:
      if (!exchanged_.defined()) exchanged_ = at::zeros_like(whole_);
      group_.all_to_all(all, exchanged_.narrow(0, 0, all.numel()), kProbe);
      break;
    default:
      group_.broadcast(all, 0, kProbe);
  }
  mark();
}

/// The times of all marks since meet(), in ns. All are in one stream, so they are over when the
/// last one is.
std::vector<double> GroupCallTrain::ends_ns() {
  clock_->wait_for(marks_ - 1);
  std::vector<double> ends;
  for (exec::MarkId m = 1; m < marks_; ++m) ends.push_back(clock_->ns_between(0, m));
  return ends;
}

void SlowHost::see(const std::string& kind, const exec::CallTimes& times) {
  Count& count = kinds_[kind];
  ++count.all;
  if (!times.was_queued || times.host_s > times.device_s) ++count.slow;
}

std::string SlowHost::note(const std::string& device) const {
  std::vector<std::string> counts;
  for (const auto& [kind, count] : kinds_)
    if (count.slow > 0) counts.push_back(fmt::format("{} of {} {}", count.slow, count.all, kind));
  if (counts.empty()) return "";
  return fmt::format(
      "K-FAC: the host takes longer to enqueue than {} to compute: {}. Steps with many such layers "
      "wait for the host",
      device, fmt::join(counts, ", "));
}

}  // namespace linerate::torch_adapter
