#include "linerate/torch_adapter/second_order_probe.hpp"

#include <ATen/Parallel.h>
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

namespace linerate::torch_adapter {
namespace {

using doc::FactorSide;

constexpr std::array kProbedSides = {FactorSide::a, FactorSide::g};
constexpr double kProbedDamping = 0.03, kProbedDecay = 0.95;

/// Of `in` to `out` channels, on images of size x size; kernel 0: linear.
struct ProbedLayer {
  std::int64_t in, out, kernel, size, batch;
};

/// From LeNet's to ResNets': few rows and many, small and large factors, kernels of 1, 3 and 5.
constexpr std::array kLayers = {ProbedLayer{1, 6, 5, 28, 64},     ProbedLayer{6, 16, 5, 14, 64},
                                ProbedLayer{16, 16, 3, 32, 32},   ProbedLayer{64, 64, 3, 16, 32},
                                ProbedLayer{128, 128, 3, 8, 32},  ProbedLayer{64, 128, 1, 16, 32},
                                ProbedLayer{256, 256, 3, 4, 32},  ProbedLayer{84, 10, 0, 1, 64},
                                ProbedLayer{400, 120, 0, 1, 64},  ProbedLayer{512, 256, 0, 1, 32},
                                ProbedLayer{256, 512, 0, 1, 1024}};
/// Between these and beyond the largest, times are taken to grow as the cube. The largest first: it
/// does not notice that the solver's code is not in the cache yet.
constexpr std::array<std::int64_t, 14> kDimensions = {1944, 1296, 864, 576, 384, 256, 192,
                                                      128,  96,   64,  48,  32,  16,  8};

/// A block with an input and a gradient, which computes as in a step.
class ProbedBlock {
 public:
  explicit ProbedBlock(const ProbedLayer& layer) {
    const bool conv = layer.kernel > 0;
    LayerSpec spec{.name = "probed", .kind = conv ? LayerKind::conv : LayerKind::linear};
    spec.weight = conv ? at::randn({layer.out, layer.in, layer.kernel, layer.kernel})
                       : at::randn({layer.out, layer.in});
    spec.bias = at::zeros({layer.out});
    spec.weight.mutable_grad() = at::randn(spec.weight.sizes());
    spec.bias.mutable_grad() = at::randn(spec.bias.sizes());
    block_ = make_block(spec, {});
    if (conv) {
      input_.conv.kernel = {layer.kernel, layer.kernel};
      input_.conv.pad_before = input_.conv.pad_after = {layer.kernel / 2, layer.kernel / 2};
    }
    const auto values_of = [&](std::int64_t channels) {
      return conv ? at::randn({layer.batch, channels, layer.size, layer.size})
                  : at::randn({layer.batch, channels});
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
    block_->update_average(side, block_->batch_factor(side), kProbedDecay);
  }
  void invert(FactorSide side) { block_->compute_inverse(side, kProbedDamping); }
  /// Each takes both factors: its damping is by the ratio of their traces.
  void make_inverses() {
    for (const FactorSide side : kProbedSides) compute_factor(side);
    for (const FactorSide side : kProbedSides) invert(side);
  }
  void precondition() {
    block_->write(block_->precondition(block_->gradient(), kProbedDamping), 1);
  }

 private:
  std::unique_ptr<CurvatureBlock> block_;
  LayerInput input_;
  at::Tensor gradient_;
  doc::Block shape_;
};

double seconds_of(const std::function<void()>& work) {
  const std::int64_t start = steady_ns();
  work();
  return static_cast<double>(std::max<std::int64_t>(steady_ns() - start, 1)) * 1e-9;
}

/// In turn, as the layers of a step: what one works on has left the cache when it comes again.
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
  std::vector<ProbedBlock> layers, squares;
  for (const ProbedLayer& layer : kLayers) layers.emplace_back(layer);
  for (const std::int64_t d : kDimensions) squares.emplace_back(ProbedLayer{d - 1, 1, 0, 1, 32});
  std::vector<std::function<void()>> parts;
  for (ProbedBlock& block : layers)
    for (const FactorSide side : kProbedSides)
      parts.push_back([&block, side] { block.compute_factor(side); });
  for (ProbedBlock& block : layers) {
    block.make_inverses();
    parts.push_back([&block] { block.precondition(); });
  }
  for (ProbedBlock& block : squares) {
    block.make_inverses();
    parts.push_back([&block] { block.invert(FactorSide::a); });
  }
  const std::vector<double> seconds = medians_of(parts, communicator);
  doc::SecondOrderSamples samples;
  auto next = seconds.begin();
  const auto timed = [&](doc::SecondOrderWork work) {
    work.seconds = *next++;
    return work;
  };
  for (const ProbedBlock& block : layers)
    for (const FactorSide side : kProbedSides)
      samples.factors.push_back(timed(doc::factor_work(block.shape(), side)));
  for (const ProbedBlock& block : layers)
    samples.directions.push_back(timed(doc::direction_work(block.shape())));
  for (const std::int64_t d : kDimensions) samples.inverses.push_back({d, *next++});
  return samples;
}

}  // namespace linerate::torch_adapter
