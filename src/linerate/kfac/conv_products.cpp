// The factor A of a convolution with stride 1, without its patches. Entry (c, k; c', k') of A is a
// sum over positions of channel c at tap k times channel c' at tap k'. For a pair of taps only
// their distance matters, not the place: it is the product of the image with itself, shifted by
// that distance. Pairs with the same distance differ only at the image's border. So each product is
// computed once for each distance and each strip of the image, and added to all pairs that see the
// strip.
//
// Example in one dimension: three taps, and a padding of 1 on 10 inputs. The pairs (0, 1) and (1,
// 2) have distance 1. The pair (0, 1) sees inputs u = 0 to 8 with u + 1, and the pair (1, 2) sees
// the same u. So one matrix product serves both. For distance 0 the tap 0 sees inputs 0 to 8, tap 1
// sees 0 to 9, and tap 2 sees 1 to 9. The cuts are at 0, 1, 9 and 10, which makes three strips. The
// first is added to taps 0 and 1, the second to all three, the third to taps 1 and 2.
//
// For 3 x 3 taps there are 45 pairs and 13 distances, so less than a third of the products is left.
#include "linerate/kfac/conv_products.hpp"

#include <ATen/Context.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/im2col.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mkldnn_linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "linerate/core/random.hpp"
#include "linerate/kfac/factor_inverse.hpp"

namespace linerate::torch_adapter {
namespace {

/// Elements of the input that are copied, multiplied and dropped at a time.
constexpr std::int64_t kInputElements = std::int64_t{1} << 20;

struct Range {
  std::int64_t begin = 0, end = 0;

  std::int64_t size() const { return end - begin; }
  bool holds(const Range& other) const { return begin <= other.begin && other.end <= end; }
};

/// One axis of a convolution with stride 1: how taps see inputs.
struct TapAxis {
  std::int64_t taps = 1, dilation = 1, pad = 0, inputs = 0, outputs = 0;

  /// Output t sees input t + first(k) by tap k.
  std::int64_t first(std::int64_t tap) const { return dilation * tap - pad; }
  std::int64_t shift(std::int64_t from, std::int64_t to) const { return dilation * (to - from); }
  /// The inputs u that tap `from` sees while tap `to` sees u + shift in the same output's patch.
  Range seen(std::int64_t from, std::int64_t to) const {
    const std::int64_t by = shift(from, to);
    const std::int64_t begin = std::min(inputs, std::max({std::int64_t{0}, first(from), -by}));
    return {begin, std::max(begin, std::min({inputs, first(from) + outputs, inputs - by}))};
  }
};

/// Pairs of taps with the same distance on one axis. `strips` are the inputs that they see, cut at
/// each place at which one of the pairs begins or ends to see. So a pair sees a strip entirely or
/// not at all.
struct Distance {
  std::int64_t taps = 0, shift = 0;
  std::vector<Range> strips = {};

  Distance(const TapAxis& axis, std::int64_t distance)
      : taps(distance), shift(axis.dilation * distance) {
    std::vector<std::int64_t> cuts;
    for (std::int64_t from = std::max<std::int64_t>(0, -taps);
         from < axis.taps - std::max<std::int64_t>(0, taps); ++from) {
      const Range seen = axis.seen(from, from + taps);
      if (seen.size() > 0) cuts.insert(cuts.end(), {seen.begin, seen.end});
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) strips.push_back({cuts[i], cuts[i + 1]});
  }
};

/// Sums of products of the pairs of taps k <= k' (rows first), [C, C] each.
class Pairs {
 public:
  Pairs(const TapAxis& rows, const TapAxis& columns, std::int64_t channels,
        const at::TensorOptions& options)
      : rows_(rows),
        columns_(columns),
        taps_(rows.taps * columns.taps),
        channels_(channels),
        products_(at::zeros({taps_ * (taps_ + 1) / 2, channels, channels}, options)) {}

  /// Adds a product to every pair with these distances that sees both strips.
  void add(const Distance& y, const Range& row_strip, const Distance& x, const Range& column_strip,
           const at::Tensor& product) {
    for (std::int64_t ky = 0; ky + y.taps < rows_.taps; ++ky) {
      if (!rows_.seen(ky, ky + y.taps).holds(row_strip)) continue;
      for (std::int64_t kx = std::max<std::int64_t>(0, -x.taps);
           kx < columns_.taps - std::max<std::int64_t>(0, x.taps); ++kx) {
        if (!columns_.seen(kx, kx + x.taps).holds(column_strip)) continue;
        const std::int64_t from = ky * columns_.taps + kx;
        const std::int64_t to = from + y.taps * columns_.taps + x.taps;
        products_.select(0, index(from, to)).add_(product);
      }
    }
  }

  /// sum[c taps + k][c' taps + k'] += weight product(k, k')[c][c'], its upper triangle.
  void add_to(const at::Tensor& sum, double weight) const {
    AT_DISPATCH_FLOATING_TYPES(sum.scalar_type(), "conv_products", [&] {
      scalar_t* const to = sum.mutable_data_ptr<scalar_t>();
      at::parallel_for(0, channels_, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t c = begin; c < end; ++c)
          for (std::int64_t k = 0; k < taps_; ++k)
            add_row(c, k, static_cast<scalar_t>(weight), to + (c * taps_ + k) * sum.stride(0));
      });
    });
  }

 private:
  std::int64_t index(std::int64_t from, std::int64_t to) const {
    return from * taps_ - from * (from - 1) / 2 + to - from;
  }

  template <typename T>
  void add_row(std::int64_t c, std::int64_t k, T weight, T* row) const {
    const T* const products = products_.const_data_ptr<T>();
    for (std::int64_t other = 0; other < taps_; ++other) {
      // product(k', k) is the transpose of product(k, k')
      const bool turned = other < k;
      const T* const product =
          products + (turned ? index(other, k) : index(k, other)) * channels_ * channels_;
      const T* from = product + (turned ? c : c * channels_);
      const std::int64_t step = turned ? channels_ : 1;
      for (std::int64_t d = other < k ? c + 1 : c; d < channels_; ++d)
        row[d * taps_ + other] += weight * from[d * step];
    }
  }

  TapAxis rows_, columns_;
  std::int64_t taps_, channels_;
  at::Tensor products_;
};

/// [n, C, H, W] -> [H, W, n, C], in which the positions of a strip of rows are one matrix without
/// gaps.
at::Tensor by_position(const at::Tensor& images) {
  return images.permute({2, 3, 0, 1}).contiguous();
}

at::Tensor matrix(const at::Tensor& x, const Range& rows, std::int64_t shift) {
  return x.narrow(0, rows.begin + shift, rows.size()).view({-1, x.size(3)});
}

/// Multiplies the strips of x[H, W, n, C] for these distances, and adds the products to their
/// pairs. `product` is room for one product.
void add_products(const at::Tensor& x, const std::vector<Distance>& rows, const Distance& columns,
                  at::Tensor& product, Pairs& pairs) {
  for (const Range& strip : columns.strips) {
    const at::Tensor left = x.narrow(1, strip.begin, strip.size()).contiguous();
    const at::Tensor right =
        columns.shift == 0 ? left
                           : x.narrow(1, strip.begin + columns.shift, strip.size()).contiguous();
    for (const Distance& y : rows) {
      if (y.taps == 0 && columns.taps < 0) continue;  // the transpose of what its mirror sums
      for (const Range& r : y.strips) {
        at::mm_out(product, matrix(left, r, 0).t(), matrix(right, r, y.shift));
        pairs.add(y, r, columns, strip, product);
      }
    }
  }
}

TapAxis axis_of(const ConvAxis& axis, std::int64_t inputs) {
  return {axis.kernel, axis.dilation, axis.pad_before, inputs, axis.outputs(inputs)};
}

}  // namespace

bool shares_products(const ConvGeometry& g, std::int64_t channels) {
  return channels >= 16 && g[0].stride == 1 && g[1].stride == 1 && g[0].kernel * g[1].kernel > 1;
}

void add_conv_products(const at::Tensor& images, const ConvGeometry& geometry, double weight,
                       const at::Tensor& sum) {
  const std::int64_t samples = images.size(0), channels = images.size(1);
  if (samples == 0) return;
  const TapAxis y = axis_of(geometry[0], images.size(2)), x = axis_of(geometry[1], images.size(3));
  std::vector<Distance> rows, columns;
  for (std::int64_t k = 0; k < y.taps; ++k) rows.emplace_back(y, k);
  for (std::int64_t k = 1 - x.taps; k < x.taps; ++k) columns.emplace_back(x, k);
  Pairs pairs(y, x, channels, sum.options());
  at::Tensor product = at::empty({channels, channels}, sum.options());
  const std::int64_t of_a_sample = std::max<std::int64_t>(1, images[0].numel());
  const std::int64_t at_once = std::max<std::int64_t>(1, kInputElements / of_a_sample);
  for (std::int64_t n = 0; n < samples; n += at_once) {
    const at::Tensor some = images.narrow(0, n, std::min(at_once, samples - n));
    const at::Tensor positions = by_position(some.to(sum.scalar_type()));
    for (const Distance& distance : columns)
      add_products(positions, rows, distance, product, pairs);
  }
  pairs.add_to(sum, weight);
}

at::Tensor conv_patch_sum(const at::Tensor& images, const ConvGeometry& geometry,
                          at::ScalarType type) {
  const TapAxis y = axis_of(geometry[0], images.size(2)), x = axis_of(geometry[1], images.size(3));
  const at::Tensor by_position = images.sum(0, /*keepdim=*/false, type);  // [C, H, W]
  const at::Tensor result = at::empty({images.size(1), y.taps, x.taps}, by_position.options());
  for (std::int64_t ky = 0; ky < y.taps; ++ky) {
    const Range rows = y.seen(ky, ky);
    for (std::int64_t kx = 0; kx < x.taps; ++kx) {
      const Range columns = x.seen(kx, kx);
      result.select(2, kx).select(1, ky).copy_(by_position.narrow(1, rows.begin, rows.size())
                                                   .narrow(2, columns.begin, columns.size())
                                                   .sum({1, 2}));
    }
  }
  return result.flatten();
}

// The patches of a convolution as a matrix [channels * taps][samples * positions], for
// add_symmetric_product(). Row (c, k) has the inputs of channel c that tap k sees, for each sample
// and position of the output. In the padding it has 0. On a host each row is written by one task,
// plane by plane.

namespace {

/// One axis of the outputs, for one tap: output k sees input begin + k step.
struct PatchAxis {
  std::int64_t begin = 0, step = 1, size = 0, inputs = 0;

  /// The positions [low, high) whose inputs exist.
  std::int64_t low() const { return begin >= 0 ? 0 : std::min(size, (-begin + step - 1) / step); }
  std::int64_t high() const {
    return begin >= inputs ? 0 : std::min(size, (inputs - 1 - begin) / step + 1);
  }
};

/// Example: 5 inputs, a padding of 1, stride 2, and tap 0. Its outputs 0, 1 and 2 see the inputs
/// -1, 1 and 3. So low is 1 and high is 3, and the line is 0, x[1], x[3].
template <typename T>
void fill_line(const T* input, const PatchAxis& x, T* line) {
  const std::int64_t low = std::min(x.low(), x.high()), high = std::max(x.high(), low);
  std::fill(line, line + low, T(0));
  if (x.step == 1) {
    std::copy(input + x.begin + low, input + x.begin + high, line + low);
  } else {
    for (std::int64_t k = low; k < high; ++k) line[k] = input[x.begin + k * x.step];
  }
  std::fill(line + high, line + x.size, T(0));
}

template <typename T>
void fill_plane(const T* input, const PatchAxis& y, const PatchAxis& x, T* plane) {
  for (std::int64_t k = 0; k < y.size; ++k, plane += x.size) {
    const std::int64_t row = y.begin + k * y.step;
    if (row < 0 || row >= y.inputs)
      std::fill(plane, plane + x.size, T(0));
    else
      fill_line(input + row * x.inputs, x, plane);
  }
}

/// The patches on a device, by im2col. im2col pads both sides alike, so other padding is added
/// before.
at::Tensor enqueue_patches(const at::Tensor& input, const ConvGeometry& g) {
  const auto& [y, x] = g;
  const bool pads = y.pad_before != y.pad_after || x.pad_before != x.pad_after;
  const at::Tensor padded =
      pads ? at::constant_pad_nd(input, {x.pad_before, x.pad_after, y.pad_before, y.pad_after})
           : input;
  return at::im2col(padded, {y.kernel, x.kernel}, {y.dilation, x.dilation},
                    {pads ? 0 : y.pad_before, pads ? 0 : x.pad_before}, {y.stride, x.stride})
      .transpose(0, 1)  // of [N, C kh kw, H' W']
      .flatten(1);
}

}  // namespace

// On the CPU the patches are written directly in the order in which the product reads them.
// at::im2col and its transposition would each copy everything once more.
at::Tensor conv_patches(const at::Tensor& given, const ConvGeometry& g) {
  if (!runs_on_host(given)) return enqueue_patches(given, g);
  const at::Tensor input = given.contiguous();
  const std::int64_t samples = input.size(0), channels = input.size(1);
  const std::int64_t height = input.size(2), width = input.size(3);
  const std::int64_t rows = g[0].outputs(height);
  const std::int64_t columns = g[1].outputs(width);
  const std::int64_t taps = g[0].kernel * g[1].kernel;
  at::Tensor patches = at::empty({channels * taps, samples * rows * columns}, input.options());
  const auto axis = [&](std::size_t i, std::int64_t tap, std::int64_t size, std::int64_t inputs) {
    return PatchAxis{tap * g[i].dilation - g[i].pad_before, g[i].stride, size, inputs};
  };
  AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "conv_patches", [&] {
    const scalar_t* const from = input.const_data_ptr<scalar_t>();
    scalar_t* const to = patches.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, channels * taps, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t channel = row / taps, tap = row % taps;
        const PatchAxis y = axis(0, tap / g[1].kernel, rows, height);
        const PatchAxis x = axis(1, tap % g[1].kernel, columns, width);
        for (std::int64_t n = 0; n < samples; ++n)
          fill_plane(from + (n * channels + channel) * height * width, y, x,
                     to + (row * samples + n) * rows * columns);
      }
    });
  });
  return patches;
}

std::vector<RowBand> row_bands(std::int64_t rows, std::int64_t count, std::uint64_t draw) {
  count = std::clamp<std::int64_t>(count, 1, std::max<std::int64_t>(1, rows));
  const auto start =
      static_cast<std::int64_t>(random_below(draw, 0, static_cast<std::uint64_t>(count)));
  std::vector<RowBand> bands;
  for (std::int64_t first = 0; first < count; ++first) {
    const std::int64_t band = (start + first) % count;
    bands.push_back({first, count, band * rows / count, (band + 1) * rows / count});
  }
  return bands;
}

BandInput input_of(const RowBand& band, const ConvGeometry& geometry, std::int64_t input_rows) {
  const ConvAxis& rows = geometry[0];
  const std::int64_t first = band.begin * rows.stride - rows.pad_before;
  const std::int64_t after = (band.end - 1) * rows.stride - rows.pad_before + rows.span();
  BandInput input{std::clamp<std::int64_t>(first, 0, input_rows), 0, geometry};
  const std::int64_t end = std::clamp<std::int64_t>(after, input.begin, input_rows);
  input.rows = end - input.begin;
  input.geometry[0].pad_before = input.begin - first;
  input.geometry[0].pad_after = after - end;
  return input;
}

// Only the upper triangle is needed, but LibTorch's wheel exports no ssyrk. So the product is
// computed in block columns, each down to its diagonal block. At d = 577, 1153, 2305, 4609 that
// takes 0.63, 0.61, 0.52, 0.48 of the whole product's time. Blocks of 256 were slower everywhere.
void add_symmetric_product(const at::Tensor& columns, double alpha, const at::Tensor& sum) {
  constexpr std::int64_t kBlock = 128;
  const std::int64_t d = columns.size(0);
  if (!runs_on_host(sum)) {  // a product is one kernel
    sum.narrow(0, 0, d).narrow(1, 0, d).addmm_(columns, columns.t(), 1, alpha);
    return;
  }
  for (std::int64_t begin = 0; begin < d; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, d);
    at::Tensor block = sum.narrow(0, 0, end).narrow(1, begin, end - begin);
    block.addmm_(columns.narrow(0, 0, end), columns.narrow(0, begin, end - begin).t(), 1, alpha);
  }
}

namespace {

/// Products of fewer multiplications than this do not go through oneDNN, because its preparation
/// costs more than it saves.
constexpr std::int64_t kLarge = std::int64_t{1} << 24;

bool goes_through_onednn(const at::Tensor& x, const at::Tensor& y) {
  return x.scalar_type() == at::kFloat && x.is_cpu() && at::globalContext().hasMKLDNN() &&
         at::globalContext().userEnabledMkldnn() && x.size(0) * y.size(0) * x.size(1) >= kLarge;
}

}  // namespace

at::Tensor times_transpose(const at::Tensor& x, const at::Tensor& y) {
  if (!goes_through_onednn(x, y)) return at::matmul(x, y.t());
  return at::mkldnn_linear(x.contiguous().to_mkldnn(), y.contiguous()).to_dense();
}

}  // namespace linerate::torch_adapter
