#include "linerate/torch_adapter/kfac/unit_wise_block.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

namespace linerate::torch_adapter {
namespace {

/// [samples, units] of a tensor shaped like a norm layer's output: the sum over a sample's
/// positions.
at::Tensor by_sample(const at::Tensor& values, const LayerInput& input) {
  if (!input.is_layer_norm)  // [N, C, positions...]
    return values.dim() == 2 ? values : values.flatten(2).sum(2);
  const std::int64_t leading = values.dim() - input.normalized_dims;
  // Computed, not left to reshape(): a batch may have no samples.
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

/// (F + damping I)^-1, entry by entry; its determinant is at least damping².
at::Tensor inverse_of(const at::Tensor& f, const at::Tensor& damping) {
  const at::Tensor first = f[0] + damping, second = f[2] + damping;
  const at::Tensor determinant = first * second - f[1] * f[1];
  return at::stack({second / determinant, -f[1] / determinant, first / determinant});
}

}  // namespace

UnitWiseBlock::UnitWiseBlock(const LayerSpec& layer, const BlockOptions& options)
    : CurvatureBlock(layer, block_shape(layer), options) {}

void UnitWiseBlock::add_gradient(const LayerInput& input, const at::Tensor& gradient,
                                 double scale) {
  const at::Tensor g = to_dtype(gradient) * scale;
  const at::Tensor s = by_sample(g * normalized(to_dtype(input.tensor), input), input);
  const at::Tensor b = layer().bias.defined() ? by_sample(g, input) : at::zeros_like(s);
  sum(FactorSide::g).add_(at::stack({(s * s).sum(0), (s * b).sum(0), (b * b).sum(0)}).flatten());
}

std::optional<CurvatureBlock::Inverse> UnitWiseBlock::invert(FactorSide side,
                                                             const Sources& sources,
                                                             double damping) const {
  Tried tried =
      try_inverse(side, sources, at::full({}, damping, tensor_options().dtype(at::kDouble)));
  if (!tried.succeeded.item<bool>()) return std::nullopt;
  return std::move(tried.inverse);
}

CurvatureBlock::Tried UnitWiseBlock::try_inverse(FactorSide, const Sources& sources,
                                                 const at::Tensor& damping) const {
  const at::Tensor f = sources.g.view({3, -1});
  const at::Tensor found =
      options_.method == InverseMethod::eigen ? f.clone() : inverse_of(f, damping);
  return {{found, {}}, at::isfinite(found).all()};
}

at::Tensor UnitWiseBlock::gradient() const {
  const at::Tensor& scale = layer().weight.grad();
  if (!scale.defined()) return {};
  const at::Tensor s = to_dtype(scale).flatten();
  const bool shifted = layer().bias.defined() && layer().bias.grad().defined();
  return at::stack({s, shifted ? to_dtype(layer().bias.grad()).flatten() : at::zeros_like(s)});
}

at::Tensor UnitWiseBlock::precondition(const at::Tensor& gradient,
                                       const at::Tensor& damping) const {
  const at::Tensor kept = inverse(FactorSide::g).matrix.view({3, -1});
  const at::Tensor m = options_.method == InverseMethod::eigen ? inverse_of(kept, damping) : kept;
  return at::stack(
      {m[0] * gradient[0] + m[1] * gradient[1], m[1] * gradient[0] + m[2] * gradient[1]});
}

void UnitWiseBlock::write(const at::Tensor& direction, double nu) const {
  write_part(layer().weight, direction[0], nu);
  write_part(layer().bias, direction[1], nu);
}

}  // namespace linerate::torch_adapter
