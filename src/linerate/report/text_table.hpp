// A table for terminals: columns as wide as their cells, two blanks apart.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace linerate::report {

struct TextColumn {
  std::string head;
  bool right = false;  // numbers end at the same column
};

/// Every row has a cell for each column. Lines begin with `indent`; a last column on the left is
/// not filled up.
std::string text_table(const std::vector<TextColumn>& columns,
                       const std::vector<std::vector<std::string>>& rows,
                       std::string_view indent = "");

}  // namespace linerate::report
