// Private: raw JSON tokens as simdjson hands them out (quotes and trailing blanks included).
#pragma once

#include <cstring>
#include <string_view>

namespace linerate::trace {

/// Does the key that starts at `raw` (after its quote) equal `name`? Reads at most name.size() + 1
/// bytes, which the padding covers.
inline bool key_is(const char* raw, std::string_view name) {
  return std::memcmp(raw, name.data(), name.size()) == 0 && raw[name.size()] == '"';
}

/// The token without trailing blanks and quotes, escapes left as they are.
inline std::string_view unquoted(std::string_view token) {
  while (!token.empty() && (token.back() == ' ' || token.back() == '\n' || token.back() == '\r' ||
                            token.back() == '\t'))
    token.remove_suffix(1);
  if (token.size() >= 2 && token.front() == '"' && token.back() == '"')
    token = token.substr(1, token.size() - 2);
  return token;
}

}  // namespace linerate::trace
