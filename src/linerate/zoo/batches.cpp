// Pixels are bytes in the order channel, row, column. A batch is f32 in the order row, column,
// channel (channels last). So one pass normalises and reorders.
#include "linerate/zoo/batches.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "linerate/core/index.hpp"
#include "linerate/core/rng.hpp"

namespace linerate::zoo {

// (pixel / 255 - mean) / deviation as one product and one sum.
Batcher::Batcher(const Samples& samples, const DataSet& set) : samples_(samples) {
  for (std::size_t c = 0; c < set.mean.size(); ++c) {
    scale_.push_back(static_cast<float>(1 / (255 * set.deviation[c])));
    shift_.push_back(static_cast<float>(-set.mean[c] / set.deviation[c]));
  }
}

// Copies the labels, and the tokens or the images, of these samples.
Batch Batcher::gather(std::span<const std::int64_t> indices, const Flip& flip) const {
  Batch batch;
  batch.size = static_cast<std::int64_t>(indices.size());
  const std::int64_t width = samples_.label_width;
  batch.target =
      width == 1 ? at::empty({batch.size}, at::kLong) : at::empty({batch.size, width}, at::kLong);
  auto* target = batch.target.mutable_data_ptr<std::int64_t>();
  for (const std::int64_t i : indices)
    target = std::copy_n(samples_.labels.begin() + i * width, width, target);
  if (samples_.tokens.empty()) {
    batch.input = images(indices, flip);
    return batch;
  }
  const std::int64_t length = samples_.shape[0];
  batch.input = at::empty({batch.size, length}, at::kLong);
  auto* token = batch.input.mutable_data_ptr<std::int64_t>();
  for (const std::int64_t i : indices)
    token = std::copy_n(samples_.tokens.begin() + i * length, length, token);
  return batch;
}

// pixels [N][C][H][W] u8 -> [B][H][W][C] f32 in memory, seen as [B, C, H, W].
at::Tensor Batcher::images(std::span<const std::int64_t> indices, const Flip& flip) const {
  const std::int64_t channels = samples_.shape[0], rows = samples_.shape[1],
                     columns = samples_.shape[2];
  const at::Tensor out =
      at::empty({static_cast<std::int64_t>(indices.size()), rows, columns, channels}, at::kFloat);
  float* at = out.mutable_data_ptr<float>();
  for (const std::int64_t i : indices) {
    const std::uint8_t* pixels = samples_.pixels.data() + i * channels * rows * columns;
    const bool mirrored =
        flip.on && (random_bits(flip.key, static_cast<std::uint64_t>(i)) & 1) != 0;
    for (std::int64_t c = 0; c < channels; ++c) {
      const float scale = scale_[to_index(c)], shift = shift_[to_index(c)];
      for (std::int64_t y = 0; y < rows; ++y) {
        const std::uint8_t* row = pixels + (c * rows + y) * columns;
        float* into = at + (y * columns) * channels + c;
        for (std::int64_t x = 0; x < columns; ++x)
          into[x * channels] =
              static_cast<float>(row[mirrored ? columns - 1 - x : x]) * scale + shift;
      }
    }
    at += channels * rows * columns;
  }
  return out.permute({0, 3, 1, 2});
}

}  // namespace linerate::zoo
