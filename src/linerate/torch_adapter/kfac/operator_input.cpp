// K-FAC does not ask modules how they use their weights, but reads it off the operators' arguments.
// So functional calls and modules of the program's own work as well. Each function below knows the
// signatures of a kind of operator.
#include "linerate/torch_adapter/kfac/operator_input.hpp"

#include <ATen/ops/constant_pad_nd.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"

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

/// One axis of a convolution.
struct ConvAxis {
  std::int64_t kernel = 1, stride = 1, dilation = 1, pad_before = 0, pad_after = 0;

  std::int64_t outputs(std::int64_t inputs) const {
    return (inputs + pad_before + pad_after - dilation * (kernel - 1) - 1) / stride + 1;
  }
  /// Whether the kernel fits into its padded input. If not, the operator will throw.
  bool fits(std::int64_t inputs) const {
    return inputs + pad_before + pad_after > dilation * (kernel - 1);
  }
};
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
    const std::int64_t total = a.dilation * (a.kernel - 1);
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

ConvGeometry geometry_of(const ConvAxes& axes) {
  ConvGeometry g;
  for (std::size_t i = 0; i < 2; ++i) {
    const ConvAxis& a = axes[i + 1];
    g.kernel[i] = a.kernel, g.stride[i] = a.stride, g.dilation[i] = a.dilation;
    g.pad_before[i] = a.pad_before, g.pad_after[i] = a.pad_after;
  }
  return g;
}

/// Makes images of volumes: [N, C, D, H, W] or [C, D, H, W] -> [N D', C kd, H, W]. Each image has
/// the input that one depth of the output sees, so a 3-d convolution's factors are those of a 2-d
/// one.
at::Tensor depths_of(const at::Tensor& input, const ConvAxis& depth) {
  const at::Tensor volumes = input.dim() == 4 ? input.unsqueeze(0) : input;
  const at::Tensor padded =
      at::constant_pad_nd(volumes, {0, 0, 0, 0, depth.pad_before, depth.pad_after});
  // [N, C, D', H, W, kd]
  const at::Tensor windows = padded.unfold(2, depth.dilation * (depth.kernel - 1) + 1, depth.stride)
                                 .slice(5, 0, std::nullopt, depth.dilation);
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
  for (std::int64_t i = 3 - dims; i < 3; ++i)
    if (!axes[to_index(i)].fits(input.size(i - 3))) return std::nullopt;
  LayerInput found{dims == 1 ? input.unsqueeze(-2) : input};
  found.conv = geometry_of(axes);
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

}  // namespace linerate::torch_adapter
