// Curvature of linear layers and convolutions. Private to torch_adapter.
#pragma once

#include <vector>

#include "linerate/torch_adapter/kfac/conv_patches.hpp"
#include "linerate/torch_adapter/kfac/curvature_block.hpp"
#include "linerate/torch_adapter/kfac/row_bands.hpp"

namespace linerate::torch_adapter {

/// F ~ G x A. A grouped convolution has `groups` pairs, each of its own channels.
///   expand: A = sum a aᵀ / rows, G = sum g gᵀ / terms over all samples and positions;
///   reduce: a is the mean, g the sum over a sample's positions.
/// a ends with a 1 if the layer has a bias. (expand and reduce: Eschenhagen et al. 2023;
/// convolutions: Grosse & Martens 2016.)
class KroneckerBlock : public CurvatureBlock {
 public:
  KroneckerBlock(const LayerSpec& layer, const BlockOptions& options);

  void add_input(const LayerInput& input) override;
  void add_gradient(const LayerInput& input, const at::Tensor& gradient, double scale) override;
  at::Tensor gradients(Alike blocks) const override;

 protected:
  at::Tensor diagonal_inverses(const at::Tensor& packed, const at::Tensor& damping) const override;
  at::Tensor precondition(const at::Tensor& gradients, const Inverse& a, const Inverse& g,
                          const at::Tensor& damping) const override;
  std::vector<std::pair<at::Tensor, at::Tensor>> parts(const at::Tensor& direction) const override;

 private:
  bool is_conv() const { return layer().kind == LayerKind::conv; }
  void add_linear_input(const at::Tensor& input);
  void add_conv_input(const LayerInput& input);
  /// Add the input of the rows that a band shows: add_conv_products() by products that taps share,
  /// add_conv_patches() by patches.
  void add_conv_products(const at::Tensor& images, const ConvGeometry& geometry, double weight);
  void add_conv_patches(const at::Tensor& images, const ConvGeometry& geometry, double weight);
  void add_output_columns(const at::Tensor& images, double weight);
  /// Whether factor A is made of shared products (conv_products.hpp).
  bool shares(const ConvGeometry& geometry) const;
  std::vector<RowBand> bands(const LayerInput& input, std::int64_t rows) const;
  /// Adds the bias's row and column, whose input is 1 at each of `rows` rows. sum[inputs]: the sum
  /// of the inputs.
  void add_ones(int q, const at::Tensor& sum, double weight, double rows);
  /// Adds columns[inputs, n] of group q, which lack the bias's 1.
  void add_input_columns(int q, const at::Tensor& columns, double weight);
  std::int64_t inputs() const { return shape().a - (layer().bias.defined() ? 1 : 0); }
};

}  // namespace linerate::torch_adapter
