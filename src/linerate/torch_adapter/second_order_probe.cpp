// Measures K-FAC's parts with the blocks of training: `linerate calibrate --second-order`. A
// network of probed layers is made up of random numbers, and each part of a step (factor,
// direction, inverse) is timed in turn. `cost` fits curves through the samples, and the planner
// prices K-FAC's tasks by them.
#include "linerate/torch_adapter/second_order_probe.hpp"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "linerate/core/clock.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/torch_adapter/kfac/curvature_block.hpp"
#include "linerate/torch_adapter/kfac/factor_inverse.hpp"
#include "linerate/torch_adapter/kfac/preconditioner.hpp"
#include "linerate/torch_adapter/slow_host.hpp"
#include "linerate/torch_adapter/timed_queue.hpp"

namespace linerate::torch_adapter {
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
    if (conv) {
      input_.conv.kernel = {layer.kernel, layer.kernel};
      input_.conv.pad_before = input_.conv.pad_after = {layer.kernel / 2, layer.kernel / 2};
    }
    const auto values_of = [&](std::int64_t channels) {
      return conv ? at::randn({layer.batch, channels, layer.size, layer.size}, options)
                  : at::randn({layer.batch, channels}, options);
    };
    input_.tensor = values_of(layer.in);
    gradient_ = values_of(layer.out);
    const std::int64_t rows = layer.batch * layer.size * layer.size;
    shape_ = {.a = block_->shape().a, .g = block_->shape().g, .rows_a = rows, .rows_g = rows};
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

double seconds_of(const std::function<void()>& work) {
  const std::int64_t start = steady_ns();
  work();
  return static_cast<double>(std::max<std::int64_t>(steady_ns() - start, 1)) * 1e-9;
}

/// Times all parts in turn, as a step computes its layers in turn. So a part's data has left the
/// cache when the part comes again. The first round does not count.
std::vector<double> medians_of(const std::vector<std::function<void()>>& parts,
                               comm::Communicator& communicator) {
  constexpr int kRounds = 7;
  std::vector<std::vector<double>> times(parts.size());
  for (int round = 0; round <= kRounds; ++round) {
    communicator.barrier("costs of K-FAC")->wait();
    for (std::size_t i = 0; i < parts.size(); ++i)
      if (const double s = seconds_of(parts[i]); round > 0) times[i].push_back(s);
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
  std::sort(samples.begin(), samples.end(),
            [](const doc::BatchSample& x, const doc::BatchSample& y) { return x.dim < y.dim; });
  return samples;
}

}  // namespace linerate::torch_adapter
