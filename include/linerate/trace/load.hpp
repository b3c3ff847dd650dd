// Any trace or timeline file, or all ranks of one job together, recognised by content and read in
// parallel.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <vector>

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
/// `paths`: a file stays as it is; a folder stands for the traces that lie in it (not in folders
/// inside it), a pattern with *, ? or [...] for the files that match.
Job load_job(const std::vector<std::filesystem::path>& paths, const LoadOptions& options = {});

}  // namespace linerate::trace
