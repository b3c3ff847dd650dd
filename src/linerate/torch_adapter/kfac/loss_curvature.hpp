// Gradients of a loss's terms with respect to the network's output, in the units of one term; and
// how many terms the loss divides by. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "linerate/torch_adapter/kfac/counted_positions.hpp"
#include "linerate/torch_adapter/kfac/kfac_options.hpp"
#include "linerate/torch_adapter/kfac/loss_kind.hpp"

namespace linerate::torch_adapter {

/// The source of random labels: each depends on (seed, step, index of the sample among those of all
/// ranks, index of the output) alone, so they are the same for every number of ranks.
struct LabelDraw {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t first_sample = 0;  // of this rank
};

/// d term / d z with a label drawn from the model's own distribution, shaped like z.
at::Tensor sampled_gradient(const at::Tensor& output, LossKind kind, const LabelDraw& draw);
/// With these labels: class indices [N, positions...], or values shaped like z.
at::Tensor labelled_gradient(const at::Tensor& output, LossKind kind, const at::Tensor& labels);

/// M of a loss of this output: [N], [N, C] or [N, C, positions...], over the labels that count. 1
/// for a sum, which is not divided.
double loss_terms(const LossAverage& average, const at::Tensor& output,
                  const CountedPositions& counted = {});

}  // namespace linerate::torch_adapter
