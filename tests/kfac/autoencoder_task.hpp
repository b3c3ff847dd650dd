// A benchmark for second-order methods that needs no data set: an autoencoder of 500 generated
// images of curves, f64. Every number of it follows from splitmix64.
#pragma once

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "plan/random.hpp"

namespace linerate::torch_adapter {

namespace autoencoder {

constexpr std::int64_t kImages = 500, kSide = 8, kPixels = kSide * kSide;
constexpr double kFloor = 13.660856820564;  // the images' mean entropy
constexpr std::array<std::int64_t, 9> kWidths{64, 32, 16, 8, 6, 8, 16, 32, 64};

/// Quadratic Bézier curves: exp(-50 d²), d a pixel's distance to 65 points of the curve.
inline at::Tensor images() {
  at::Tensor all = torch::empty({kImages, kPixels}, at::kDouble);
  double* pixel = all.data_ptr<double>();
  support::Random uniform(1);
  for (std::int64_t n = 0; n < kImages; ++n) {
    std::array<double, 6> p{};
    for (double& u : p) u = uniform.unit();
    for (std::int64_t i = 0; i < kSide; ++i)
      for (std::int64_t j = 0; j < kSide; ++j) {
        const double x = (static_cast<double>(j) + 0.5) / kSide;
        const double y = (static_cast<double>(i) + 0.5) / kSide;
        double nearest = std::numeric_limits<double>::infinity();
        for (int k = 0; k <= 64; ++k) {
          const double t = k / 64.0, a = (1 - t) * (1 - t), b = 2 * t * (1 - t), c = t * t;
          const double dx = x - (a * p[0] + b * p[2] + c * p[4]);
          const double dy = y - (a * p[1] + b * p[3] + c * p[5]);
          nearest = std::min(nearest, dx * dx + dy * dy);
        }
        *pixel++ = std::exp(-50 * nearest);
      }
  }
  return all;
}

struct Net : torch::nn::Module {
  std::vector<torch::nn::Linear> layers;

  Net() {
    const torch::NoGradGuard no_grad;
    support::Random uniform(2);
    for (std::size_t l = 0; l + 1 < kWidths.size(); ++l) {
      layers.push_back(register_module("layer" + std::to_string(l),
                                       torch::nn::Linear(kWidths[l], kWidths[l + 1])));
      layers.back()->to(at::kDouble);
      const double bound = std::sqrt(6.0 / static_cast<double>(kWidths[l] + kWidths[l + 1]));
      double* w = layers.back()->weight.data_ptr<double>();
      for (std::int64_t k = 0; k < kWidths[l] * kWidths[l + 1]; ++k)
        w[k] = (2 * uniform.unit() - 1) * bound;
      layers.back()->bias.zero_();
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (std::size_t l = 0; l + 1 < layers.size(); ++l) x = torch::tanh(layers[l]->forward(x));
    return layers.back()->forward(x);
  }
};

/// Binary cross entropy with soft targets: mean over samples of the sum over pixels.
inline at::Tensor loss(const at::Tensor& logits, const at::Tensor& images) {
  return torch::nn::functional::binary_cross_entropy_with_logits(
             logits, images,
             torch::nn::functional::BinaryCrossEntropyWithLogitsFuncOptions().reduction(
                 torch::kSum)) /
         static_cast<double>(images.size(0));
}

/// Labels drawn from the model in a step.
inline at::Tensor labels(const at::Tensor& logits, std::int64_t step) {
  const at::Tensor p = torch::sigmoid(logits.detach()).contiguous();
  at::Tensor drawn = torch::empty_like(p);
  for (std::int64_t k = 0; k < p.numel(); ++k)
    drawn.data_ptr<double>()[k] =
        random_unit(3, static_cast<std::uint64_t>(kImages * kPixels * step + k)) <
        p.const_data_ptr<double>()[k];
  return drawn;
}

}  // namespace autoencoder
}  // namespace linerate::torch_adapter
