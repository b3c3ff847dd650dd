// K-FAC does not ask modules how they use their weights, but reads it off the operators' arguments.
// So functional calls and modules of the program's own work as well. Each function below knows the
// signatures of a kind of operator.
#include "linerate/kfac/operator_input.hpp"

#include <ATen/ops/constant_pad_nd.h>
#include <fmt/format.h>
#include <fnmatch.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/kfac/curvature_block.hpp"

namespace linerate::torch_adapter {
namespace {

using Inputs = c10::ArrayRef<const c10::IValue>;

/// Whether two tensors view the same elements in the same places.
bool same_view(const at::Tensor& a, const at::Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr() && a.sizes() == b.sizes() &&
         a.strides() == b.strides();
}

bool reads(const c10::IValue& argument, const at::Tensor& weight) {
  return argument.isTensor() && argument.toTensor().defined() &&
         same_view(argument.toTensor(), weight);
}

bool begins_at(const c10::IValue& argument, const at::Tensor& weight) {
  return argument.isTensor() && argument.toTensor().defined() &&
         argument.toTensor().const_data_ptr() == weight.const_data_ptr();
}

using ConvAxes = std::array<ConvAxis, 3>;  // depth, height, width

/// A list with a value for each axis of the operator, or one for all.
std::int64_t value_of(const c10::IValue& list, std::size_t axis) {
  const std::vector<std::int64_t> values = list.toIntVector();
  return values[values.size() == 1 ? 0 : axis];
}

/// Padding of one axis. With "same", an odd element of padding is at the end.
void set_padding(const c10::IValue& padding, std::size_t axis, ConvAxis& a) {
  if (!padding.isString()) {
    a.pad_before = a.pad_after = value_of(padding, axis);
  } else if (padding.toStringRef() == "same") {
    const std::int64_t total = a.span() - 1;
    a.pad_before = total / 2;
    a.pad_after = total - total / 2;
  }
}

ConvAxes axes_of(Inputs in, const at::Tensor& weight) {
  ConvAxes axes;
  const auto dims = to_index(weight.dim() - 2);
  for (std::size_t i = 0; i < dims; ++i) {
    ConvAxis& a = axes[3 - dims + i];
    a.kernel = weight.size(static_cast<std::int64_t>(2 + i));
    a.stride = value_of(in[3], i);
    a.dilation = value_of(in[5], i);
    set_padding(in[4], i, a);
  }
  return axes;
}

/// Makes images of volumes: [N, C, D, H, W] or [C, D, H, W] -> [N D', C kd, H, W]. Each image has
/// the input that one depth of the output sees, so a 3-d convolution's factors are those of a 2-d
/// one.
at::Tensor depths_of(const at::Tensor& input, const ConvAxis& depth) {
  const at::Tensor volumes = input.dim() == 4 ? input.unsqueeze(0) : input;
  const at::Tensor padded =
      at::constant_pad_nd(volumes, {0, 0, 0, 0, depth.pad_before, depth.pad_after});
  // [N, C, D', H, W, kd]
  const at::Tensor windows =
      padded.unfold(2, depth.span(), depth.stride).slice(5, 0, std::nullopt, depth.dilation);
  return windows.permute({0, 2, 1, 5, 3, 4}).flatten(2, 3).flatten(0, 1);
}

// conv1d, conv2d, conv3d(input, weight, bias, stride, padding, dilation, groups)
// convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
std::optional<LayerInput> convolution(std::string_view name, Inputs in, const LayerSpec& layer) {
  const bool general = name == "aten::convolution";
  if (name != "aten::conv1d" && name != "aten::conv2d" && name != "aten::conv3d" && !general)
    return std::nullopt;
  const auto refuse = [&](std::string_view why) {
    throw UsageError(
        fmt::format("K-FAC: {} of layer \"{}\" {}; skip the layer", name, layer.name, why));
  };
  if (!reads(in[1], layer.weight)) refuse("reads another view of the layer's weight");
  if (general && in[6].toBool()) refuse("is a transposed convolution");
  if (in[general ? 8 : 6].toInt() != layer.groups) refuse("has other groups than the layer");
  const ConvAxes axes = axes_of(in, layer.weight);
  const std::int64_t dims = layer.weight.dim() - 2;
  const at::Tensor input = in[0].toTensor();
  // A kernel that does not fit into its padded input makes the operator throw.
  for (std::int64_t i = 3 - dims; i < 3; ++i)
    if (const ConvAxis& a = axes[to_index(i)];
        input.size(i - 3) + a.pad_before + a.pad_after < a.span())
      return std::nullopt;
  LayerInput found{dims == 1 ? input.unsqueeze(-2) : input};
  found.conv = {axes[1], axes[2]};
  if (dims == 3) {
    found.images = axes[0].outputs(input.size(-3));
    found.tensor = depths_of(input, axes[0]);
  }
  return found;
}

// linear(input, weight, bias), addmm(bias, input, weightᵀ), mm and matmul(input, weightᵀ)
std::optional<LayerInput> linear(std::string_view name, Inputs in, const LayerSpec& layer) {
  const at::Tensor& w = layer.weight;
  if (name == "aten::linear" && !layer.transposed && reads(in[1], w))
    return LayerInput{in[0].toTensor()};
  const bool addmm = name == "aten::addmm";
  if (!addmm && name != "aten::mm" && name != "aten::matmul" && name != "aten::linear")
    return std::nullopt;
  const std::size_t place = addmm ? 2 : 1;
  const bool plain =
      !addmm || (in[3].toScalar().toDouble() == 1 && in[4].toScalar().toDouble() == 1);
  if (name == "aten::linear" || !plain || !reads(in[place], layer.transposed ? w : w.t()))
    throw UsageError(
        fmt::format("K-FAC: {} uses the weight of layer \"{}\" differently from a linear layer "
                    "(transposed or scaled); skip the layer",
                    name, layer.name));
  return LayerInput{in[place - 1].toTensor()};
}

// embedding(weight, indices, padding_idx, scale_grad_by_freq, sparse)
std::optional<LayerInput> embedding(std::string_view name, Inputs in, const LayerSpec& layer) {
  if (name != "aten::embedding" || !reads(in[0], layer.weight)) return std::nullopt;
  LayerInput found{in[1].toTensor()};
  found.padding_index = in[2].toInt();
  return found;
}

at::Tensor optional_tensor(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

// layer_norm(input, normalized_shape, weight, bias, eps, cudnn)
// batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn)
std::optional<LayerInput> norm(std::string_view name, Inputs in, const LayerSpec& layer) {
  if (name == "aten::layer_norm" && reads(in[2], layer.weight)) {
    LayerInput found{in[0].toTensor()};
    found.is_layer_norm = true;
    found.normalized_dims = static_cast<std::int64_t>(in[1].toIntVector().size());
    found.epsilon = in[4].toDouble();
    return found;
  }
  if (name != "aten::batch_norm" || !reads(in[1], layer.weight)) return std::nullopt;
  LayerInput found{in[0].toTensor()};
  found.running_mean = optional_tensor(in[3]);
  found.running_variance = optional_tensor(in[4]);
  found.batch_statistics = in[5].toBool();
  found.epsilon = in[7].toDouble();
  return found;
}

}  // namespace

std::optional<LayerInput> operator_input(const at::RecordFunction& fn, const LayerSpec& layer) {
  // Layers may share one storage; the operator may read another's part of it.
  if (std::none_of(fn.inputs().begin(), fn.inputs().end(),
                   [&](const c10::IValue& input) { return begins_at(input, layer.weight); }))
    return std::nullopt;
  const std::string_view name = fn.name();
  switch (layer.kind) {
    case LayerKind::linear:
      return linear(name, fn.inputs(), layer);
    case LayerKind::conv:
      return convolution(name, fn.inputs(), layer);
    case LayerKind::embedding:
      return embedding(name, fn.inputs(), layer);
    case LayerKind::norm:
      break;
  }
  return norm(name, fn.inputs(), layer);
}

// Finds the layers of a model that K-FAC preconditions. Each module with parameters of its own
// becomes a candidate. It is taken, skipped by a name's pattern, or left to the optimizer for a
// reason, and the report has a line for each. KFAC's constructors call this once.
//
// Example: an embedding and the last linear layer share a weight, as language models do. The weight
// has one gradient from two kinds of layers, so both lines of the report get the reason, and
// neither layer is taken. Two uses of one linear module's weight are one layer, whose factors count
// both uses.

namespace {

/// A module as it is found, before it is known whether K-FAC takes it.
struct Candidate {
  LayerSpec spec;
  std::string kind;
};

std::string_view kind_name(const LayerSpec& layer) {
  switch (layer.kind) {
    case LayerKind::linear:
      return "linear";
    case LayerKind::conv:
      return layer.weight.dim() == 3 ? "conv1d" : layer.weight.dim() == 4 ? "conv2d" : "conv3d";
    case LayerKind::embedding:
      return "embedding";
    case LayerKind::norm:
      break;
  }
  return "norm";
}

/// Fills in what the module holds if it is of type T.
template <typename T>
bool take(const torch::nn::Module& module, LayerKind kind, Candidate& found) {
  const T* const typed = dynamic_cast<const T*>(&module);
  if (!typed) return false;
  LayerSpec& spec = found.spec;
  spec.kind = kind;
  spec.weight = typed->weight;
  found.kind = kind_name(spec);
  if constexpr (requires { typed->bias; }) spec.bias = typed->bias;
  if constexpr (requires { typed->options.groups(); })
    spec.groups = static_cast<int>(typed->options.groups());
  if constexpr (requires { typed->options.scale_grad_by_freq(); }) {
    if (typed->options.sparse()) spec.refusal = "its gradients are sparse";
    if (typed->options.scale_grad_by_freq()) spec.refusal = "it scales gradients by frequency";
  }
  return true;
}

Candidate candidate(const std::string& name, torch::nn::Module& module) {
  Candidate found{{.name = name}, module.name()};
  found.spec.trains = [&module] { return module.is_training(); };
  using namespace torch::nn;
  const bool is_known = take<LinearImpl>(module, LayerKind::linear, found) ||
                        take<Conv1dImpl>(module, LayerKind::conv, found) ||
                        take<Conv2dImpl>(module, LayerKind::conv, found) ||
                        take<Conv3dImpl>(module, LayerKind::conv, found) ||
                        take<EmbeddingImpl>(module, LayerKind::embedding, found) ||
                        take<LayerNormImpl>(module, LayerKind::norm, found) ||
                        take<BatchNorm1dImpl>(module, LayerKind::norm, found) ||
                        take<BatchNorm2dImpl>(module, LayerKind::norm, found) ||
                        take<BatchNorm3dImpl>(module, LayerKind::norm, found);
  if (!is_known) found.spec.refusal = "no factors are known for this type of layer";
  return found;
}

/// Why a layer is left to the optimizer, if factors may have `largest_factor` rows; empty: it is
/// not.
std::string refusal(const LayerSpec& spec, const KfacOptions& options,
                    std::int64_t largest_factor) {
  if (!spec.refusal.empty()) return spec.refusal;
  if (!spec.weight.requires_grad()) return "its weight is frozen";
  const auto type = spec.weight.scalar_type();
  if (!at::isFloatingType(type)) return "its weight is not of a real floating-point type";
  if (spec.kind == LayerKind::conv && spec.weight.dim() == 5 &&
      options.shared_positions == SharedPositions::reduce)
    return "shared_positions = reduce is not known for three dimensions";
  const doc::Block shape = block_shape(spec);
  if (shape.kind == BlockKind::unit_wise && !options.norms) return "norms are left out";
  if (shape.kind == BlockKind::embedding && !options.embeddings) return "embeddings are left out";
  if (const std::int64_t largest = doc::largest_dimension(shape); largest > largest_factor)
    return fmt::format("a factor of {0} x {0} is larger than the largest allowed, {1}", largest,
                       largest_factor);
  return "";
}

class Builder {
 public:
  explicit Builder(const KfacOptions& options) : options_(options) {}

  /// Decides what becomes of a module: taken, skipped by name, or left to the optimizer for a
  /// reason. The report has a line for each.
  void add(Candidate c) {
    if (c.spec.bias.defined() && !c.spec.bias.requires_grad()) c.spec.bias.reset();
    RegisteredLayer line{.name = c.spec.name, .kind = c.kind};
    line.reason = refusal(c.spec, options_, options_.largest_factor);
    // "layer*.norm" matches "layer12.norm".
    const bool named =
        std::any_of(options_.skip.begin(), options_.skip.end(), [&](const std::string& pattern) {
          return ::fnmatch(pattern.c_str(), c.spec.name.c_str(), FNM_NOESCAPE) == 0;
        });
    if (named) line.reason = "skipped by name";
    if (options_.all_layers && !named && !line.reason.empty())
      throw UsageError(
          fmt::format("K-FAC: layer \"{}\" ({}) would be left to the first-order optimizer, "
                      "because {}; name it in `skip`, or unset all_layers",
                      c.spec.name, c.kind, line.reason));
    if (line.reason.empty())
      take(c, line);
    else if (!named && refusal(c.spec, options_, std::numeric_limits<std::int64_t>::max()).empty())
      line.too_large = doc::largest_dimension(block_shape(c.spec));  // its size alone is the reason
    result_.report.push_back(line);
  }

  Registration finish() { return std::move(result_); }

 private:
  // Modules that share a weight count as one layer if they use it alike. If they do not, neither is
  // preconditioned.
  void take(const Candidate& c, RegisteredLayer& line) {
    for (const at::Tensor& tensor : {c.spec.weight, c.spec.bias})
      if (tensor.defined() && tensor.is_meta())
        throw UsageError(
            fmt::format("K-FAC: layer \"{}\": its {} lies on meta, expected memory; move "
                        "the model to its device before, or name the layer in `skip`",
                        c.spec.name, tensor.is_same(c.spec.weight) ? "weight" : "bias"));
    const doc::Block shape = block_shape(c.spec);
    line.a = shape.a;
    line.g = shape.g;
    line.groups = shape.groups;
    const auto [known, fresh] =
        by_weight_.try_emplace(c.spec.weight.unsafeGetTensorImpl(), result_.layers.size());
    if (fresh) {
      result_.layers.push_back(c.spec);
      return;
    }
    LayerSpec& first = result_.layers[known->second];
    if (first.kind == c.spec.kind && first.bias.is_same(c.spec.bias) &&
        first.groups == c.spec.groups && first.transposed == c.spec.transposed) {
      line.reason =
          fmt::format("shares its weight with \"{}\", whose factors count its uses", first.name);
      return;
    }
    // The weight has one gradient from two kinds of layers, and the factors of neither describe it.
    line.reason =
        fmt::format("shares its weight with \"{}\", a {} layer{}", first.name, kind_name(first),
                    first.kind == c.spec.kind ? " with another bias" : "");
    for (RegisteredLayer& other : result_.report)
      if (other.name == first.name)
        other.reason = fmt::format("shares its weight with \"{}\", a {} layer", c.spec.name,
                                   kind_name(c.spec));
    result_.layers.erase(result_.layers.begin() + static_cast<std::ptrdiff_t>(known->second));
    by_weight_.clear();
    for (std::size_t i = 0; i < result_.layers.size(); ++i)
      by_weight_[result_.layers[i].weight.unsafeGetTensorImpl()] = i;
  }

  const KfacOptions& options_;
  Registration result_;
  std::unordered_map<const void*, std::size_t> by_weight_;
};

bool has_parameters(const torch::nn::Module& module) {
  const auto own = module.named_parameters(/*recurse=*/false);
  return std::any_of(own.begin(), own.end(), [](const auto& p) { return p.value().defined(); });
}

}  // namespace

Registration register_layers(torch::nn::Module& model, const KfacOptions& options) {
  Builder builder(options);
  if (has_parameters(model)) builder.add(candidate("(model)", model));
  // The list leaves out the model itself, which may live on the stack and then has no shared_ptr.
  for (const auto& item : model.named_modules("", /*include_self=*/false))
    if (has_parameters(*item.value())) builder.add(candidate(item.key(), *item.value()));
  return builder.finish();
}

Registration register_layers(const std::vector<LayerSpec>& layers, const KfacOptions& options) {
  Builder builder(options);
  for (const LayerSpec& layer : layers) builder.add({layer, std::string(kind_name(layer))});
  return builder.finish();
}

}  // namespace linerate::torch_adapter
