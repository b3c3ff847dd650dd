// Gradients of a loss's terms with respect to the network's output, in the units of one term; and
// how many terms the loss divides by. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "linerate/torch_adapter/kfac/counted_positions.hpp"
#include "linerate/torch_adapter/kfac/kfac_options.hpp"
#include "linerate/torch_adapter/kfac/loss_kind.hpp"

namespace linerate::torch_adapter {

/// The source of random labels. A label depends on four numbers alone: the seed, the step, the
/// sample's index among those of all ranks, and the output's index. So labels are the same for
/// every number of ranks. For example with 2 ranks sample 5 is on rank 1 (samples 4 to 7). With 4
/// ranks it is on rank 2 (samples 4 and 5), and its label is the same.
struct LabelDraw {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t first_sample = 0;  // of this rank
};

/// d term / d z with a label drawn from the model's own distribution, shaped like z.
at::Tensor sampled_gradient(const at::Tensor& output, LossKind kind, const LabelDraw& draw);
/// d term / d z with these labels: class indices [N, positions...], or values shaped like z.
at::Tensor labelled_gradient(const at::Tensor& output, LossKind kind, const at::Tensor& labels);

/// The number M of terms by which a loss of this output is divided, over the labels that count.
/// `output`: [N], [N, C] or [N, C, positions...]. 1 for a sum, which is not divided.
double loss_terms(const LossAverage& average, const at::Tensor& output,
                  const CountedPositions& counted = {});

}  // namespace linerate::torch_adapter
