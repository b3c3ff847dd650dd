// Mends JSON as real traces break it: a parser of the standard rejects the whole file for one of
// these.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "linerate/trace/input/input_file.hpp"

namespace linerate::trace {

struct Repairs {
  std::size_t control_characters = 0;  // raw newlines and the like inside strings, now blanks
  std::size_t inner_quotes = 0;        // unescaped quotes inside strings, now apostrophes
  std::size_t bad_utf8 = 0;            // bytes that are no UTF-8, now '?'
  std::size_t cut_bytes = 0;  // dropped after the last whole element of a file that ends early
  bool truncated = false;
  /// A writer that was stopped may have begun its list again in the same file. The lists are one
  /// now. For each begin but the first: how many whole elements stand before it.
  std::vector<std::size_t> begins_anew = {};

  bool any() const {
    return control_characters + inner_quotes + bad_utf8 + cut_bytes + begins_anew.size() > 0 ||
           truncated;
  }
  /// One line for people.
  std::string text() const;
};

/// One pass over the text, in place. A truncated file is cut after its last whole array element or
/// member and closed.
Repairs repair_json(PaddedText& text);

}  // namespace linerate::trace
