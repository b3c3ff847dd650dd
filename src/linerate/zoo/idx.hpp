// The IDX format of MNIST and its relatives (http://yann.lecun.com/exdb/mnist), plain or gzipped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace linerate::zoo {

struct IdxArray {
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> values;
};

/// Reads `path`, or `path`.gz if only that exists. Throws InputError naming the file and the byte
/// that is wrong.
IdxArray read_idx(const std::filesystem::path& path);

}  // namespace linerate::zoo
