#include "linerate/core/text_table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace linerate {

std::vector<std::string> table_lines(const std::vector<TextColumn>& columns,
                                     const std::vector<std::vector<std::string>>& rows,
                                     std::string_view indent) {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    widths.push_back(columns[c].head.size());
    for (const auto& row : rows) widths[c] = std::max(widths[c], row[c].size());
  }
  const auto line = [&](auto text_of_column) {
    std::string out(indent);
    for (std::size_t c = 0; c < columns.size(); ++c) {
      if (c > 0) out += "  ";
      out += columns[c].right ? fmt::format("{:>{}}", text_of_column(c), widths[c])
                              : fmt::format("{:<{}}", text_of_column(c), widths[c]);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out;
  };
  std::vector<std::string> lines = {line([&](std::size_t c) { return columns[c].head; })};
  for (const auto& row : rows) lines.push_back(line([&](std::size_t c) { return row[c]; }));
  return lines;
}

std::string text_table(const std::vector<TextColumn>& columns,
                       const std::vector<std::vector<std::string>>& rows, std::string_view indent) {
  std::string out;
  for (const std::string& line : table_lines(columns, rows, indent)) out += line + "\n";
  return out;
}

}  // namespace linerate
