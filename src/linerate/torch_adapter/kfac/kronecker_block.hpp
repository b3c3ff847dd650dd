// Curvature of linear layers and convolutions. Private to torch_adapter.
#pragma once

#include <vector>

#include "linerate/torch_adapter/kfac/conv_products.hpp"
#include "linerate/torch_adapter/kfac/curvature_block.hpp"

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

// Curvature of embeddings. Private to torch_adapter.

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

// Curvature of the scales and shifts of norm layers. Private to torch_adapter.

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
