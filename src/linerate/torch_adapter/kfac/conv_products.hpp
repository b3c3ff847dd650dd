// Sums of outer products of a convolution's patches, without the patches. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "linerate/torch_adapter/kfac/layer_input.hpp"

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

}  // namespace linerate::torch_adapter
