// Curvature of the scales and shifts of norm layers. Private to torch_adapter.
#pragma once

#include "linerate/torch_adapter/kfac/curvature_block.hpp"

namespace linerate::torch_adapter {

/// K-FAC of norm layers. Each unit's scale and shift have a 2 x 2 block of their own: F = mean of
/// (s, b) (s, b)ᵀ. Here s = sum x g and b = sum g over the positions of one sample. g is the
/// gradient of the output, and x is the normalised input. For a layer norm this is the empirical
/// Fisher's block. For a batch norm it ignores how samples affect each other through the batch's
/// statistics.
class UnitWiseBlock : public CurvatureBlock {
 public:
  UnitWiseBlock(const LayerSpec& layer, const BlockOptions& options);

  void add_input(const LayerInput&) override {}
  void add_gradient(const LayerInput& input, const at::Tensor& gradient, double scale) override;
  bool keeps_input() const override { return true; }
  at::Tensor gradients(Alike blocks) const override;

 protected:
  /// [n, 3 units] of (F + damping I)^-1 or, for eigen, F itself.
  at::Tensor diagonal_inverses(const at::Tensor& packed, const at::Tensor& damping) const override;
  at::Tensor precondition(const at::Tensor& gradients, const Inverse& a, const Inverse& g,
                          const at::Tensor& damping) const override;
  std::vector<std::pair<at::Tensor, at::Tensor>> parts(const at::Tensor& direction) const override;
};

}  // namespace linerate::torch_adapter
