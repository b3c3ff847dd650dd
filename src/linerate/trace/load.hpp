// Any trace or timeline file, or all ranks of one job together, told by content and read in
// parallel.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/trace/input.hpp"
#include "linerate/trace/job.hpp"

namespace linerate::trace {

enum class Format : std::uint8_t {
  timeline,
  kineto,
  host_trace,
  horovod,
  chakra,
  chakra_json,
  per_gradient,
  collective_log,
  other_document,
  unknown
};
/// From the first bytes (Input::head) alone.
Format format_of(std::string_view head);
std::string_view name_of(Format format);

struct LoadOptions {
  /// Called with bytes done and bytes in all, from any thread, one call at a time.
  std::function<void(std::size_t done, std::size_t total)> progress = {};
  unsigned threads = 0;  // 0: as many as there are processors
};

/// Memory: per file being read, its decompressed text, the parser's index (4 bytes per structural
/// character, 0.3 to 1 times the text in real traces) and the events kept (0.2 times): below 2.5
/// times the decompressed size, for as many files at once as there are threads. Throws InputError
/// naming the file.
Job load_job(const std::vector<std::filesystem::path>& files, const LoadOptions& options = {});
/// One opened file; for tests and fuzzing.
Job read_job(Input& input);

}  // namespace linerate::trace
