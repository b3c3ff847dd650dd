// The blocks of each kind of layer: what they add to the base class (curvature_block.cpp), which
// averages, inverts and writes. The collector calls add_input() and add_gradient() in the passes.
#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <vector>

#include "linerate/core/error.hpp"
#include "linerate/kfac/conv_products.hpp"
#include "linerate/kfac/curvature_block.hpp"
#include "linerate/kfac/factor_inverse.hpp"

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

/// The block of linear layers and convolutions: F ~ G x A.
///   expand: A = sum a aᵀ / rows, G = sum g gᵀ / terms over all samples and positions;
///   reduce: a is the mean, g the sum over a sample's positions.
/// a ends with a 1 if the layer has a bias. So A has one more row and column, with the inputs' sums
/// and the number of positions. A grouped convolution has `groups` pairs of factors,
/// [groups][d][d], each of its own channels. (expand and reduce: Eschenhagen et al. 2023;
/// convolutions: Grosse & Martens 2016.)
///
/// A convolution is a linear layer on patches, one for each position of the output. The patches of
/// a batch would take kernel-size times the memory of the images. So either products are shared
/// between positions, or patches are made in parts (conv_products.cpp has both).
class KroneckerBlock final : public CurvatureBlock {
 public:
  using CurvatureBlock::CurvatureBlock;

  void add_input(const LayerInput& input) override {
    if (is_conv()) return add_conv_input(input);
    const at::Tensor columns = columns_of(to_dtype(input.tensor), reduces(), /*mean=*/true);
    add_input_columns(0, columns, 1);
    count(FactorSide::a) += static_cast<double>(columns.size(1));
  }

  void add_gradient(const LayerInput& input, const at::Tensor& gradient, double scale) override {
    const at::Tensor whole = sum(FactorSide::g);
    const at::Tensor g = to_dtype(gradient);
    if (!is_conv()) {
      add_symmetric_product(columns_of(g, reduces(), /*mean=*/false), scale * scale, whole[0]);
      return;
    }
    const at::Tensor images = images_of(g, layer().weight.dim() - 2);
    const auto bands = this->bands(input, images.size(2));
    for (const RowBand& band : bands)
      add_output_columns(
          images.slice(0, band.first, std::nullopt, band.every).narrow(2, band.begin, band.rows()),
          scale * scale * static_cast<double>(bands.size()));
  }

  /// The layers' gradients as matrices, [n][groups][outputs][inputs], the bias as the last column.
  at::Tensor gradients(Alike blocks) const override {
    const std::int64_t groups = shape().groups, g = shape().g, d = inputs();
    std::vector<at::Tensor> weights, biases;
    for (const CurvatureBlock* const block : blocks) {
      const LayerSpec& one = block->layer();
      const at::Tensor& weight = one.weight.grad();
      weights.push_back(to_dtype(one.transposed ? weight.t() : weight).reshape({groups, g, d}));
      if (!has_bias()) continue;
      const at::Tensor& bias = one.bias.grad();
      biases.push_back(bias.defined() ? to_dtype(bias).reshape({groups, g, 1})
                                      : at::zeros({groups, g, 1}, weights.back().options()));
    }
    return has_bias() ? at::cat({joined(weights), joined(biases)}, 2) : joined(weights);
  }

 protected:
  at::Tensor diagonal_inverses(const at::Tensor&, const at::Tensor&) const override {
    throw InternalError("both factors are dense");
  }

  /// Cholesky has the damping in the inverses: G^-1 gradient A^-1. Eigen divides exactly, in the
  /// eigenvectors' basis. Let A = Va diag(a) Vaᵀ and G = Vg diag(g) Vgᵀ. Then entry (i, j) of the
  /// rotated gradient Vgᵀ gradient Va is divided by g_i a_j + lambda.
  at::Tensor precondition(const at::Tensor& gradients, const Inverse& a, const Inverse& g,
                          const at::Tensor& damping) const override {
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

  Parts parts(const at::Tensor& direction) const override {
    const at::Tensor of_weight = direction.narrow(2, 0, inputs());
    return {{layer().weight, layer().transposed ? of_weight.transpose(1, 2) : of_weight},
            {layer().bias, has_bias() ? direction.select(2, inputs()) : at::Tensor()}};
  }

 private:
  bool is_conv() const { return layer().kind == LayerKind::conv; }
  bool has_bias() const { return layer().bias.defined(); }
  std::int64_t inputs() const { return shape().a - (has_bias() ? 1 : 0); }

  /// Adds the bias's row and column, whose input is 1 at each of `rows` rows. sum[inputs]: the sum
  /// of the inputs.
  void add_ones(int q, const at::Tensor& sum, double weight, double rows) {
    const at::Tensor whole = this->sum(FactorSide::a)[q];
    const std::int64_t d = inputs();
    whole.narrow(0, 0, d).select(1, d).add_(sum, weight);
    whole[d][d].add_(weight * rows);
  }

  /// Adds columns[inputs, n] of group q, which lack the bias's 1.
  void add_input_columns(int q, const at::Tensor& columns, double weight) {
    add_symmetric_product(columns, weight, sum(FactorSide::a)[q]);
    if (has_bias()) add_ones(q, columns.sum(1), weight, static_cast<double>(columns.size(1)));
  }

  /// With subsampling, a sample shows one band of its rows. Each band is weighted by the number of
  /// bands (conv_products.hpp). A is divided by all rows, as if all were seen.
  void add_conv_input(const LayerInput& input) {
    const at::Tensor images = batched(input.tensor.detach());
    const std::int64_t height = input.conv[0].outputs(images.size(2));
    const std::int64_t width = input.conv[1].outputs(images.size(3));
    const auto bands = this->bands(input, height);
    for (const RowBand& band : bands) {
      const at::Tensor samples = images.slice(0, band.first, std::nullopt, band.every);
      if (samples.size(0) == 0) continue;
      const BandInput seen = bands.size() == 1 ? BandInput{0, images.size(2), input.conv}
                                               : input_of(band, input.conv, images.size(2));
      const at::Tensor rows = samples.narrow(2, seen.begin, seen.rows);
      const auto weight = static_cast<double>(bands.size());
      shares(seen.geometry) ? add_products(rows, seen.geometry, weight)
                            : add_patches(rows, seen.geometry, weight);
    }
    const std::int64_t samples = images.size(0);
    count(FactorSide::a) += static_cast<double>(reduces() ? samples : samples * height * width);
  }

  /// Whether factor A is made of shared products (conv_products.hpp).
  bool shares(const ConvGeometry& geometry) const {
    return runs_on_host(layer().weight) && !reduces() &&
           shares_products(geometry, inputs() / (geometry[0].kernel * geometry[1].kernel));
  }

  std::vector<RowBand> bands(const LayerInput& input, std::int64_t rows) const {
    const std::int64_t every = options_.conv_subsampling;
    return row_bands(rows, every * every, input.draw);
  }

  /// Adds the input of the rows that a band shows, by products that taps share.
  void add_products(const at::Tensor& images, const ConvGeometry& geometry, double weight) {
    const std::int64_t channels = images.size(1) / shape().groups;
    const at::Tensor whole = sum(FactorSide::a);
    const double rows = static_cast<double>(images.size(0) * geometry[0].outputs(images.size(2)) *
                                            geometry[1].outputs(images.size(3)));
    for (int q = 0; q < shape().groups; ++q) {
      const at::Tensor mine = images.narrow(1, q * channels, channels);
      add_conv_products(mine, geometry, weight, whole[q]);
      if (has_bias())
        add_ones(q, conv_patch_sum(mine, geometry, whole.scalar_type()), weight, rows);
    }
  }

  /// The same by patches.
  void add_patches(const at::Tensor& images, const ConvGeometry& geometry, double weight) {
    const std::int64_t positions =
        geometry[0].outputs(images.size(2)) * geometry[1].outputs(images.size(3));
    const std::int64_t samples = images.size(0), channels = images.size(1) / shape().groups;
    const std::int64_t most = runs_on_host(images) ? kPatchElements : kPatchElementsThere;
    const std::int64_t at_once =
        std::max<std::int64_t>(1, most / std::max<std::int64_t>(1, inputs() * positions));
    for (std::int64_t n = 0; n < samples; n += at_once) {
      const std::int64_t size = std::min(at_once, samples - n);
      const at::Tensor some = to_dtype(images.narrow(0, n, size));
      for (int q = 0; q < shape().groups; ++q) {
        at::Tensor columns = conv_patches(some.narrow(1, q * channels, channels), geometry);
        if (reduces()) columns = columns.view({columns.size(0), size, positions}).mean(2);
        add_input_columns(q, columns, weight);
      }
    }
  }

  void add_output_columns(const at::Tensor& images, double weight) {
    const at::Tensor whole = sum(FactorSide::g);
    const std::int64_t d = shape().g;
    for (int q = 0; q < shape().groups; ++q) {
      const at::Tensor mine = images.narrow(1, q * d, d);
      const at::Tensor columns =
          reduces() ? mine.sum({2, 3}).t() : mine.transpose(0, 1).reshape({d, -1});
      add_symmetric_product(columns, weight, whole[q]);
    }
  }
};

/// The block of embeddings. An input is a word's one-hot vector, so A is diagonal: the words'
/// frequencies p. For example the words 2, 0, 2, 1 give p = (1/4, 1/4, 1/2). Only the diagonal is
/// kept, [words], and dividing by it takes the place of an inverse. A rare word has a small p, so
/// its row of the gradient is divided by little and moves far. G is dense, as that of a linear
/// layer. A padding index counts on neither side.
class EmbeddingBlock final : public CurvatureBlock {
 public:
  using CurvatureBlock::CurvatureBlock;

  /// Counts words, and reads no value: at::bincount() would look for the largest word on the host.
  void add_input(const LayerInput& input) override {
    const at::Tensor words = input.tensor.flatten();
    const at::Tensor counts = words.ne(input.padding_index).to(dtype());
    sum(FactorSide::a).index_add_(0, words, counts);
    count_there(FactorSide::a, counts.sum(at::kDouble));
  }

  void add_gradient(const LayerInput& input, const at::Tensor& gradient, double scale) override {
    at::Tensor rows = to_dtype(gradient).reshape({-1, shape().g});
    if (input.padding_index >= 0)
      rows = rows * (input.tensor.flatten() != input.padding_index).unsqueeze(1);
    if (reduces() && input.tensor.dim() > 1)
      rows = rows.view(gradient.sizes()).flatten(1, -2).sum(1);
    add_symmetric_product(rows.t(), scale * scale, sum(FactorSide::g)[0]);
  }

  /// The input tells which rows of the gradient belong to the padding index.
  bool keeps_input() const override { return true; }

  at::Tensor gradients(Alike blocks) const override {
    std::vector<at::Tensor> all;
    for (const CurvatureBlock* const block : blocks)
      all.push_back(to_dtype(block->layer().weight.grad()).unsqueeze(0));
    return joined(all);
  }

 protected:
  /// Inverses of A: 1 / (p + pi gamma), or p itself for eigen.
  at::Tensor diagonal_inverses(const at::Tensor& packed, const at::Tensor& damping) const override {
    return options_.method == InverseMethod::eigen ? packed : (packed + damping).reciprocal();
  }

  at::Tensor precondition(const at::Tensor& gradients, const Inverse& a, const Inverse& g,
                          const at::Tensor& damping) const override {
    const at::Tensor p = a.matrix.unsqueeze(2);  // [n, words, 1]
    if (options_.method == InverseMethod::cholesky) return at::matmul(gradients * p, g.matrix);
    const at::Tensor rotated =
        at::matmul(gradients, g.matrix) / (p * g.values.unsqueeze(1) + damping);
    return at::matmul(rotated, g.matrix.mT());
  }

  Parts parts(const at::Tensor& direction) const override {
    return {{layer().weight, direction[0]}};
  }
};

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

/// The block of norm layers. Each unit's scale and shift have a 2 x 2 block of their own, and no
/// other unit matters to it: F = mean of (s, b) (s, b)ᵀ. Here s = sum x g and b = sum g over the
/// positions of one sample. g is the gradient of the output, and x is the normalised input. The
/// three sums are those of s s, s b and b b: [3][units]. For a layer norm this is the empirical
/// Fisher's block. For a batch norm it ignores how samples affect each other through the batch's
/// statistics.
class UnitWiseBlock final : public CurvatureBlock {
 public:
  using CurvatureBlock::CurvatureBlock;

  void add_input(const LayerInput&) override {}

  /// The gradient of a unit's scale is the output's gradient times the normalized input, summed
  /// over the sample's positions. That of its shift is the output's gradient, summed likewise.
  void add_gradient(const LayerInput& input, const at::Tensor& gradient, double scale) override {
    const at::Tensor g = to_dtype(gradient);
    const at::Tensor s = by_sample(g * normalized(to_dtype(input.tensor), input), input);
    const at::Tensor b = layer().bias.defined() ? by_sample(g, input) : at::zeros_like(s);
    const at::Tensor sums = sum(FactorSide::g).view({3, -1});
    const at::Tensor both = at::stack({s, b});
    sums.narrow(0, 0, 2).add_((both * s).sum(1), scale * scale);
    sums.select(0, 2).add_((b * b).sum(0), scale * scale);
  }

  bool keeps_input() const override { return true; }

  at::Tensor gradients(Alike blocks) const override {
    std::vector<at::Tensor> scales, shifts;
    for (const CurvatureBlock* const block : blocks) {
      scales.push_back(to_dtype(block->layer().weight.grad()).flatten());
      const at::Tensor& bias = block->layer().bias;
      const bool shifted = bias.defined() && bias.grad().defined();
      shifts.push_back(shifted ? to_dtype(bias.grad()).flatten() : at::zeros_like(scales.back()));
    }
    return at::stack({at::stack(scales), at::stack(shifts)}, 1);
  }

 protected:
  /// [n, 3 units] of (F + damping I)^-1 or, for eigen, F itself.
  at::Tensor diagonal_inverses(const at::Tensor& packed, const at::Tensor& damping) const override {
    if (options_.method == InverseMethod::eigen) return packed;
    return inverses_of(packed.view({packed.size(0), 3, -1}), damping).flatten(1);
  }

  at::Tensor precondition(const at::Tensor& gradients, const Inverse&, const Inverse& g,
                          const at::Tensor& damping) const override {
    const at::Tensor kept = g.matrix.view({gradients.size(0), 3, -1});
    const at::Tensor m =
        options_.method == InverseMethod::eigen ? inverses_of(kept, damping) : kept;
    const at::Tensor s = gradients.select(1, 0).unsqueeze(1),
                     b = gradients.select(1, 1).unsqueeze(1);
    return (m.narrow(1, 0, 2) * s).add_(m.narrow(1, 1, 2) * b);
  }

  Parts parts(const at::Tensor& direction) const override {
    return {{layer().weight, direction.select(1, 0)}, {layer().bias, direction.select(1, 1)}};
  }
};

}  // namespace

doc::Block block_shape(const LayerSpec& layer) {
  const at::Tensor& w = layer.weight;
  switch (layer.kind) {
    case LayerKind::linear:
    case LayerKind::conv: {
      const std::int64_t out = w.size(layer.transposed ? 1 : 0);
      return {.a = w.numel() / out + (layer.bias.defined() ? 1 : 0),
              .g = out / layer.groups,
              .groups = layer.groups};
    }
    case LayerKind::embedding:
      return {.kind = BlockKind::embedding, .a = w.size(0), .g = w.size(1)};
    case LayerKind::norm:
      break;
  }
  return {.kind = BlockKind::unit_wise, .g = w.numel()};
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
