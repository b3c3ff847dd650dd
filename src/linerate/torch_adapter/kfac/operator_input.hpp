// Reads off an operator how it uses a layer's weight. Private to torch_adapter.
#pragma once

#include <ATen/record_function.h>

#include <optional>

#include "linerate/torch_adapter/kfac/layer_input.hpp"
#include "linerate/torch_adapter/kfac/layer_spec.hpp"

namespace linerate::torch_adapter {

/// How an operator uses the layer's weight; absent if it does not apply the weight (a view, a norm
/// of it). `fn` is in its start callback.
///
/// Throws UsageError, naming the layer, if the operator multiplies by the weight in another way
/// than this layer does. Examples are transposed in a tied decoder, on the left, scaled. Factors
/// would not describe such a use.
std::optional<LayerInput> operator_input(const at::RecordFunction& fn, const LayerSpec& layer);

}  // namespace linerate::torch_adapter
