// Quotes a file's text in a message. A file may contain any bytes, and a terminal takes only text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace linerate {

/// The text with '?' for each byte that is neither a character of UTF-8 nor a blank: control
/// characters, halves of characters, other data.
std::string printable(std::string_view text);

// A table for terminals: columns as wide as their cells, two blanks apart.

using TextRows = std::vector<std::vector<std::string>>;

/// The heads, then a line a row, without line ends. Every row has a cell for each column. Lines
/// begin with `indent` and end with no blank. A head that is written ">bytes" stands over numbers:
/// its column is aligned right.
std::vector<std::string> table_lines(const std::vector<std::string>& heads, const TextRows& rows,
                                     std::string_view indent = "");
/// The same as one text, each line ended.
std::string text_table(const std::vector<std::string>& heads, const TextRows& rows,
                       std::string_view indent = "");

}  // namespace linerate
