#include "linerate/torch_adapter/kfac/row_bands.hpp"

#include <algorithm>

#include "linerate/core/rng.hpp"

namespace linerate::torch_adapter {

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
  const std::int64_t span = geometry.dilation[0] * (geometry.kernel[0] - 1);
  const std::int64_t first = band.begin * geometry.stride[0] - geometry.pad_before[0];
  const std::int64_t last = (band.end - 1) * geometry.stride[0] - geometry.pad_before[0] + span;
  BandInput input{std::clamp<std::int64_t>(first, 0, input_rows), 0, geometry};
  const std::int64_t end = std::clamp<std::int64_t>(last + 1, input.begin, input_rows);
  input.rows = end - input.begin;
  input.geometry.pad_before[0] = input.begin - first;
  input.geometry.pad_after[0] = last + 1 - end;
  return input;
}

}  // namespace linerate::torch_adapter
