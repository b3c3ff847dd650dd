// Interprets a model's table, node by node. forward() keeps the value of every node until its last
// reader has run. So values live no longer than in a hand-written module.
//
// Some operations overwrite their input. ReLU after batch norm may do so: backward of batch norm
// reads its input and not its output, and no other node reads that output. An add after a ReLU may
// not, because backward of ReLU reads ReLU's output. Autograd would refuse a wrong choice at run
// time.
#include "linerate/zoo/network.hpp"

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/add.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/chunk.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/flatten.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/narrow.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/select.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/kfac/kfac_options.hpp"

namespace linerate::zoo {
namespace {

using models::Node;
using models::Op;

/// The kind of layer for operations with a weight of their own; absent for the others.
std::optional<torch_adapter::LayerKind> layer_kind(Op op) {
  switch (op) {
    case Op::conv2d:
      return torch_adapter::LayerKind::conv;
    case Op::linear:
      return torch_adapter::LayerKind::linear;
    case Op::batch_norm:
    case Op::layer_norm:
      return torch_adapter::LayerKind::norm;
    case Op::embedding:
    case Op::position_embedding:
    case Op::constant_embedding:
      return torch_adapter::LayerKind::embedding;
    default:
      return std::nullopt;
  }
}

}  // namespace

Network::Network(models::Description table) : description_(std::move(table)) {
  const std::size_t n = description_.nodes.size();
  tensors_.resize(n);
  dead_after_.resize(n);
  in_place_.resize(n);
  std::vector<int> last(n, -1), readers(n, 0);
  for (std::size_t i = 0; i < n; ++i)
    for (const int from : description_.nodes[i].inputs) {
      last[to_index(from)] = static_cast<int>(i);
      ++readers[to_index(from)];
    }
  for (std::size_t i = 0; i < n; ++i) {
    if (last[i] >= 0) dead_after_[to_index(last[i])].push_back(static_cast<int>(i));
    const Node& node = description_.nodes[i];
    if (node.op == Op::relu || node.op == Op::add) {
      const auto from = to_index(node.inputs.front());
      // Backward of these does not read its own output, so the only reader may overwrite it.
      constexpr std::array kFree = {Op::conv2d, Op::linear, Op::batch_norm, Op::add};
      in_place_[i] = readers[from] == 1 &&
                     std::ranges::find(kFree, description_.nodes[from].op) != kFree.end();
    }
    register_tensors(i);
  }
  for (const auto& item : named_parameters()) named_.emplace_back(item.key(), item.value());
  for (const auto& item : named_buffers()) named_buffers_.emplace_back(item.key(), item.value());
}

// The module of a path such as "layer1.0.conv1", made with its parents if it is new. So parameters
// have the names that PyTorch's models use.
torch::nn::Module& Network::scope(const std::string& path) {
  if (path.empty()) return *this;
  std::shared_ptr<torch::nn::Module>& module = scopes_[path];
  if (!module) {
    const std::size_t dot = path.rfind('.');
    const std::string parent = dot == std::string::npos ? "" : path.substr(0, dot);
    const std::string name = dot == std::string::npos ? path : path.substr(dot + 1);
    auto fresh = std::make_shared<torch::nn::Module>(name);
    module = scope(parent).register_module(name, fresh);
  }
  return *scopes_[path];
}

// Makes a node's parameters and buffers under its name, and keeps handles to them.
void Network::register_tensors(std::size_t index) {
  const Node& node = description_.nodes[index];
  if (node.parameters.empty()) return;
  torch::nn::Module& module = scope(node.name);
  Tensors& t = tensors_[index];
  for (const models::TensorSpec& p : node.parameters)
    (p.name == "weight" ? t.weight : t.bias) =
        module.register_parameter(p.name, at::empty(p.shape));
  for (const models::TensorSpec& b : node.buffers) {
    at::Tensor& slot = b.name == "running_mean"  ? t.mean
                       : b.name == "running_var" ? t.variance
                                                 : t.count;
    const at::Tensor start = b.shape.empty()           ? at::zeros({}, at::kLong)
                             : b.name == "running_var" ? at::ones(b.shape)
                                                       : at::zeros(b.shape);
    slot = module.register_buffer(b.name, start);
  }
  initialise(node, t);
}

// Networks of ReLUs begin as He et al. 2015 say: fan-out for convolutions as in ResNet, fan-in
// uniform for linear layers as in LibTorch. Transformers begin with a normal distribution of
// deviation 0.02 (Devlin et al. 2019).
void Network::initialise(const Node& node, const Tensors& t) const {
  const c10::NoGradGuard no_grad;
  if (node.op == Op::batch_norm || node.op == Op::layer_norm) {
    t.weight.fill_(1);
    t.bias.zero_();
    return;
  }
  if (description_.initialisation == models::Initialisation::normal_002) {
    t.weight.normal_(0, 0.02);
    if (t.bias.defined()) t.bias.zero_();
    return;
  }
  const double fan_in = static_cast<double>(t.weight[0].numel());
  if (node.op == Op::conv2d) {
    const double fan_out = static_cast<double>(t.weight.numel() / t.weight.size(1));
    t.weight.normal_(0, std::sqrt(2 / fan_out));
    if (t.bias.defined()) t.bias.zero_();
  } else {
    const double bound = 1 / std::sqrt(fan_in);
    t.weight.uniform_(-bound, bound);
    if (t.bias.defined()) t.bias.uniform_(-bound, bound);
  }
}

at::Tensor Network::forward(const at::Tensor& input) {
  std::vector<at::Tensor> values(description_.nodes.size());
  values[0] = input;
  for (std::size_t i = 1; i < values.size(); ++i) {
    values[i] = run(i, values);
    for (const int dead : dead_after_[i]) values[to_index(dead)] = at::Tensor();
  }
  return values.back();
}

// The value of one node, from the values of its inputs.
at::Tensor Network::run(std::size_t index, const std::vector<at::Tensor>& values) {
  const Node& node = description_.nodes[index];
  Tensors& t = tensors_[index];
  at::Tensor x = values[to_index(node.inputs.front())];
  const models::Window& w = node.window;
  switch (node.op) {
    case Op::conv2d:
      return at::conv2d(x, t.weight, t.bias, {w.stride, w.stride}, {w.pad_height, w.pad_width});
    case Op::linear:
      return at::linear(x, t.weight, t.bias);
    case Op::tied_linear:
      return at::linear(x, tensors_[to_index(node.tied)].weight);
    case Op::batch_norm:
      if (is_training()) t.count.add_(1);
      return at::batch_norm(x, t.weight, t.bias, t.mean, t.variance, is_training(), norm_momentum_,
                            node.epsilon, false);
    case Op::layer_norm:
      return at::layer_norm(x, t.weight.sizes(), t.weight, t.bias, node.epsilon);
    case Op::embedding:
      return at::embedding(t.weight, x);
    case Op::position_embedding:
      return at::narrow(t.weight, 0, 0, node.output[0]).unsqueeze(0).expand({x.size(0), -1, -1});
    case Op::constant_embedding:
      return at::narrow(t.weight, 0, 0, 1).unsqueeze(0).expand({x.size(0), node.output[0], -1});
    case Op::relu:
      return in_place_[index] ? at::relu_(x) : at::relu(x);
    case Op::gelu:
      return at::gelu(x);
    case Op::tanh:
      return at::tanh(x);
    case Op::max_pool:
      return at::max_pool2d(x, {w.height, w.width}, {w.stride, w.stride},
                            {w.pad_height, w.pad_width});
    case Op::avg_pool:
      return at::avg_pool2d(x, {w.height, w.width}, {w.stride, w.stride},
                            {w.pad_height, w.pad_width}, false, false);
    case Op::global_avg_pool:
      return at::adaptive_avg_pool2d(x, {node.output[1], node.output[2]});
    case Op::flatten:
      return at::flatten(x, 1);
    case Op::add: {
      const at::Tensor& y = values[to_index(node.inputs[1])];
      return in_place_[index] ? x.add_(y) : at::add(x, y);
    }
    case Op::dropout:
      return at::dropout(x, node.rate, is_training());
    case Op::first_token:
      return at::select(x, 1, 0);
    case Op::concat:
    case Op::attention: {
      std::vector<at::Tensor> inputs;
      for (const int from : node.inputs) inputs.push_back(values[to_index(from)]);
      return node.op == Op::concat ? at::cat(inputs, 1) : attend(node, inputs);
    }
    case Op::input:
      break;
  }
  check_failed("op != Op::input", "node " + std::to_string(index));
}

// q, k, v [B, T, D] -> [B, heads, T, D / heads] -> [B, T, D].
at::Tensor Network::attend(const Node& node, const std::vector<at::Tensor>& inputs) const {
  const std::vector<at::Tensor> qkv = inputs.size() == 1 ? at::chunk(inputs[0], 3, -1) : inputs;
  const auto split = [&](const at::Tensor& x) {
    return x.view({x.size(0), x.size(1), node.heads, -1}).transpose(1, 2);
  };
  const at::Tensor y =
      at::scaled_dot_product_attention(split(qkv[0]), split(qkv[1]), split(qkv[2]), {},
                                       is_training() ? node.rate : 0.0, node.causal);
  return y.transpose(1, 2).flatten(2);
}

std::vector<torch_adapter::LayerSpec> Network::layers() const {
  std::vector<torch_adapter::LayerSpec> layers;
  const std::vector<Node>& nodes = description_.nodes;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto kind = layer_kind(nodes[i].op);
    if (!kind) continue;
    torch_adapter::LayerSpec layer{nodes[i].name, *kind, tensors_[i].weight, tensors_[i].bias};
    layer.trains = [this] { return is_training(); };
    if (nodes[i].op == Op::position_embedding || nodes[i].op == Op::constant_embedding)
      layer.refusal = "every sample adds the same rows of it";
    if (std::ranges::any_of(nodes, [&](const Node& other) {
          return other.op == Op::tied_linear && other.tied == static_cast<int>(i);
        }))
      layer.refusal = "the output multiplies by its weight too";
    layers.push_back(std::move(layer));
  }
  return layers;
}

bool Network::draws() const {
  return std::ranges::any_of(description_.nodes, [](const Node& node) { return node.rate > 0; });
}

}  // namespace linerate::zoo
