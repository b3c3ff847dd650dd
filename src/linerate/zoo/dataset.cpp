// Data sets by name, and what is done to them before training. They are cut to the first samples,
// and images that are smaller than the network's input get a rim of zeros.
#include "linerate/zoo/dataset.hpp"

#include <algorithm>
#include <cstring>

#include "linerate/core/index.hpp"

namespace linerate::zoo {

const Registry<DataSource>& data_sources() {
  static const Registry<DataSource> sources(
      "data set",
      {
          {"fashion-mnist", load_fashion_mnist,
           "60,000 + 10,000 images 1x28x28 of ten kinds of clothing.", "Xiao et al. 2017"},
          {"mnist", load_mnist, "60,000 + 10,000 handwritten digits 1x28x28, from --data-dir.",
           "LeCun et al. 1998"},
          {"cifar10", load_cifar10,
           "50,000 + 10,000 colour images 3x32x32, binary version, from --data-dir.",
           "Krizhevsky 2009"},
          {"synthetic", make_synthetic, "Generated samples of the model's own shape, learnable.",
           "linerate"},
      });
  return sources;
}

// Nothing for generated samples: they have the network's shape.
models::Shape sample_shape(const std::string& source) {
  if (source == "synthetic") return {};
  if (source == "cifar10") return {3, 32, 32};
  return {1, 28, 28};
}

// Pixels, tokens and labels have different lengths a sample; each keeps its part.
void keep_first(Samples& samples, std::int64_t count) {
  const std::int64_t all = samples.size();
  if (count < 1 || count > all)
    throw UsageError("--train-samples, --test-samples: expected 1 to " + std::to_string(all) +
                     ", as many as the set has; found " + std::to_string(count));
  const auto cut = [&](auto& values) {
    values.resize(values.size() / to_index(all) * to_index(count));
  };
  cut(samples.pixels);
  cut(samples.tokens);
  cut(samples.labels);
}

// Centres each image in a larger one of zeros: 28x28 in 32x32 begins at row 2 and column 2.
void pad_images(Samples& samples, const models::Shape& shape) {
  const models::Shape from = samples.shape;
  if (from == shape || samples.pixels.empty()) return;
  if (shape.size() != 3 || shape[0] != from[0] || shape[1] < from[1] || shape[2] < from[2])
    throw UsageError("--input: expected " + models::to_text(from) +
                     " or larger with as many channels, found " + models::to_text(shape));
  const std::int64_t top = (shape[1] - from[1]) / 2, left = (shape[2] - from[2]) / 2;
  std::vector<std::uint8_t> padded(to_index(samples.size() * models::elements_of(shape)), 0);
  for (std::int64_t plane = 0; plane < samples.size() * from[0]; ++plane)
    for (std::int64_t row = 0; row < from[1]; ++row)
      std::memcpy(padded.data() + (plane * shape[1] + top + row) * shape[2] + left,
                  samples.pixels.data() + (plane * from[1] + row) * from[2], to_index(from[2]));
  samples.pixels = std::move(padded);
  samples.shape = shape;
}

}  // namespace linerate::zoo
