// Private: raw JSON tokens as simdjson hands them out (quotes and trailing blanks included).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/trace/input/input_file.hpp"

namespace linerate::trace {

/// Does the key that starts at `raw` (after its quote) equal `name`? Reads at most name.size() + 1
/// bytes, which the padding covers.
inline bool key_is(const char* raw, std::string_view name) {
  return std::memcmp(raw, name.data(), name.size()) == 0 && raw[name.size()] == '"';
}

inline bool is_json_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/// The token without trailing blanks and quotes, escapes left as they are.
inline std::string_view unquoted(std::string_view token) {
  while (!token.empty() && is_json_blank(token.back())) token.remove_suffix(1);
  if (token.size() >= 2 && token.front() == '"' && token.back() == '"')
    token = token.substr(1, token.size() - 2);
  return token;
}

// Private: numbers of a trace, read from their digits. A double holds an epoch microsecond to 0.25
// us only.

/// Decimal text times 10^scale as a whole number, rounded half away from zero. The text may be
/// quoted and may have an exponent. nullopt: it is no number, or it leaves 63 bits. Example:
/// "1734001122334455.678" at scale 3 gives 1734001122334455678.
std::optional<std::int64_t> parse_scaled(std::string_view text, int scale);
/// Microseconds to nanoseconds, exactly.
inline std::optional<std::int64_t> parse_us_as_ns(std::string_view text) {
  return parse_scaled(text, 3);
}
inline std::optional<std::int64_t> parse_whole(std::string_view text) {
  return parse_scaled(text, 0);
}
/// Whole numbers up to 2^64 - 1 (Comms Id, correlation), optionally quoted.
std::optional<std::uint64_t> parse_unsigned(std::string_view text);

// Mends JSON as real traces break it: a parser of the standard rejects the whole file for one of
// these.

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
