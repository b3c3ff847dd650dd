// Which rows of a convolution's outputs a subsampled factor looks at, sample by sample. Private to
// torch_adapter.
#pragma once

#include <cstdint>
#include <vector>

#include "linerate/torch_adapter/kfac/layer_input.hpp"

namespace linerate::torch_adapter {

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

}  // namespace linerate::torch_adapter
