// Which of the known formats a file is in, by its first bytes alone and never by its name.
#pragma once

#include <cstdint>
#include <string_view>

namespace linerate::trace {

enum class Format : std::uint8_t {
  timeline,
  kineto,
  host_trace,
  horovod,
  chakra,
  chakra_json,
  chakra_groups,
  per_gradient,
  collective_log,
  other_document,
  // known, and read by no importer: the refusal says what to do instead
  nsys_database,
  horovod_autotune,
  nccl_profiler,
  memory_timeline,
  git_lfs_pointer,
  xplane,
  perfetto_trace,
  rocprofiler,
  unknown
};
/// From the first bytes (Input::head) alone.
Format format_of(std::string_view head);
std::string_view name_of(Format format);
/// Of JSON that format_of() takes for a PyTorch trace: does the head look like one?
bool looks_like_events(std::string_view head);
/// What to do with a file of a format that explain does not read; empty where it does.
std::string_view advice_for(Format format);

}  // namespace linerate::trace
