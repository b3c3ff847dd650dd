// Data sets by name, and what is done to them before training. They are cut to the first samples,
// and images that are smaller than the network's input get a rim of zeros.
#include "linerate/zoo/dataset.hpp"

#include <ATen/ops/empty.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <utility>

#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"

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

// Every rank shuffles for itself with random numbers keyed by (seed, epoch), and all get the same
// order. Nothing is sent, and a resumed run needs no saved generator.
std::vector<std::int64_t> epoch_order(std::uint64_t seed, std::int64_t epoch,
                                      std::int64_t samples) {
  std::vector<std::int64_t> order(to_index(samples));
  std::iota(order.begin(), order.end(), 0);
  const std::uint64_t key = random_key(seed, static_cast<std::uint64_t>(epoch));
  for (std::size_t i = order.size(); i > 1; --i)  // Fisher and Yates
    std::swap(order[i - 1], order[random_below(key, i, i)]);
  return order;
}

// With 100 samples, a global batch of 32 and 4 ranks there are 3 full steps and one of 4 samples.
// With 98 samples the last 2 are dropped, since two ranks would have none.
std::int64_t EpochPlan::steps() const {
  const std::int64_t full = samples / global_batch, left = samples % global_batch;
  return full + (left >= ranks ? 1 : 0);
}

Range EpochPlan::step(std::int64_t index) const {
  return {index * global_batch, std::min((index + 1) * global_batch, samples)};
}

// 10 samples on 3 ranks are [0, 3), [3, 6) and [6, 10).
Range share_of(Range whole, int rank, int ranks) {
  return {whole.begin + whole.size() * rank / ranks,
          whole.begin + whole.size() * (rank + 1) / ranks};
}

// Pixels are bytes in the order channel, row, column. A batch is f32 in the order row, column,
// channel (channels last). So one pass normalises and reorders.

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
  const auto rows = [&](const std::vector<std::int64_t>& values, std::int64_t width) {
    const at::Tensor chosen = at::empty({batch.size, width}, at::kLong);
    auto* to = chosen.mutable_data_ptr<std::int64_t>();
    for (const std::int64_t i : indices) to = std::copy_n(values.begin() + i * width, width, to);
    return chosen;
  };
  batch.target = rows(samples_.labels, samples_.label_width);
  if (samples_.label_width == 1) batch.target = batch.target.view({batch.size});
  batch.input =
      samples_.tokens.empty() ? images(indices, flip) : rows(samples_.tokens, samples_.shape[0]);
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

// The format of MNIST: a magic number with element type and number of dimensions, the sizes, then
// the values, all big-endian. An example: 00 00 08 03, then 60000, 28 and 28, are 60,000 images of
// 28 x 28 bytes.

namespace {

/// Reads a file, unpacked if it is packed; zlib reads a plain file as it is. Counts the bytes, so
/// that errors name the place.
class GzReader {
 public:
  explicit GzReader(const std::filesystem::path& path)
      : path_(path), file_(gzopen(path.c_str(), "rb")) {
    if (!file_)
      throw InputError(path_.string(), std::string("cannot open: ") + std::strerror(errno));
  }
  ~GzReader() { gzclose(file_); }
  GzReader(const GzReader&) = delete;
  GzReader& operator=(const GzReader&) = delete;

  void read(void* into, unsigned bytes, const char* what) {
    const int got = std::max(0, gzread(file_, into, bytes));
    if (static_cast<unsigned>(got) < bytes) {
      int code = 0;
      const char* text = gzerror(file_, &code);
      if (code != Z_OK && code != Z_BUF_ERROR)
        wrong(std::string("cannot unpack: ") + text + "; the file is damaged, fetch it again");
      wrong("the file ends in its " + std::string(what) + ": expected " + std::to_string(bytes) +
            " bytes, found " + std::to_string(got) + "; it is cut off, fetch it again");
    }
    position_ += bytes;
  }
  std::uint32_t big_endian(const char* what) {
    std::uint8_t b[4];
    read(b, 4, what);
    return std::uint32_t{b[0]} << 24 | std::uint32_t{b[1]} << 16 | std::uint32_t{b[2]} << 8 | b[3];
  }
  // Reads on: a file of an honest size ends here.
  bool at_end() {
    std::uint8_t byte;
    return gzread(file_, &byte, 1) <= 0;
  }
  [[noreturn]] void wrong(const std::string& message) const {
    throw InputError(path_.string() + ": byte " + std::to_string(position_), message);
  }

 private:
  std::filesystem::path path_;
  gzFile file_;
  std::size_t position_ = 0;
};

}  // namespace

IdxArray read_idx(const std::filesystem::path& path) {
  // The file as it is named, or packed next to that name, as it is downloaded.
  const std::filesystem::path packed = path.string() + ".gz";
  GzReader in(!std::filesystem::exists(path) && std::filesystem::exists(packed) ? packed : path);
  const std::uint32_t magic = in.big_endian("magic number");
  const std::uint32_t dimensions = magic & 0xff;
  if (magic >> 8 != 8 || dimensions < 1 || dimensions > 4)
    in.wrong(
        "expected an IDX file of bytes (magic number 0x000008nn, nn = 1 to 4 dimensions), found " +
        std::to_string(magic));
  IdxArray array;
  std::int64_t total = 1;
  for (std::uint32_t i = 0; i < dimensions; ++i) {
    array.shape.push_back(in.big_endian("sizes"));
    constexpr std::int64_t limit = std::int64_t{1} << 34;
    if (array.shape.back() > 0 && total > limit / array.shape.back())
      in.wrong("expected at most 16 GiB of values, found more");
    total *= array.shape.back();
  }
  // Piece by piece: a damaged size then ends in the message about the missing bytes, not in an
  // allocation of gigabytes.
  while (static_cast<std::int64_t>(array.values.size()) < total) {
    const std::size_t have = array.values.size();
    const unsigned piece =
        static_cast<unsigned>(std::min<std::size_t>(to_index(total) - have, 1u << 26));
    array.values.resize(have + piece);
    in.read(array.values.data() + have, piece, "values");
  }
  if (!in.at_end())
    in.wrong("expected the end of the file after " + std::to_string(total) + " values, found more");
  return array;
}

// MNIST and Fashion-MNIST: four IDX files each.

namespace {

constexpr const char* kDebianFolder =
    "/usr/share/datasets/fashion-mnist";  // package dataset-fashion-mnist

// Images and labels of one split, checked against each other.
Samples read_split(const std::filesystem::path& folder, const std::string& prefix) {
  const std::filesystem::path image_file = folder / (prefix + "-images-idx3-ubyte");
  const std::filesystem::path label_file = folder / (prefix + "-labels-idx1-ubyte");
  IdxArray images = read_idx(image_file), labels = read_idx(label_file);
  if (images.shape.size() != 3)
    throw InputError(image_file.string(),
                     "expected 3 dimensions, found " + std::to_string(images.shape.size()));
  if (labels.shape.size() != 1 || labels.shape[0] != images.shape[0])
    throw InputError(label_file.string(), "expected one label for each of the " +
                                              std::to_string(images.shape[0]) + " images, found " +
                                              std::to_string(labels.values.size()));
  Samples samples;
  samples.shape = {1, images.shape[1], images.shape[2]};
  samples.pixels = std::move(images.values);
  for (std::size_t i = 0; i < labels.values.size(); ++i) {
    if (labels.values[i] > 9)
      throw InputError(label_file.string() + ": label " + std::to_string(i),
                       "expected 0 to 9, found " + std::to_string(labels.values[i]));
    samples.labels.push_back(labels.values[i]);
  }
  return samples;
}

DataSet read_folder(const std::string& name, const std::filesystem::path& folder, double mean,
                    double deviation) {
  if (!std::filesystem::is_directory(folder))
    throw InputError(folder.string(),
                     "expected a folder with the four files of " + name +
                         ", found none; install dataset-fashion-mnist or give --data-dir");
  return {name, 10, read_split(folder, "train"), read_split(folder, "t10k"), {mean}, {deviation}};
}

}  // namespace

// Mean and deviation over the training images.
DataSet load_fashion_mnist(const DataRequest& request) {
  return read_folder("fashion-mnist", request.folder.empty() ? kDebianFolder : request.folder,
                     0.2860, 0.3530);
}

DataSet load_mnist(const DataRequest& request) {
  if (request.folder.empty())
    throw UsageError("--data mnist: expected the folder of its files in --data-dir");
  return read_folder("mnist", request.folder, 0.1307, 0.3081);
}

// CIFAR-10, binary version (https://www.cs.toronto.edu/~kriz/cifar.html): records of one label and
// 3072 pixels.

namespace {

constexpr std::size_t kPixels = 3 * 32 * 32, kRecord = kPixels + 1;

void append_file(const std::filesystem::path& path, Samples& samples) {
  const std::string content = read_file(path);
  if (content.empty() || content.size() % kRecord != 0)
    throw InputError(path.string() + ": byte " + std::to_string(content.size() / kRecord * kRecord),
                     "expected whole records of " + std::to_string(kRecord) + " bytes, found " +
                         std::to_string(content.size() % kRecord) +
                         " bytes at the end; fetch the file again");
  for (std::size_t at = 0; at < content.size(); at += kRecord) {
    const auto label = static_cast<std::uint8_t>(content[at]);
    if (label > 9)
      throw InputError(path.string() + ": byte " + std::to_string(at),
                       "expected a label 0 to 9, found " + std::to_string(label));
    samples.labels.push_back(label);
    samples.pixels.insert(samples.pixels.end(),
                          content.begin() + static_cast<std::ptrdiff_t>(at + 1),
                          content.begin() + static_cast<std::ptrdiff_t>(at + kRecord));
  }
}

}  // namespace

DataSet load_cifar10(const DataRequest& request) {
  if (request.folder.empty())
    throw UsageError("--data cifar10: expected the folder of its files in --data-dir");
  if (!std::filesystem::is_directory(request.folder))
    throw InputError(request.folder.string(),
                     "expected a folder with data_batch_1.bin to data_batch_5.bin, found none");
  DataSet set{"cifar10", 10, {}, {}, {0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}};
  set.train.shape = set.test.shape = {3, 32, 32};
  for (int i = 1; i <= 5; ++i)
    append_file(request.folder / ("data_batch_" + std::to_string(i) + ".bin"), set.train);
  append_file(request.folder / "test_batch.bin", set.test);
  return set;
}

// Generated samples of any shape, from the seed alone, with something to learn in them.

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
