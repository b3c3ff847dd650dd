#include "linerate/bench_logs/table_cells.hpp"

#include <algorithm>

#include "linerate/bench_logs/log_words.hpp"
#include "linerate/core/text.hpp"

namespace linerate::bench_logs {
namespace {

bool are_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// "048,576": further groups of three.
bool are_groups(std::string_view text, char mark) {
  for (; !text.empty(); text.remove_prefix(std::min<std::size_t>(text.size(), 4)))
    if (!are_digits(text.substr(0, 3)) || text.substr(0, 3).size() != 3 ||
        (text.size() > 3 && (text[3] != mark || text.size() == 4)))
      return false;
  return true;
}

}  // namespace

std::vector<std::string> cells_of(std::string_view line, char separator) {
  line = trim(line);
  std::vector<std::string> cells;
  if (separator == '\0') {
    for (const std::string_view word : words_of(line))
      if (word.starts_with('(') && !cells.empty())
        cells.back() += word;  // "Size (B)"
      else
        cells.emplace_back(word);
    for (std::string& cell : cells) std::erase(cell, '"');
    return cells;
  }
  if (separator == '|' && line.starts_with('|')) line.remove_prefix(1);
  if (separator == '|' && line.ends_with('|')) line.remove_suffix(1);
  std::string cell;
  bool quoted = false;
  int depth = 0;
  for (const char c : line) {
    if (c == '"') quoted = !quoted;
    if (!quoted) depth += (c == '(') - (c == ')');
    if (c == separator && !quoted && depth <= 0) {
      cells.emplace_back(trim(cell));
      cell.clear();
    } else if (c != '"') {
      cell += c;
    }
  }
  cells.emplace_back(trim(cell));
  return cells;
}

std::optional<std::string> plain_digits(const std::string& cell, bool whole) {
  const std::size_t mark = cell.find_first_of(",_");
  if (mark == std::string::npos) return cell;
  const std::string_view all = cell, head = all.substr(0, mark);
  const std::string_view tail = all.substr(mark + 1, all.find('.') - mark - 1);
  const bool certain = whole || cell[mark] == '_' || all.find('.') != std::string_view::npos ||
                       tail.find(cell[mark]) != std::string_view::npos;
  if (!certain || !are_digits(head) || head.size() > 3 || head[0] == '0' ||
      !are_groups(tail, cell[mark]))
    return std::nullopt;
  std::string digits = cell;
  std::erase(digits, cell[mark]);
  return digits;
}

}  // namespace linerate::bench_logs
