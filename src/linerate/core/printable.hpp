// Quotes what a file says in a message: files may hold anything, a terminal takes text.
#pragma once

#include <string>
#include <string_view>

namespace linerate {

/// The text with '?' for each byte that is neither a character of UTF-8 nor a blank: control
/// characters, halves of characters, other data.
std::string printable(std::string_view text);

}  // namespace linerate
