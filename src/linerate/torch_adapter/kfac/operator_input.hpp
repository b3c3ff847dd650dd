// Reads off an operator how it uses a layer's weight. Private to torch_adapter.
#pragma once

#include <ATen/record_function.h>

#include <optional>

#include "linerate/torch_adapter/kfac/layer_input.hpp"
#include "linerate/torch_adapter/kfac/layer_spec.hpp"

namespace linerate::torch_adapter {

/// Nothing for an operator that only passes by the weight (a view, a norm of it). `fn` is in its
/// start callback. Throws UsageError, naming the layer, where the weight is multiplied in a way
/// that is not this layer's (transposed in a tied decoder, on the left, scaled): its factors would
/// be of something else.
std::optional<LayerInput> operator_input(const at::RecordFunction& fn, const LayerSpec& layer);

}  // namespace linerate::torch_adapter
