// How many terms a mean loss divides by. Private to torch_adapter.
#pragma once

#include "linerate/torch_adapter/kfac/counted_positions.hpp"
#include "linerate/torch_adapter/kfac/kfac_options.hpp"

namespace linerate::torch_adapter {

/// M of a loss of this output: [N], [N, C] or [N, C, positions...], over the labels that count. 1
/// for a sum, which is not divided.
double loss_terms(const LossAverage& average, const at::Tensor& output,
                  const CountedPositions& counted = {});

}  // namespace linerate::torch_adapter
