#include "linerate/report/text_table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace linerate::report {

std::string text_table(const std::vector<TextColumn>& columns,
                       const std::vector<std::vector<std::string>>& rows, std::string_view indent) {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    widths.push_back(columns[c].head.size());
    for (const auto& row : rows) widths[c] = std::max(widths[c], row[c].size());
  }
  const auto line = [&](auto text_of_column) {
    std::string out(indent);
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const std::string text = text_of_column(c);
      const bool last = c + 1 == columns.size();
      if (c > 0) out += "  ";
      out += columns[c].right ? fmt::format("{:>{}}", text, widths[c])
                              : fmt::format("{:<{}}", text, last ? 0 : widths[c]);
    }
    return out + "\n";
  };
  std::string out = line([&](std::size_t c) { return columns[c].head; });
  for (const auto& row : rows) out += line([&](std::size_t c) { return row[c]; });
  return out;
}

}  // namespace linerate::report
