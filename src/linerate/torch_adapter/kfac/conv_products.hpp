// Sums of outer products of a convolution's patches, without the patches. Private to torch_adapter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "linerate/torch_adapter/kfac/layer_input.hpp"

namespace linerate::torch_adapter {

/// Whether a convolution's patches share enough products: stride 1, a kernel of several taps, and
/// channels enough for a product of matrices.
bool shares_products(const ConvGeometry& geometry, std::int64_t channels);

/// sum[d, d] += weight times the sum of the outer products of the patches of images[N, C, H, W] at
/// every position, its upper triangle alone; d = C kh kw, rows in the order of a weight [out, C,
/// kh, kw]. sum is f32 or f64, which the images are converted to, and has rows without gaps.
///
/// With stride 1 the entry of channels c, c' and taps k, k' is a correlation of the input,
///   sum over u of x_c(u) x_c'(u + dilation (k' - k)),
/// and taps of the same k' - k sum the same terms except at the input's borders. The 81 pairs of a
/// 3 x 3 kernel are 13 products over the input; the parts of it that not all pairs see are products
/// of their own, so that nothing is subtracted.
void add_conv_products(const at::Tensor& images, const ConvGeometry& geometry, double weight,
                       const at::Tensor& sum);

/// The sum of the patches themselves, [C kh kw], in the sum's type.
at::Tensor conv_patch_sum(const at::Tensor& images, const ConvGeometry& geometry,
                          at::ScalarType type);

}  // namespace linerate::torch_adapter
