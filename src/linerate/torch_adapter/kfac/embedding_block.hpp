// Curvature of embeddings. Private to torch_adapter.
#pragma once

#include "linerate/torch_adapter/kfac/curvature_block.hpp"

namespace linerate::torch_adapter {

/// K-FAC of embeddings. Inputs are one-hot vectors, so A is diagonal: the words' frequencies p. For
/// example the words 2, 0, 2, 1 give p = (1/4, 1/4, 1/2). A rare word has a small p, so its row of
/// the gradient is divided by little and moves far. A padding index counts on neither side.
class EmbeddingBlock : public CurvatureBlock {
 public:
  EmbeddingBlock(const LayerSpec& layer, const BlockOptions& options);

  void add_input(const LayerInput& input) override;
  void add_gradient(const LayerInput& input, const at::Tensor& gradient, double scale) override;
  /// The input tells which rows of the gradient belong to the padding index.
  bool keeps_input() const override { return true; }
  at::Tensor gradients(Alike blocks) const override;

 protected:
  /// Inverses of A: 1 / (p + pi gamma), or p itself for eigen.
  at::Tensor diagonal_inverses(const at::Tensor& packed, const at::Tensor& damping) const override;
  at::Tensor precondition(const at::Tensor& gradients, const Inverse& a, const Inverse& g,
                          const at::Tensor& damping) const override;
  std::vector<std::pair<at::Tensor, at::Tensor>> parts(const at::Tensor& direction) const override;

 private:
  void enqueue_input(const LayerInput& input);
};

}  // namespace linerate::torch_adapter
