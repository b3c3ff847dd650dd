// Private: one pass over the JSON of a PyTorch/Kineto trace; hands out raw tokens, knows no
// meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

/// Takes what the pass finds, in the order of the file. Tokens live until the call returns.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  /// May the arguments of this event be passed over? Most of a file is operators of the host.
  virtual bool needs_no_args(EventCategory category, std::string_view name) = 0;
  /// A complete event ("ph": "X") of a category that is not ignored.
  virtual void event(EventCategory category, const EventTokens& tokens) = 0;
  /// Now and then: how much of this sink's part was read.
  virtual void progress(std::size_t bytes_done) = 0;
};

enum class ScanEnd : std::uint8_t { whole, no_events, out_of_memory, damaged };

struct ScanResult {
  ScanEnd end = ScanEnd::whole;
  std::size_t events = 0;     // with "ph" or "cat", up to the end or the damage
  std::size_t strangers = 0;  // other elements of the list
  bool sliced = false;        // read in more than one piece
  const char* reason = "";    // the parser's own words
  FileTokens file;
};

/// The list of events is cut into slices of about so many bytes, each parsed as a document of its
/// own. Text and index of a slice fit into a core's own cache, which is quicker and needs little
/// memory. The cuts are guessed; a wrong guess shows as damage.
inline constexpr std::size_t kSliceBytes = std::size_t{256} << 10;
inline constexpr std::size_t kOnePiece = SIZE_MAX;

/// Reads a file with keys in any order, or a bare array of events. Leaves the text as it was. With
/// several sinks the list is cut into as many parts, or fewer if there are few events. Each part is
/// read by a thread of its own, and goes to the sink of the same position.
ScanResult scan_kineto(PaddedText& text, std::span<TokenSink* const> sinks,
                       std::size_t slice_bytes);

// Private: where the text of a trace may be cut, so that its events are parsed a slice at a time.
// The parser needs an index of 4 bytes for each byte that it is given. For a slice, text and index
// stay in the cache.

/// Bytes put over a text while this lives: they turn a slice of it into a document of its own.
class Patch {
 public:
  Patch(PaddedText& text, std::size_t at, std::string_view bytes);
  ~Patch();
  Patch(const Patch&) = delete;
  Patch& operator=(const Patch&) = delete;

 private:
  char* at_;
  std::string saved_;
};

struct EventList {
  std::size_t first = 0;     // position after the opening bracket
  bool inside_root = false;  // the value of the root's "traceEvents", else the root itself
};

/// The list of events, if it opens within the first MiB.
std::optional<EventList> find_event_list(std::string_view text);

/// The comma of `}, {"ph"` (or another key that events have) at or after `from`; npos if there is
/// none. It is a guess, as the text may also stand in a string or in nested arguments. A wrong
/// guess gives slices that are not well-formed, and the reader finds that.
std::size_t comma_between_events(std::string_view text, std::size_t from);

/// Events that are read as one document, or as one part: the text [from, to). `to` is a comma
/// between events, or the end of the text.
struct EventRange {
  std::size_t from = 0, to = 0;
};
/// The events of the list and all that follows it, in `parts` ranges of about equal size, or fewer.
std::vector<EventRange> cut_events(std::string_view text, EventList list, std::size_t parts);

}  // namespace linerate::trace
