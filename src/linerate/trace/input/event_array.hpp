// Private: a trace that is one JSON list of events.
#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>

#include "linerate/trace/input/padded_text.hpp"

namespace linerate::trace {

/// A list of events, mended where it was damaged: old files end in "}," without "]".
class EventArray {
 public:
  /// `what`: "the array of a Horovod timeline". Throws InputError naming the file if the text is no
  /// list.
  EventArray(PaddedText text, const std::string& name, std::string_view what);

  /// Those of its elements that are objects, in order.
  template <typename Action>
  void for_each(Action action) const {
    for (const simdjson::dom::element& e : events_)
      if (e.is_object()) action(e);
  }
  /// At which of its elements a writer began anew in the same file, after a stop.
  const std::vector<std::size_t>& begins_anew() const { return begins_anew_; }
  /// What was mended; empty: nothing.
  const std::string& repair_note() const { return repair_note_; }

 private:
  PaddedText text_;
  simdjson::dom::parser parser_;
  simdjson::dom::array events_;
  std::vector<std::size_t> begins_anew_;
  std::string repair_note_;
};

}  // namespace linerate::trace
