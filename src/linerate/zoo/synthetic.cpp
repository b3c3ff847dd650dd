// Generated samples of any shape, from the seed alone, with something to learn in them.
#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/rng.hpp"
#include "linerate/zoo/dataset.hpp"

namespace linerate::zoo {
namespace {

/// Half a pattern of the class, half noise; eight pixels from each 64-bit draw.
void fill_image(std::uint8_t* pixels, std::int64_t n, std::uint64_t class_key,
                std::uint64_t sample_key) {
  for (std::int64_t i = 0; i < n; i += 8) {
    const std::uint64_t pattern = random_bits(class_key, static_cast<std::uint64_t>(i));
    const std::uint64_t noise = random_bits(sample_key, static_cast<std::uint64_t>(i));
    for (std::int64_t j = 0; j < std::min<std::int64_t>(8, n - i); ++j)
      pixels[i + j] =
          static_cast<std::uint8_t>(((pattern >> (8 * j) & 0xff) + (noise >> (8 * j) & 0xff)) / 2);
  }
}

// The label is drawn first. The image is half a pattern that only the label decides, so a network
// can learn it.
Samples make_images(const DataRequest& r, std::uint64_t key, std::int64_t count) {
  Samples s;
  s.shape = r.model.input;
  const std::int64_t n = models::elements_of(s.shape);
  s.pixels.resize(to_index(count * n));
  const auto classes = static_cast<std::uint64_t>(r.model.classes);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t label = random_below(key, static_cast<std::uint64_t>(i), classes);
    s.labels.push_back(static_cast<std::int64_t>(label));
    fill_image(s.pixels.data() + i * n, n, random_key(r.seed, label),
               random_key(key, static_cast<std::uint64_t>(i)));
  }
  return s;
}

/// Each token follows from the one before by a fixed rule, except for one in eight, which is drawn.
/// The target is the next token at every position. For a model with one output a sample it is a
/// function of the first token.
Samples make_tokens(const DataRequest& r, std::uint64_t key, std::int64_t count) {
  Samples s;
  s.shape = r.model.input;
  const std::int64_t length = s.shape[0];
  const auto vocabulary = static_cast<std::uint64_t>(r.model.vocabulary);
  const bool every_position = r.model.output().size() == 2;
  s.label_width = every_position ? length : 1;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t stream = random_key(key, static_cast<std::uint64_t>(i));
    std::uint64_t token = random_below(stream, 0, vocabulary);
    if (!every_position) s.labels.push_back(static_cast<std::int64_t>(token) % r.model.classes);
    for (std::int64_t t = 0; t < length; ++t) {
      s.tokens.push_back(static_cast<std::int64_t>(token));
      const auto counter = static_cast<std::uint64_t>(2 * t + 1);
      token = random_below(stream, counter, 8) == 0 ? random_below(stream, counter + 1, vocabulary)
                                                    : (token * 31 + 7) % vocabulary;
      if (every_position) s.labels.push_back(static_cast<std::int64_t>(token) % r.model.classes);
    }
  }
  return s;
}

}  // namespace

DataSet make_synthetic(const DataRequest& r) {
  if (r.samples < 1)
    throw UsageError("--samples: expected at least 1, found " + std::to_string(r.samples));
  const auto make = r.model.tokens() ? make_tokens : make_images;
  DataSet set;
  set.name = "synthetic";
  set.classes = r.model.classes;
  set.train = make(r, random_key(r.seed, 1ull << 40), r.samples);
  set.test = make(r, random_key(r.seed, 1ull << 41), std::max<std::int64_t>(r.samples / 8, 1));
  if (!r.model.tokens()) {
    // The mean of two uniform bytes: 0.5, deviation sqrt(2/12)/2.
    set.mean.assign(to_index(r.model.input[0]), 0.5);
    set.deviation.assign(to_index(r.model.input[0]), 0.2041);
  }
  return set;
}

}  // namespace linerate::zoo
