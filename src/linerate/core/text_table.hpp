// A table for terminals: columns as wide as their cells, two blanks apart.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace linerate {

struct TextColumn {
  std::string head;
  bool right = false;  // numbers end at the same column
};

/// The head, then a line a row, without line ends. Every row has a cell for each column. Lines
/// begin with `indent` and end with no blank.
std::vector<std::string> table_lines(const std::vector<TextColumn>& columns,
                                     const std::vector<std::vector<std::string>>& rows,
                                     std::string_view indent = "");
/// The same as one text, each line ended.
std::string text_table(const std::vector<TextColumn>& columns,
                       const std::vector<std::vector<std::string>>& rows,
                       std::string_view indent = "");

}  // namespace linerate
