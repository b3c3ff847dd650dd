#include "linerate/bench_logs/json_part.hpp"

#include <algorithm>

#include "linerate/bench_logs/line_label.hpp"

namespace linerate::bench_logs {

/// Braces are counted outside of strings; a backslash in a string hides the next character.
std::string_view object_at(std::string_view text, std::size_t at) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = at; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\')
      ++i;
    else if (c == '"')
      quoted = !quoted;
    else if (!quoted && c == '{')
      ++depth;
    else if (!quoted && c == '}' && --depth == 0)
      return text.substr(at, i + 1 - at);
  }
  return text.substr(at);
}

std::size_t first_object(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    // A key with a colon looks like a label, so that only what is before the brace is asked.
    const std::string_view line = text.substr(at, end - at);
    const std::size_t brace = line.find('{');
    if (brace != std::string_view::npos && without_label(line.substr(0, brace)).empty())
      return at + brace;
    at = end + 1;
  }
  return std::string_view::npos;
}

std::string without_launcher(std::string_view text) {
  const std::size_t at = first_object(text);
  if (at == std::string_view::npos) return "";
  const std::size_t line = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
  const std::size_t begin = line == std::string_view::npos ? 0 : line + 1;
  const std::string_view label = text.substr(begin, at - begin);
  if (label.find_first_not_of(" \t\r") == std::string_view::npos)
    return std::string(object_at(text, at));
  std::string own;
  for (std::size_t i = begin; i < text.size();) {
    const std::size_t end = std::min(text.find('\n', i), text.size());
    const std::string_view of_any = text.substr(i, end - i);
    if (of_any.starts_with(label)) own.append(of_any.substr(label.size())).push_back('\n');
    i = end + 1;
  }
  return std::string(object_at(own, 0));
}

}  // namespace linerate::bench_logs
