#include "linerate/torch_adapter/kfac/embedding_block.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>

#include "linerate/torch_adapter/kfac/host_code.hpp"
#include "linerate/torch_adapter/kfac/symmetric_product.hpp"

namespace linerate::torch_adapter {

EmbeddingBlock::EmbeddingBlock(const LayerSpec& layer, const BlockOptions& options)
    : CurvatureBlock(layer, block_shape(layer), options) {}

void EmbeddingBlock::add_input(const LayerInput& input) {
  if (!runs_on_host(input.tensor)) return enqueue_input(input);
  at::Tensor counts = at::bincount(input.tensor.flatten(), {}, shape().a);
  if (input.padding_index >= 0) counts[input.padding_index].zero_();
  sum(FactorSide::a).add_(counts);
  count(FactorSide::a) += counts.sum().item<double>();
}

/// at::bincount() looks for the largest word on the host.
void EmbeddingBlock::enqueue_input(const LayerInput& input) {
  const at::Tensor words = input.tensor.flatten();
  const at::Tensor counts = words.ne(input.padding_index).to(dtype());
  sum(FactorSide::a).index_add_(0, words, counts);
  count_there(FactorSide::a, counts.sum(at::kDouble));
}

void EmbeddingBlock::add_gradient(const LayerInput& input, const at::Tensor& gradient,
                                  double scale) {
  at::Tensor rows = to_dtype(gradient).reshape({-1, shape().g});
  if (input.padding_index >= 0)
    rows = rows * (input.tensor.flatten() != input.padding_index).unsqueeze(1);
  if (options_.shared_positions == SharedPositions::reduce && input.tensor.dim() > 1)
    rows = rows.view(gradient.sizes()).flatten(1, -2).sum(1);
  add_symmetric_product(rows.t(), scale * scale, sum(FactorSide::g)[0]);
}

std::optional<CurvatureBlock::Inverse> EmbeddingBlock::invert(FactorSide side,
                                                              const Sources& sources,
                                                              double damping) const {
  if (side == FactorSide::g) return CurvatureBlock::invert(side, sources, damping);
  Tried tried =
      try_inverse(side, sources, at::full({}, damping, tensor_options().dtype(at::kDouble)));
  if (!tried.succeeded.item<bool>()) return std::nullopt;
  return std::move(tried.inverse);
}

CurvatureBlock::Tried EmbeddingBlock::try_inverse(FactorSide side, const Sources& sources,
                                                  const at::Tensor& damping) const {
  if (side == FactorSide::g) return CurvatureBlock::try_inverse(side, sources, damping);
  const at::Tensor found =
      options_.method == InverseMethod::eigen
          ? sources.a.clone()
          : (sources.a + factored_damping(side, sources, damping)[0]).reciprocal();
  return {{found, {}}, at::isfinite(found).all()};
}

at::Tensor EmbeddingBlock::gradient() const {
  const at::Tensor& grad = layer().weight.grad();
  return grad.defined() ? to_dtype(grad) : at::Tensor();
}

at::Tensor EmbeddingBlock::precondition(const at::Tensor& gradient,
                                        const at::Tensor& damping) const {
  const at::Tensor a = inverse(FactorSide::a).matrix.unsqueeze(1);
  const Inverse& g = inverse(FactorSide::g);
  if (options_.method == InverseMethod::cholesky) return at::matmul(gradient * a, g.matrix[0]);
  const at::Tensor rotated = at::matmul(gradient, g.matrix[0]) / (a * g.values[0] + damping);
  return at::matmul(rotated, g.matrix[0].t());
}

void EmbeddingBlock::write(const at::Tensor& direction, double nu) const {
  write_part(layer().weight, direction, nu);
}

}  // namespace linerate::torch_adapter
