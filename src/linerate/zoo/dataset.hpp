// Labelled samples in memory, and where they come from. No LibTorch here.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "linerate/core/registry.hpp"
#include "linerate/models/description.hpp"

namespace linerate::zoo {

/// Sample i is pixels[i * elements .. ) in the order C, H, W, or tokens[i * T .. ); its targets are
/// labels[i * label_width .. ).
struct Samples {
  models::Shape shape;               // {C, H, W}, or {T} token ids
  std::vector<std::uint8_t> pixels;  // images
  std::vector<std::int64_t> tokens;  // token models
  std::vector<std::int64_t> labels;
  std::int64_t label_width = 1;  // T if every position has a target

  std::int64_t size() const { return static_cast<std::int64_t>(labels.size()) / label_width; }
};

struct DataSet {
  std::string name;
  std::int64_t classes = 0;
  Samples train;
  Samples test;
  std::vector<double> mean;  // per channel, of pixels / 255
  std::vector<double> deviation;
};

/// What a source may need; each uses its part.
struct DataRequest {
  std::filesystem::path folder;  // empty: the source's own place, if it has one
  models::Description model;     // synthetic data takes its shapes
  std::uint64_t seed = 1;        // synthetic
  std::int64_t samples = 2048;   // synthetic: training samples; an eighth of them for the test
};

using DataSource = DataSet (*)(const DataRequest&);
/// --data looks up here.
const Registry<DataSource>& data_sources();

DataSet load_fashion_mnist(const DataRequest&);
DataSet load_mnist(const DataRequest&);
DataSet load_cifar10(const DataRequest&);
DataSet make_synthetic(const DataRequest&);

/// Shape of one sample of a source, without reading it; empty for synthetic data, which takes any.
models::Shape sample_shape(const std::string& source);
/// Leaves out all but the first `count` samples. Throws UsageError if there are fewer.
void keep_first(Samples& samples, std::int64_t count);
/// Pads images with zeros on all sides up to `shape`. Throws UsageError when they are larger or
/// have other channels.
void pad_images(Samples& samples, const models::Shape& shape);

// In which order samples are visited, and which of them each rank takes.

/// The samples of one epoch in their global order: a permutation of 0 .. samples-1 that depends on
/// seed and epoch alone, never on ranks.
std::vector<std::int64_t> epoch_order(std::uint64_t seed, std::int64_t epoch, std::int64_t samples);

/// Half-open range of places in the epoch's order.
struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

/// Cuts an epoch into steps. Step s covers `global_batch` places of the order, and the last step
/// covers the rest. The rest is dropped if it has fewer samples than ranks, since a rank without
/// samples has no gradient to give.
struct EpochPlan {
  std::int64_t samples = 0;
  std::int64_t global_batch = 1;
  int ranks = 1;

  std::int64_t steps() const;
  Range step(std::int64_t index) const;
};

/// Contiguous share of `whole`, sizes differing by at most one.
Range share_of(Range whole, int rank, int ranks);

// From samples in memory to tensors.

struct Batch {
  at::Tensor input;   // [B, C, H, W] f32, normalised, channels last; or [B, T] i64
  at::Tensor target;  // [B] or [B, T] i64
  std::int64_t size = 0;
};

/// Mirrors an image left to right with probability 1/2. (seed, epoch, sample) decide, so the result
/// is the same for any rank count.
struct Flip {
  bool on = false;
  std::uint64_t key = 0;  // of seed and epoch
};

/// Gathers the samples of these indices. `set` outlives it.
class Batcher {
 public:
  Batcher(const Samples& samples, const DataSet& set);
  Batch gather(std::span<const std::int64_t> indices, const Flip& flip = {}) const;

 private:
  at::Tensor images(std::span<const std::int64_t> indices, const Flip& flip) const;

  const Samples& samples_;
  std::vector<float> scale_, shift_;  // per channel: pixel * scale + shift
};

// The IDX format of MNIST and its relatives (http://yann.lecun.com/exdb/mnist), plain or gzipped.

struct IdxArray {
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> values;
};

/// Reads `path`, or `path`.gz if only that exists. Throws InputError naming the file and the byte
/// that is wrong.
IdxArray read_idx(const std::filesystem::path& path);

}  // namespace linerate::zoo
