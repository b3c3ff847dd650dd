// Labelled samples in memory, and where they come from. No LibTorch here.
#pragma once

#include <cstdint>
#include <filesystem>
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

}  // namespace linerate::zoo
