// Any trace or timeline file, or all ranks of one job together, recognised by content and read in
// parallel.
// Thread safety: values.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <vector>

#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// How files are read.
struct LoadOptions {
  /// Called with bytes done and bytes in all, from any thread, one call at a time.
  std::function<void(std::size_t done, std::size_t total)> progress = {};
  unsigned threads = 0;  // 0: as many as there are processors
};

/// Reads the traces of one job. Throws InputError naming the file.
///
/// `paths`: files, folders and patterns with *, ? or [...]. A folder stands for the traces that lie
/// in it, and not in folders inside it.
///
/// Memory: below 2.5 times the decompressed size of the files that are read at once, one for each
/// thread. A file takes its text, the parser's index (0.3 to 1 times the text in real traces) and
/// the kept events (0.2 times).
[[nodiscard]] Job load_job(const std::vector<std::filesystem::path>& paths,
                           const LoadOptions& options = {});

}  // namespace linerate::trace
