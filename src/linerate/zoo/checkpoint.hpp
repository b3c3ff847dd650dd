// A training state as one file: settings, position and named arrays, with a hash over all. No
// LibTorch here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/core/dtype.hpp"

namespace linerate::zoo {

/// A contiguous array; `bytes` refers to memory that others keep alive.
struct Array {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::string_view bytes;
};

/// A training's state. Random numbers need no state of their own: every stream is keyed by (seed,
/// step, rank), so the position says all.
struct Checkpoint {
  std::map<std::string, std::string> settings;  // what must agree with the run that resumes
  std::int64_t epoch = 0;
  std::int64_t step_in_epoch = 0;
  std::int64_t step = 0;  // since the start of training
  std::vector<Array> arrays;
};

/// Layout: magic line, length of the JSON head (8 bytes, little endian), head, arrays one after
/// another, hash (8 bytes).
std::string encode(const Checkpoint& checkpoint);
/// The arrays refer to `content`. `place` names the file. Throws InputError for anything cut off,
/// damaged or foreign.
Checkpoint decode(std::string_view content, const std::string& place);

/// <folder>/checkpoint
std::filesystem::path checkpoint_file(const std::filesystem::path& folder);

}  // namespace linerate::zoo
