// Private: where the text of a trace may be cut, so that its events are parsed a slice at a time.
// The parser needs an index of 4 bytes for each byte that it is given. For a slice, text and index
// stay in the cache.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/trace/input/padded_text.hpp"

namespace linerate::trace {

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
