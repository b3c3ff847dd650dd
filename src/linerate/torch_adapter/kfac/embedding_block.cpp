// The block of embeddings. An input is a word's one-hot vector, so A is diagonal: how often each
// word was used. Only its diagonal is kept, [words], and dividing by it takes the place of an
// inverse. G is dense, as that of a linear layer. Padding words count for neither.
#include "linerate/torch_adapter/kfac/embedding_block.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>

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

/// Counts words on a device, without at::bincount(), which looks for the largest word on the host.
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

at::Tensor EmbeddingBlock::gradients(Alike blocks) const {
  std::vector<at::Tensor> all;
  for (const CurvatureBlock* const block : blocks)
    all.push_back(to_dtype(block->layer().weight.grad()).unsqueeze(0));
  return all.size() == 1 ? all.front() : at::cat(all);
}

at::Tensor EmbeddingBlock::diagonal_inverses(const at::Tensor& packed,
                                             const at::Tensor& damping) const {
  return options_.method == InverseMethod::eigen ? packed : (packed + damping).reciprocal();
}

at::Tensor EmbeddingBlock::precondition(const at::Tensor& gradients, const Inverse& a,
                                        const Inverse& g, const at::Tensor& damping) const {
  const at::Tensor p = a.matrix.unsqueeze(2);  // [n, words, 1]
  if (options_.method == InverseMethod::cholesky) return at::matmul(gradients * p, g.matrix);
  const at::Tensor rotated =
      at::matmul(gradients, g.matrix) / (p * g.values.unsqueeze(1) + damping);
  return at::matmul(rotated, g.matrix.mT());
}

std::vector<std::pair<at::Tensor, at::Tensor>> EmbeddingBlock::parts(
    const at::Tensor& direction) const {
  return {{layer().weight, direction[0]}};
}

}  // namespace linerate::torch_adapter
