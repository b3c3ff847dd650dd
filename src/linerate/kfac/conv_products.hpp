// Sums of outer products of a convolution's patches, without the patches. Private to kfac and
// torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "linerate/kfac/counted_positions.hpp"

namespace linerate::torch_adapter {

/// Whether a convolution's patches share enough products. It needs stride 1, a kernel of several
/// taps, and channels enough for a product of matrices.
bool shares_products(const ConvGeometry& geometry, std::int64_t channels);

/// Adds factor A of a convolution without making its patches.
///
/// sum[d, d] += weight times the sum of the outer products of the patches of images[N, C, H, W] at
/// every position. Only the upper triangle is written. d = C kh kw, rows in the order of a weight
/// [out, C, kh, kw]. sum is f32 or f64, to which the images are converted, and has rows without
/// gaps.
///
/// With stride 1 the entry of channels c, c' and taps k, k' is a correlation of the input,
///   sum over u of x_c(u) x_c'(u + dilation (k' - k)).
/// Pairs of taps with the same distance k' - k sum the same terms, except at the input's borders. A
/// 3 x 3 kernel has 81 pairs of taps but 25 distances, and half of these are the transposes of the
/// others. So 13 products over the input are enough. The parts of the input that not all pairs see
/// are products of their own, so nothing is subtracted and no digits are lost.
///
/// An example in one dimension: 5 inputs, 3 taps, padding 1, 5 outputs. Tap 0 sees inputs 0 to 3,
/// tap 1 sees 0 to 4, and tap 2 sees 1 to 4. The three pairs of distance 0 all see inputs 1 to 3,
/// which are multiplied once for all three. Inputs 0 and 4 are products of their own, each for two
/// pairs.
void add_conv_products(const at::Tensor& images, const ConvGeometry& geometry, double weight,
                       const at::Tensor& sum);

/// The sum of the patches themselves, [C kh kw], in the sum's type.
at::Tensor conv_patch_sum(const at::Tensor& images, const ConvGeometry& geometry,
                          at::ScalarType type);

// The inputs that each output of a convolution sees. Private to kfac and torch_adapter.

/// input[N, C, H, W] f32 or f64 -> patches[C kh kw, N h w], where the output has h x w positions.
/// Rows are in the order of a weight [out, C, kh, kw], columns by sample. What lies in the padding
/// is 0.
at::Tensor conv_patches(const at::Tensor& input, const ConvGeometry& geometry);

// Which rows of a convolution's outputs a subsampled factor looks at, sample by sample. Private to
// torch_adapter.

/// Output rows [begin, end) of the samples first, first + every, ...
struct RowBand {
  std::int64_t first = 0, every = 1, begin = 0, end = 0;

  std::int64_t rows() const { return end - begin; }
};

/// Cuts `rows` output rows into `count` bands, or as many as there are rows. A sample shows one
/// band, its neighbour the next one, and `draw` picks the first. Over all draws every sample shows
/// every row once. So the sum over what is seen, times the number of bands (the result's size), has
/// the sum over all rows as its mean. Unlike single positions, adjacent rows leave a convolution
/// its shared products.
///
/// For example 6 rows, 3 bands, and a draw of 1. Samples 0, 3, ... show rows 2 and 3, samples 1, 4,
/// ... show rows 4 and 5, and samples 2, 5, ... show rows 0 and 1.
std::vector<RowBand> row_bands(std::int64_t rows, std::int64_t count, std::uint64_t draw);

/// The input rows that a band's outputs see, and the geometry of the convolution from those rows to
/// these outputs.
struct BandInput {
  std::int64_t begin = 0, rows = 0;
  ConvGeometry geometry;
};
BandInput input_of(const RowBand& band, const ConvGeometry& geometry, std::int64_t input_rows);

// Sums of outer products. Private to kfac and torch_adapter.

/// sum[d, d] += alpha columns columnsᵀ, its upper triangle alone. columns[d, n], any strides; sum
/// has rows without gaps.
void add_symmetric_product(const at::Tensor& columns, double alpha, const at::Tensor& sum);

// Products of large matrices. Private to kfac and torch_adapter.

/// x yᵀ, [n, m], of x[n, k] and y[m, k]. Large ones in f32 go through oneDNN, as LibTorch's
/// convolutions do. On an AMD processor with AVX-512 LibTorch's sgemm, MKL's, took 2.1 to 2.3 times
/// as long (docs/kfac.md).
[[nodiscard]] at::Tensor times_transpose(const at::Tensor& x, const at::Tensor& y);

}  // namespace linerate::torch_adapter
