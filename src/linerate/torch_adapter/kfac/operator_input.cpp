#include "linerate/torch_adapter/kfac/operator_input.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "linerate/core/error.hpp"

namespace linerate::torch_adapter {
namespace {

using Inputs = c10::ArrayRef<const c10::IValue>;

/// The same elements in the same places.
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

ConvGeometry::Pair pair_of(const c10::IValue& list) {
  const std::vector<std::int64_t> values = list.toIntVector();
  return {values.front(), values.back()};
}

/// "same" puts the odd element at the end.
void set_padding(const c10::IValue& padding, ConvGeometry& g) {
  if (!padding.isString()) {
    g.pad_before = g.pad_after = pair_of(padding);
  } else if (padding.toStringRef() == "same") {
    for (std::size_t i = 0; i < 2; ++i) {
      const std::int64_t total = g.dilation[i] * (g.kernel[i] - 1);
      g.pad_before[i] = total / 2;
      g.pad_after[i] = total - total / 2;
    }
  }
}

// conv2d(input, weight, bias, stride, padding, dilation, groups)
// convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
std::optional<LayerInput> convolution(std::string_view name, Inputs in, const LayerSpec& layer) {
  const bool general = name == "aten::convolution";
  if (name != "aten::conv2d" && !general) return std::nullopt;
  const auto refuse = [&](std::string_view why) {
    throw UsageError(
        fmt::format("K-FAC: {} of layer \"{}\" {}; skip the layer", name, layer.name, why));
  };
  if (!reads(in[1], layer.weight)) refuse("reads another view of the layer's weight");
  if (general && in[6].toBool()) refuse("is a transposed convolution");
  if (in[general ? 8 : 6].toInt() != layer.groups) refuse("has other groups than the layer");
  LayerInput found{in[0].toTensor()};
  found.conv.kernel = {layer.weight.size(2), layer.weight.size(3)};
  found.conv.stride = pair_of(in[3]);
  found.conv.dilation = pair_of(in[5]);
  set_padding(in[4], found.conv);
  for (std::size_t i = 0; i < 2; ++i) {  // a kernel larger than its input: the operator will throw
    const std::int64_t inputs = found.tensor.size(-2 + static_cast<std::int64_t>(i));
    if (inputs + found.conv.pad_before[i] + found.conv.pad_after[i] <=
        found.conv.dilation[i] * (found.conv.kernel[i] - 1))
      return std::nullopt;
  }
  return found;
}

// linear(input, weight, bias), addmm(bias, input, weightᵀ), mm and matmul(input, weightᵀ)
std::optional<LayerInput> linear(std::string_view name, Inputs in, const LayerSpec& layer) {
  const at::Tensor& w = layer.weight;
  if (name == "aten::linear" && reads(in[1], w)) return LayerInput{in[0].toTensor()};
  const bool addmm = name == "aten::addmm";
  if (!addmm && name != "aten::mm" && name != "aten::matmul" && name != "aten::linear")
    return std::nullopt;
  const std::size_t place = addmm ? 2 : 1;
  const bool plain =
      !addmm || (in[3].toScalar().toDouble() == 1 && in[4].toScalar().toDouble() == 1);
  if (name == "aten::linear" || !plain || !reads(in[place], w.t()))
    throw UsageError(fmt::format(
        "K-FAC: {} uses the weight of layer \"{}\" in another way than a linear layer does "
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
    case LayerKind::conv2d:
      return convolution(name, fn.inputs(), layer);
    case LayerKind::embedding:
      return embedding(name, fn.inputs(), layer);
    case LayerKind::norm:
      break;
  }
  return norm(name, fn.inputs(), layer);
}

}  // namespace linerate::torch_adapter
