#include "linerate/trace/format.hpp"

#include <algorithm>
#include <array>

#include "linerate/bench_logs/collective_log.hpp"
#include "linerate/trace/chakra/chakra.hpp"
#include "linerate/trace/per_gradient/per_gradient.hpp"

namespace linerate::trace {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// `"ph":"B"` with or without a blank behind the colon.
bool has_phase(std::string_view head, char phase) {
  for (std::size_t at = head.find("\"ph\""); at != std::string_view::npos;
       at = head.find("\"ph\"", at + 4)) {
    const std::size_t quote = head.find_first_not_of(" :", at + 4);
    if (quote != std::string_view::npos && head.substr(quote).starts_with('"') &&
        quote + 2 < head.size() && head[quote + 1] == phase && head[quote + 2] == '"')
      return true;
  }
  return false;
}

/// The next character that is no blank, 0 at the end.
char next_of(std::string_view text, std::size_t& at) {
  at = text.find_first_not_of(kBlanks, at);
  return at == std::string_view::npos ? '\0' : text[at++];
}

/// {"1": [0, 1], ...}: Chakra's process groups, which stand beside the traces of the ranks.
bool is_group_table(std::string_view text) {
  std::size_t at = 0;
  if (next_of(text, at) != '{' || next_of(text, at) != '"') return false;
  const std::size_t quote = text.find('"', at);
  if (quote == std::string_view::npos || quote - at > 64) return false;
  const std::string_view key = text.substr(at, quote - at);
  at = quote + 1;
  if (next_of(text, at) != ':' || next_of(text, at) != '[') return false;
  const char first = next_of(text, at);
  return (first >= '0' && first <= '9') || (first == ']' && key != "traceEvents");
}

Format format_of_object(std::string_view text) {
  const std::string_view front = text.substr(0, 512);
  if (contains(front, "\"document\"") && contains(front, "\"schema\""))
    return contains(front, "\"timeline\"") ? Format::timeline : Format::other_document;
  if (contains(text, "\"traceEvents\"")) return Format::kineto;
  if (contains(text, "\"rocprofiler-sdk-tool\"")) return Format::rocprofiler;
  if (contains(text, "\"workload_graph\"")) return Format::chakra_json;
  if (bench_logs::is_nccl_tests_json(text)) return Format::collective_log;
  if (contains(text, "\"nodes\"") && contains(text, "\"schema\"")) return Format::host_trace;
  if (is_group_table(text)) return Format::chakra_groups;
  return Format::kineto;  // distributedInfo and deviceProperties may fill the head
}

Format format_of_array(std::string_view text, char second) {
  if (second == '[') return Format::memory_timeline;  // [[times], [sizes]]
  if (contains(text, "NEGOTIATE_") || contains(text, "start_time_since_epoch_in_micros"))
    return Format::horovod;
  if (has_phase(text, 'b') && (contains(text, "\"SeqNum\"") || contains(text, "\"CommHash\"")))
    return Format::nccl_profiler;
  // Kineto has complete events and categories; Horovod begins and ends.
  return has_phase(text, 'B') && !contains(text, "\"cat\"") ? Format::horovod : Format::kineto;
}

/// Protocol buffers whose message begins with a block of field 1.
bool is_protobuf(std::string_view head) {
  return head.starts_with('\n') && std::any_of(head.begin(), head.end(), [](char c) {
           return (c >= 0 && c < ' ' && kBlanks.find(c) == std::string_view::npos) || c < 0;
         });
}
/// XSpace is a list of planes (field 1), whose names tell it.
bool is_xplane(std::string_view head) {
  return is_protobuf(head) &&
         (contains(head, "/host:CPU") || contains(head, "/device:") ||
          contains(head, "/host:metadata") || contains(head, "Task Environment"));
}
/// A list of TracePackets (field 1), of which one of the first names the clocks or the producer.
bool is_perfetto(std::string_view head) { return is_protobuf(head) && contains(head, "perfetto"); }

Format format_of_text(std::string_view head) {
  if (head.starts_with("version https://git-lfs.github.com/")) return Format::git_lfs_pointer;
  if (head.starts_with("SQLite format 3")) return Format::nsys_database;
  if (is_chakra(head)) return Format::chakra;
  if (is_xplane(head)) return Format::xplane;
  if (is_per_gradient_log(head)) return Format::per_gradient;
  if (bench_logs::is_collective_log(head)) return Format::collective_log;
  if (head.starts_with("hierarchical_allreduce,")) return Format::horovod_autotune;
  if (is_perfetto(head)) return Format::perfetto_trace;
  return Format::unknown;
}

}  // namespace

std::string_view name_of(Format format) {
  static constexpr std::array<std::string_view, 19> kNames = {"timeline",
                                                              "PyTorch trace",
                                                              "PyTorch host execution trace",
                                                              "Horovod timeline",
                                                              "Chakra execution trace",
                                                              "Chakra JSON trace",
                                                              "Chakra process groups",
                                                              "per-gradient log",
                                                              "collective log",
                                                              "linerate document",
                                                              "nsys database",
                                                              "Horovod autotune log",
                                                              "NCCL profiler trace",
                                                              "memory timeline",
                                                              "Git LFS pointer",
                                                              "XLA profile",
                                                              "Perfetto trace",
                                                              "rocprofiler output",
                                                              "unknown"};
  return kNames[static_cast<std::size_t>(format)];
}

std::string_view advice_for(Format format) {
  switch (format) {
    case Format::per_gradient:
      return "a per-gradient log holds no events to explain; write linerate import to make a "
             "Workload";
    case Format::collective_log:
      return "a log of collectives, not of training; write linerate calibrate --from to fit it";
    case Format::other_document:
      return "a linerate document, but no timeline; explain reads timelines and traces";
    case Format::chakra_groups:
      return "process groups of a Chakra job; name its traces (*.et) together with it";
    case Format::nsys_database:
      return "an SQLite database, as nsys exports it, is not read; profile with torch.profiler and "
             "give its Chrome trace";
    case Format::horovod_autotune:
      return "a Horovod autotune log scores settings and holds no event; give the timeline "
             "(HOROVOD_TIMELINE)";
    case Format::nccl_profiler:
      return "the trace of NCCL's profiler plug-in is not read; give the PyTorch trace of the same "
             "run";
    case Format::memory_timeline:
      return "expected a list of events, found a list of lists such as PyTorch's memory timeline; "
             "give the trace of export_chrome_trace";
    case Format::git_lfs_pointer:
      return "a Git LFS pointer, not the file itself; fetch it with git lfs pull";
    case Format::xplane:
      return "an XLA profile (xplane.pb of JAX or TensorFlow) is not read; linerate reads PyTorch, "
             "Horovod, Chakra and Ascend traces";
    case Format::perfetto_trace:
      return "a binary trace of Perfetto is not read; give the PyTorch trace of the run";
    case Format::rocprofiler:
      return "the output of rocprofiler is not read; profile with torch.profiler and give its "
             "Chrome trace";
    case Format::unknown:
      return "expected a PyTorch, Horovod or Chakra trace or a linerate timeline, found none of "
             "them";
    default:
      return {};
  }
}

bool looks_like_events(std::string_view head) {
  for (const std::string_view key :
       {"\"traceEvents\"", "\"distributedInfo\"", "\"deviceProperties\"", "\"ph\""})
    if (contains(head, key)) return true;
  return false;
}

Format format_of(std::string_view head) {
  const std::size_t first = head.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (first == std::string_view::npos) return Format::unknown;
  const std::string_view text = head.substr(first);
  if (text[0] == '{') return format_of_object(text);
  if (text[0] == '[') {
    // "[1,0]<stdout>: ..." is the tag of mpirun, and "[2024-...]" a time stamp: text.
    std::size_t at = 1;
    const char second = next_of(text, at);
    if (second == '{' || second == '[' || second == ']' || second == '\0')
      return format_of_array(text, second);
  }
  return format_of_text(head);
}

}  // namespace linerate::trace
