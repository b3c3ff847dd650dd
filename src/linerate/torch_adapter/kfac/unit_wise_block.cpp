// The block of norm layers. Each unit has a scale and a shift, so its part of the Fisher matrix is
// 2 x 2. No other unit matters to it. Let s be the sample's gradient of the scale, and b that of
// the shift. The three sums are those of s s, s b and b b: [3][units].
#include "linerate/torch_adapter/kfac/unit_wise_block.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

namespace linerate::torch_adapter {
namespace {

/// Sums a tensor shaped like a norm layer's output over each sample's positions: [samples, units].
at::Tensor by_sample(const at::Tensor& values, const LayerInput& input) {
  if (!input.is_layer_norm)  // [N, C, positions...]
    return values.dim() == 2 ? values : values.flatten(2).sum(2);
  const std::int64_t leading = values.dim() - input.normalized_dims;
  // The sizes are computed and not left to reshape(), because a batch may have no samples.
  std::int64_t positions = 1, units = 1;
  for (std::int64_t i = 1; i < leading; ++i) positions *= values.size(i);
  for (std::int64_t i = leading; i < values.dim(); ++i) units *= values.size(i);
  return values.reshape({leading > 0 ? values.size(0) : 1, positions, units}).sum(1);
}

at::Tensor normalized(const at::Tensor& x, const LayerInput& input) {
  if (input.is_layer_norm)
    return at::layer_norm(x, x.sizes().slice(x.dim() - input.normalized_dims), {}, {},
                          input.epsilon);
  if (input.batch_statistics)
    return at::batch_norm(x, {}, {}, {}, {}, /*training=*/true, 0, input.epsilon, false);
  return at::batch_norm(x, {}, {}, input.running_mean.to(x.scalar_type()),
                        input.running_variance.to(x.scalar_type()), /*training=*/false, 0,
                        input.epsilon, false);
}

/// (F + damping I)^-1 of 2 x 2 blocks by their determinant, which is at least damping². [n, 3,
/// units].
at::Tensor inverses_of(const at::Tensor& f, const at::Tensor& damping) {
  const at::Tensor first = f.select(1, 0) + damping, second = f.select(1, 2) + damping;
  const at::Tensor between = f.select(1, 1);
  const at::Tensor scaled = (first * second - between * between).reciprocal();
  return at::stack({second * scaled, -between * scaled, first * scaled}, 1);
}

}  // namespace

UnitWiseBlock::UnitWiseBlock(const LayerSpec& layer, const BlockOptions& options)
    : CurvatureBlock(layer, block_shape(layer), options) {}

/// The gradient of a unit's scale is the output's gradient times the normalized input, summed over
/// the sample's positions. That of its shift is the output's gradient, summed likewise.
void UnitWiseBlock::add_gradient(const LayerInput& input, const at::Tensor& gradient,
                                 double scale) {
  const at::Tensor g = to_dtype(gradient);
  const at::Tensor s = by_sample(g * normalized(to_dtype(input.tensor), input), input);
  const at::Tensor b = layer().bias.defined() ? by_sample(g, input) : at::zeros_like(s);
  const at::Tensor sums = sum(FactorSide::g).view({3, -1});
  const at::Tensor both = at::stack({s, b});
  sums.narrow(0, 0, 2).add_((both * s).sum(1), scale * scale);
  sums.select(0, 2).add_((b * b).sum(0), scale * scale);
}

at::Tensor UnitWiseBlock::gradients(Alike blocks) const {
  std::vector<at::Tensor> scales, shifts;
  for (const CurvatureBlock* const block : blocks) {
    scales.push_back(to_dtype(block->layer().weight.grad()).flatten());
    const at::Tensor& bias = block->layer().bias;
    const bool shifted = bias.defined() && bias.grad().defined();
    shifts.push_back(shifted ? to_dtype(bias.grad()).flatten() : at::zeros_like(scales.back()));
  }
  return at::stack({at::stack(scales), at::stack(shifts)}, 1);
}

at::Tensor UnitWiseBlock::diagonal_inverses(const at::Tensor& packed,
                                            const at::Tensor& damping) const {
  if (options_.method == InverseMethod::eigen) return packed;
  return inverses_of(packed.view({packed.size(0), 3, -1}), damping).flatten(1);
}

at::Tensor UnitWiseBlock::precondition(const at::Tensor& gradients, const Inverse&,
                                       const Inverse& g, const at::Tensor& damping) const {
  const at::Tensor kept = g.matrix.view({gradients.size(0), 3, -1});
  const at::Tensor m = options_.method == InverseMethod::eigen ? inverses_of(kept, damping) : kept;
  const at::Tensor s = gradients.select(1, 0).unsqueeze(1), b = gradients.select(1, 1).unsqueeze(1);
  return (m.narrow(1, 0, 2) * s).add_(m.narrow(1, 1, 2) * b);
}

std::vector<std::pair<at::Tensor, at::Tensor>> UnitWiseBlock::parts(
    const at::Tensor& direction) const {
  return {{layer().weight, direction.select(1, 0)}, {layer().bias, direction.select(1, 1)}};
}

}  // namespace linerate::torch_adapter
