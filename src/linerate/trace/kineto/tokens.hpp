// Private: one pass over the JSON of a PyTorch/Kineto trace; hands out raw tokens, knows no
// meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "linerate/trace/input/input_file.hpp"

namespace linerate::trace {

/// What the "cat" of an event stands for, whatever the era.
enum class EventCategory : std::uint8_t {
  unknown,
  ignored,
  kernel,
  copy,
  other_device,  // of accelerators whose records are not understood here
  launch,
  cpu_op,
  annotation,
  device_annotation
};

/// The keys of "args" that matter; tokens as written, empty when absent.
struct ArgTokens {
  std::string_view external_id, correlation;
  std::string_view grid, block;  // of a kernel's launch
  std::string_view collective, in_elements, out_elements, dtype, in_splits, out_splits;
  std::string_view group, group_id, group_size, ranks, rank_start, rank_stride, sequence, comms_id;
  std::string_view dims, types;
};

struct EventTokens {
  std::string_view phase, category, name, tid, ts, dur;
  ArgTokens args;
};

/// What the whole file says about its rank; tokens as written, empty when absent.
struct FileTokens {
  std::string base_time, rank, world_size, backend, groups;
};

enum class ScanEnd : std::uint8_t { whole, no_events, out_of_memory, damaged };

struct ScanResult {
  ScanEnd end = ScanEnd::whole;
  std::size_t events = 0;     // with "ph" or "cat", up to the end or the damage
  std::size_t strangers = 0;  // other elements of the list
  const char* reason = "";    // the parser's own words
  FileTokens file;
};

/// Takes what the pass finds, in the order of the file. Tokens live until the text changes.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  /// May the arguments of this event be passed over? Most of a file is operators of the host.
  virtual bool needs_no_args(EventCategory category, std::string_view name) = 0;
  /// A complete event ("ph": "X") of a category that is not ignored.
  virtual void event(EventCategory category, const EventTokens& tokens) = 0;
  /// Now and then: how much was read.
  virtual void progress(std::size_t bytes_done) = 0;
};

/// Reads a file with keys in any order, or a bare array of events.
ScanResult scan_kineto(const PaddedText& text, TokenSink& sink);

}  // namespace linerate::trace
