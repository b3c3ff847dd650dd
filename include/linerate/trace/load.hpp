// Any trace or timeline file, or all ranks of one job together, recognised by content and read in
// parallel.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "linerate/trace/input/input.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

struct LoadOptions {
  /// Called with bytes done and bytes in all, from any thread, one call at a time.
  std::function<void(std::size_t done, std::size_t total)> progress = {};
  unsigned threads = 0;  // 0: as many as there are processors
};

/// Memory: per file being read, its decompressed text, the parser's index (4 bytes per structural
/// character, 0.3 to 1 times the text in real traces) and the events kept (0.2 times): below 2.5
/// times the decompressed size, for as many files at once as there are threads. Throws InputError
/// naming the file.
/// `paths`: files, folders of traces and patterns (input_files.hpp).
Job load_job(const std::vector<std::filesystem::path>& paths, const LoadOptions& options = {});
/// Opened files; for tests and fuzzing.
Job read_job(std::span<Input> inputs);
inline Job read_job(Input& input) { return read_job({&input, 1}); }

}  // namespace linerate::trace
