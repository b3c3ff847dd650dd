// CIFAR-10, binary version (https://www.cs.toronto.edu/~kriz/cifar.html): records of one label and
// 3072 pixels.
#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/zoo/dataset.hpp"

namespace linerate::zoo {
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

}  // namespace linerate::zoo
