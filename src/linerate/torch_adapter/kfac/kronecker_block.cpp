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
// between positions (conv_products.cpp), or patches are made in parts (conv_products.cpp).
#include "linerate/torch_adapter/kfac/kronecker_block.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/torch_adapter/kfac/conv_products.hpp"
#include "linerate/torch_adapter/kfac/factor_inverse.hpp"

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
/// bands (conv_products.hpp). A is divided by all rows, as if all were seen.
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

// The block of embeddings. An input is a word's one-hot vector, so A is diagonal: how often each
// word was used. Only its diagonal is kept, [words], and dividing by it takes the place of an
// inverse. G is dense, as that of a linear layer. Padding words count for neither.

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

// The block of norm layers. Each unit has a scale and a shift, so its part of the Fisher matrix is
// 2 x 2. No other unit matters to it. Let s be the sample's gradient of the scale, and b that of
// the shift. The three sums are those of s s, s b and b b: [3][units].

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

CurvatureBlock::Shape block_shape(const LayerSpec& layer) {
  const at::Tensor& w = layer.weight;
  switch (layer.kind) {
    case LayerKind::linear:
    case LayerKind::conv: {
      const std::int64_t out = w.size(layer.transposed ? 1 : 0);
      return {BlockKind::kronecker, w.numel() / out + (layer.bias.defined() ? 1 : 0),
              out / layer.groups, layer.groups};
    }
    case LayerKind::embedding:
      return {BlockKind::embedding, w.size(0), w.size(1), 1};
    case LayerKind::norm:
      break;
  }
  return {BlockKind::unit_wise, 0, w.numel(), 1};
}

std::unique_ptr<CurvatureBlock> make_block(const LayerSpec& layer, const BlockOptions& options) {
  switch (block_shape(layer).kind) {
    case BlockKind::kronecker:
      return std::make_unique<KroneckerBlock>(layer, options);
    case BlockKind::embedding:
      return std::make_unique<EmbeddingBlock>(layer, options);
    case BlockKind::unit_wise:
      break;
  }
  return std::make_unique<UnitWiseBlock>(layer, options);
}

}  // namespace linerate::torch_adapter
