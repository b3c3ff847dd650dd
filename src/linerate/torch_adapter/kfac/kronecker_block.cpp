// The blocks of linear layers and convolutions. They have two factors: A = sum of a aᵀ over inputs,
// and G = sum of g gᵀ over gradients of outputs. The collector calls add_input() and add_gradient()
// in the passes. The base class (curvature_block.cpp) averages, inverts and writes.
//
// A bias is one more input that is always 1. So A has one more row and column, with the inputs'
// sums and the number of positions. A layer in groups has a pair of factors for each group,
// [groups][d][d].
//
// A convolution is a linear layer on patches, one for each position of the output. The patches of a
// batch would take kernel-size times the memory of the images. So either products are shared
// between positions (conv_products.cpp), or patches are made in parts (conv_patches.cpp).
#include "linerate/torch_adapter/kfac/kronecker_block.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/torch_adapter/kfac/conv_products.hpp"
#include "linerate/torch_adapter/kfac/host_code.hpp"
#include "linerate/torch_adapter/kfac/large_product.hpp"
#include "linerate/torch_adapter/kfac/symmetric_product.hpp"

namespace linerate::torch_adapter {
namespace {

/// Patches are made, summed and dropped so many elements at a time. On a processor this is what its
/// caches hold. A device has memory for more, and each part costs it some launches.
constexpr std::int64_t kPatchElements = std::int64_t{1} << 22;
constexpr std::int64_t kPatchElementsThere = std::int64_t{1} << 26;

/// [C, H, W] is a batch of one.
at::Tensor batched(const at::Tensor& images) {
  return images.dim() == 3 ? images.unsqueeze(0) : images;
}

/// The output of a convolution of `dims` dimensions as images [N, C, H, W], in the form in which
/// LayerInput has inputs.
at::Tensor images_of(const at::Tensor& output, std::int64_t dims) {
  if (dims == 2) return batched(output);
  if (dims == 1) return batched(output.unsqueeze(-2));
  const at::Tensor volumes = output.dim() == 4 ? output.unsqueeze(0) : output;
  return volumes.transpose(1, 2).flatten(0, 1);
}

/// The columns [d, n] of rows [n, ..., d]: one a position, or with `reduce` one a sample.
at::Tensor columns_of(const at::Tensor& rows, bool reduce, bool mean) {
  const std::int64_t d = rows.size(-1);
  if (!reduce || rows.dim() <= 2) return rows.reshape({-1, d}).t();
  const at::Tensor by_sample = rows.flatten(1, -2);
  return (mean ? by_sample.mean(1) : by_sample.sum(1)).t();
}

}  // namespace

KroneckerBlock::KroneckerBlock(const LayerSpec& layer, const BlockOptions& options)
    : CurvatureBlock(layer, block_shape(layer), options) {}

void KroneckerBlock::add_input(const LayerInput& input) {
  if (is_conv())
    add_conv_input(input);
  else
    add_linear_input(to_dtype(input.tensor));
}

void KroneckerBlock::add_ones(int q, const at::Tensor& sum, double weight, double rows) {
  const at::Tensor whole = this->sum(FactorSide::a)[q];
  const std::int64_t d = inputs();
  whole.narrow(0, 0, d).select(1, d).add_(sum, weight);
  whole[d][d].add_(weight * rows);
}

void KroneckerBlock::add_input_columns(int q, const at::Tensor& columns, double weight) {
  add_symmetric_product(columns, weight, sum(FactorSide::a)[q]);
  if (layer().bias.defined())
    add_ones(q, columns.sum(1), weight, static_cast<double>(columns.size(1)));
}

void KroneckerBlock::add_linear_input(const at::Tensor& input) {
  const bool reduce = options_.shared_positions == SharedPositions::reduce;
  const at::Tensor columns = columns_of(input, reduce, /*mean=*/true);
  add_input_columns(0, columns, 1);
  count(FactorSide::a) += static_cast<double>(columns.size(1));
}

/// With subsampling, a sample shows one band of its rows. Each band is weighted by the number of
/// bands (row_bands.hpp). A is divided by all rows, as if all were seen.
void KroneckerBlock::add_conv_input(const LayerInput& input) {
  const at::Tensor images = batched(input.tensor.detach());
  const std::int64_t height = input.conv.outputs(0, images.size(2));
  const std::int64_t width = input.conv.outputs(1, images.size(3));
  const auto bands = this->bands(input, height);
  for (const RowBand& band : bands) {
    const at::Tensor samples = images.slice(0, band.first, std::nullopt, band.every);
    if (samples.size(0) == 0) continue;
    const BandInput seen = bands.size() == 1 ? BandInput{0, images.size(2), input.conv}
                                             : input_of(band, input.conv, images.size(2));
    const at::Tensor rows = samples.narrow(2, seen.begin, seen.rows);
    const auto weight = static_cast<double>(bands.size());
    shares(seen.geometry) ? add_conv_products(rows, seen.geometry, weight)
                          : add_conv_patches(rows, seen.geometry, weight);
  }
  const std::int64_t samples = images.size(0);
  const bool reduce = options_.shared_positions == SharedPositions::reduce;
  count(FactorSide::a) += static_cast<double>(reduce ? samples : samples * height * width);
}

bool KroneckerBlock::shares(const ConvGeometry& geometry) const {
  return runs_on_host(layer().weight) && options_.shared_positions == SharedPositions::expand &&
         shares_products(geometry, inputs() / (geometry.kernel[0] * geometry.kernel[1]));
}

std::vector<RowBand> KroneckerBlock::bands(const LayerInput& input, std::int64_t rows) const {
  const std::int64_t every = options_.conv_subsampling;
  return row_bands(rows, every * every, input.draw);
}

void KroneckerBlock::add_conv_products(const at::Tensor& images, const ConvGeometry& geometry,
                                       double weight) {
  const std::int64_t channels = images.size(1) / shape().groups;
  const at::Tensor whole = sum(FactorSide::a);
  const double rows = static_cast<double>(images.size(0) * geometry.outputs(0, images.size(2)) *
                                          geometry.outputs(1, images.size(3)));
  for (int q = 0; q < shape().groups; ++q) {
    const at::Tensor mine = images.narrow(1, q * channels, channels);
    torch_adapter::add_conv_products(mine, geometry, weight, whole[q]);
    if (layer().bias.defined())
      add_ones(q, conv_patch_sum(mine, geometry, whole.scalar_type()), weight, rows);
  }
}

void KroneckerBlock::add_conv_patches(const at::Tensor& images, const ConvGeometry& geometry,
                                      double weight) {
  const bool reduce = options_.shared_positions == SharedPositions::reduce;
  const std::int64_t positions =
      geometry.outputs(0, images.size(2)) * geometry.outputs(1, images.size(3));
  const std::int64_t samples = images.size(0), channels = images.size(1) / shape().groups;
  const std::int64_t most = runs_on_host(images) ? kPatchElements : kPatchElementsThere;
  const std::int64_t at_once =
      std::max<std::int64_t>(1, most / std::max<std::int64_t>(1, inputs() * positions));
  for (std::int64_t n = 0; n < samples; n += at_once) {
    const std::int64_t size = std::min(at_once, samples - n);
    const at::Tensor some = to_dtype(images.narrow(0, n, size));
    for (int q = 0; q < shape().groups; ++q) {
      at::Tensor columns = conv_patches(some.narrow(1, q * channels, channels), geometry);
      if (reduce) columns = columns.view({columns.size(0), size, positions}).mean(2);
      add_input_columns(q, columns, weight);
    }
  }
}

void KroneckerBlock::add_gradient(const LayerInput& input, const at::Tensor& gradient,
                                  double scale) {
  const bool reduce = options_.shared_positions == SharedPositions::reduce;
  const at::Tensor whole = sum(FactorSide::g);
  const at::Tensor g = to_dtype(gradient);
  if (!is_conv()) {
    add_symmetric_product(columns_of(g, reduce, /*mean=*/false), scale * scale, whole[0]);
    return;
  }
  const at::Tensor images = images_of(g, layer().weight.dim() - 2);
  const auto bands = this->bands(input, images.size(2));
  for (const RowBand& band : bands)
    add_output_columns(
        images.slice(0, band.first, std::nullopt, band.every).narrow(2, band.begin, band.rows()),
        scale * scale * static_cast<double>(bands.size()));
}

void KroneckerBlock::add_output_columns(const at::Tensor& images, double weight) {
  const bool reduce = options_.shared_positions == SharedPositions::reduce;
  const at::Tensor whole = sum(FactorSide::g);
  const std::int64_t d = shape().g;
  for (int q = 0; q < shape().groups; ++q) {
    const at::Tensor mine = images.narrow(1, q * d, d);
    const at::Tensor columns =
        reduce ? mine.sum({2, 3}).t() : mine.transpose(0, 1).reshape({d, -1});
    add_symmetric_product(columns, weight, whole[q]);
  }
}

/// The layers' gradients as matrices, [n][groups][outputs][inputs], the bias as the last column.
at::Tensor KroneckerBlock::gradients(Alike blocks) const {
  const std::int64_t groups = shape().groups, g = shape().g, d = inputs();
  const bool has_bias = layer().bias.defined();
  std::vector<at::Tensor> weights, biases;
  for (const CurvatureBlock* const block : blocks) {
    const LayerSpec& one = block->layer();
    const at::Tensor& weight = one.weight.grad();
    weights.push_back(to_dtype(one.transposed ? weight.t() : weight).reshape({groups, g, d}));
    if (!has_bias) continue;
    const at::Tensor& bias = one.bias.grad();
    biases.push_back(bias.defined() ? to_dtype(bias).reshape({groups, g, 1})
                                    : at::zeros({groups, g, 1}, weights.back().options()));
  }
  const at::Tensor matrix = weights.size() == 1 ? weights.front() : at::cat(weights);
  return has_bias ? at::cat({matrix, biases.size() == 1 ? biases.front() : at::cat(biases)}, 2)
                  : matrix;
}

at::Tensor KroneckerBlock::diagonal_inverses(const at::Tensor&, const at::Tensor&) const {
  throw InternalError("both factors are dense");
}

/// Cholesky has the damping in the inverses: G^-1 gradient A^-1. Eigen divides exactly, in the
/// eigenvectors' basis. Let A = Va diag(a) Vaᵀ and G = Vg diag(g) Vgᵀ. Then entry (i, j) of the
/// rotated gradient Vgᵀ gradient Va is divided by g_i a_j + lambda.
at::Tensor KroneckerBlock::precondition(const at::Tensor& gradients, const Inverse& a,
                                        const Inverse& g, const at::Tensor& damping) const {
  if (options_.method == InverseMethod::cholesky) {
    if (gradients.size(0) > 1) return at::matmul(at::matmul(g.matrix, gradients), a.matrix);
    // Inverses are symmetric bit for bit, so either factor may be used as its own transpose.
    return times_transpose(times_transpose(g.matrix[0], gradients[0].t()), a.matrix[0])
        .unsqueeze(0);
  }
  at::Tensor rotated = at::matmul(at::matmul(g.matrix.mT(), gradients), a.matrix);
  rotated.div_(g.values.unsqueeze(2) * a.values.unsqueeze(1) + damping);
  return at::matmul(at::matmul(g.matrix, rotated), a.matrix.mT());
}

std::vector<std::pair<at::Tensor, at::Tensor>> KroneckerBlock::parts(
    const at::Tensor& direction) const {
  const at::Tensor of_weight = direction.narrow(2, 0, inputs());
  return {{layer().weight, layer().transposed ? of_weight.transpose(1, 2) : of_weight},
          {layer().bias, layer().bias.defined() ? direction.select(2, inputs()) : at::Tensor()}};
}

}  // namespace linerate::torch_adapter
