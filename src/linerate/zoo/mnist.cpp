// MNIST and Fashion-MNIST: four IDX files each.
#include "linerate/core/error.hpp"
#include "linerate/zoo/dataset.hpp"
#include "linerate/zoo/idx.hpp"

namespace linerate::zoo {
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

}  // namespace linerate::zoo
