// Quotes a file's text in a message. A file may contain any bytes, and a terminal takes only text.
#pragma once

#include <string>
#include <string_view>

namespace linerate {

/// The text with '?' for each byte that is neither a character of UTF-8 nor a blank: control
/// characters, halves of characters, other data.
std::string printable(std::string_view text);

}  // namespace linerate
