// Networks whose K-FAC steps are compared between one rank and several.
#pragma once

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "linerate/kfac/kfac.hpp"

namespace linerate::torch_adapter {

/// Ranks are threads of one process and share its generator.
inline void set_weights(torch::nn::Module& net) {
  const torch::NoGradGuard no_grad;
  double phase = 0;
  for (torch::Tensor& p : net.parameters())
    p.copy_((torch::arange(p.numel(), torch::kDouble) * 1.7 + ++phase).sin().view(p.sizes()) * 0.4);
}

struct NetImpl : torch::nn::Module {
  NetImpl() {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 3, 3).stride(2)));
    hidden = register_module("hidden", torch::nn::Linear(27, 8));
    head = register_module("head", torch::nn::Linear(8, 4));
    to(torch::kDouble);
    set_weights(*this);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return head(torch::tanh(hidden(torch::tanh(conv(x)).flatten(1))));
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::Linear hidden{nullptr}, head{nullptr};
};
TORCH_MODULE(Net);

/// An embedding and a norm layer: factors that are no matrices.
struct TokenNetImpl : torch::nn::Module {
  TokenNetImpl() {
    words = register_module("words", torch::nn::Embedding(11, 6));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})));
    head = register_module("head", torch::nn::Linear(6, 4));
    to(torch::kDouble);
    set_weights(*this);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return head(torch::tanh(norm(words(x)))).mean(1);
  }
  torch::nn::Embedding words{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(TokenNet);

/// A class for each word, which looks at no other: [...] -> [..., 5].
struct TaggerImpl : torch::nn::Module {
  TaggerImpl() {
    words = register_module("words", torch::nn::Embedding(11, 6));
    hidden = register_module("hidden", torch::nn::Linear(6, 7));
    head = register_module("head", torch::nn::Linear(7, 5));
    to(torch::kDouble);
    set_weights(*this);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return head(torch::tanh(hidden(torch::tanh(words(x)))));
  }
  torch::nn::Embedding words{nullptr};
  torch::nn::Linear hidden{nullptr}, head{nullptr};
};
TORCH_MODULE(Tagger);

inline std::vector<torch::Tensor> weights_of(const torch::nn::Module& net) {
  std::vector<torch::Tensor> weights;
  for (const auto& p : net.parameters()) weights.push_back(p.detach().clone());
  return weights;
}

/// Infinite where one of them is not finite, or has other tensors.
inline double largest_difference(const std::vector<torch::Tensor>& a,
                                 const std::vector<torch::Tensor>& b) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  double largest = a.size() == b.size() ? 0 : kInfinite;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const auto difference = (a[i] - b[i]).abs().max().item<double>();
    largest = std::isfinite(difference) ? std::max(largest, difference) : kInfinite;
    if (std::isinf(largest)) return largest;
  }
  return largest;
}

}  // namespace linerate::torch_adapter
