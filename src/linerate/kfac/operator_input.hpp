// Reads off an operator how it uses a layer's weight. Private to kfac and torch_adapter.
#pragma once

#include <ATen/record_function.h>

#include <optional>
#include <vector>

#include "linerate/kfac/counted_positions.hpp"
#include "linerate/kfac/kfac_options.hpp"
#include "linerate/kfac/kfac_report.hpp"

namespace linerate::torch_adapter {

/// How an operator uses the layer's weight; absent if it does not apply the weight (a view, a norm
/// of it). `fn` is in its start callback.
///
/// Throws UsageError, naming the layer, if the operator multiplies by the weight in another way
/// than this layer does. Examples are transposed in a tied decoder, on the left, scaled. Factors
/// would not describe such a use.
std::optional<LayerInput> operator_input(const at::RecordFunction& fn, const LayerSpec& layer);

}  // namespace linerate::torch_adapter

// Finds the layers of a model that K-FAC preconditions. Private to kfac and torch_adapter.

namespace torch::nn {
class Module;
}

namespace linerate::torch_adapter {

struct Registration {
  std::vector<LayerSpec> layers;
  std::vector<RegisteredLayer> report;  // every module with parameters of its own
};

/// By module type: Linear, Conv1d to 3d, Embedding, LayerNorm, BatchNorm1d to 3d. In registration
/// order; the first of modules that share a weight stands for all. Throws UsageError with
/// `all_layers`.
Registration register_layers(torch::nn::Module& model, const KfacOptions& options);
/// The same for layers that are no torch::nn modules.
Registration register_layers(const std::vector<LayerSpec>& layers, const KfacOptions& options);

}  // namespace linerate::torch_adapter
