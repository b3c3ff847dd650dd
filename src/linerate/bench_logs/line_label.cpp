// Labels are taken off one by one, from the left, until none is recognised.
// "[1,0]<stdout>:2024-03-01 12:00:00 INFO 1048576 262144 float" loses a bracket, two time stamps
// and a mark. The search stops at the number, which is no label.
#include "linerate/bench_logs/line_label.hpp"

#include <algorithm>
#include <cctype>

#include "linerate/bench_logs/log_words.hpp"
#include "linerate/core/index.hpp"

namespace linerate::bench_logs {
namespace {

constexpr std::size_t kLongestBracket = 200;

bool is_decimal_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

std::string_view trimmed_left(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

std::string_view first_word(std::string_view text) {
  return text.substr(0, std::min(text.find_first_of(" \t\r"), text.size()));
}

/// "2024-03-01", "12:00:00,123", "2024-03-01T12:00:00.5Z": digits with at least two dividers.
bool is_time_stamp(std::string_view word) {
  if (word.empty() || !is_decimal_digit(word[0])) return false;
  const auto dividers =
      std::count_if(word.begin(), word.end(), [](char c) { return c == ':' || c == '-'; });
  return dividers >= 2 && word.find_first_not_of("0123456789:-.,+TZ") == std::string_view::npos;
}

constexpr std::string_view kDaysAndMonths =
    "Mon Tue Wed Thu Fri Sat Sun Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec";
/// Single marks between a label and the line.
constexpr std::string_view kMarks = "| - > INFO DEBUG STDOUT stdout stderr F P";

/// "[1,0]<stdout>:", "(head, rank=0)": the length with what clings to the bracket, 0 if `text` does
/// not begin with one.
std::size_t bracket_length(std::string_view text) {
  const char close = text.starts_with('[') ? ']' : text.starts_with('(') ? ')' : '\0';
  if (close == '\0') return 0;
  std::size_t end = text.find(close);
  if (end == std::string_view::npos || end > kLongestBracket) return 0;
  ++end;
  for (const std::string_view stream : {"<stdout>", "<stderr>", "<stddiag>"})
    if (text.substr(end).starts_with(stream)) end += stream.size();
  return end < text.size() && text[end] == ':' ? end + 1 : end;
}

/// "0:", "node1:", or "node1:1024" and "0:#" glued to the line.
std::size_t colon_length(std::string_view word) {
  if (word.size() > 1 && word.back() == ':') return word.size();
  const std::size_t colon = word.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == word.size()) return 0;
  const char next = word[colon + 1];
  const bool named =
      std::any_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(colon), is_letter);
  return next == '#' || (named && is_decimal_digit(next)) ? colon + 1 : 0;
}

/// Length of labels that take a second word to recognise; 0: none. "Mar 18" is a date. A name is a
/// label if "|" follows it, or after a time stamp if a word with a colon follows. A year may cling
/// to a bracket.
std::size_t length_of_several(std::string_view text, std::string_view word, bool after_stamp) {
  const std::string_view second = first_word(trimmed_left(text.substr(word.size())));
  const bool day = is_among(word, kDaysAndMonths) && second.size() <= 2 && number_of(second);
  const bool name = !word.empty() && is_letter(word[0]);
  const bool colon = after_stamp && !second.empty() && colon_length(second) == second.size();
  if (day || (name && (second == "|" || colon)))
    return to_index(second.data() + second.size() - text.data());
  if (is_among(word, kDaysAndMonths)) return word.size();
  const bool year = after_stamp && word.size() > 4 && (word[4] == '[' || word[4] == '(') &&
                    number_of(word.substr(0, 4));
  return year ? 4 : 0;
}

/// Length of the first label of `text`; 0: none.
std::size_t label_length(std::string_view text, bool& after_stamp) {
  if (const std::size_t bracket = bracket_length(text)) return bracket;
  const std::string_view word = first_word(text);
  if (is_time_stamp(word)) {
    after_stamp = true;
    return word.size();
  }
  if (const std::size_t colon = colon_length(word)) return colon;
  return is_among(word, kMarks) ? word.size() : length_of_several(text, word, after_stamp);
}

}  // namespace

std::string_view without_label(std::string_view line) {
  std::string_view rest = trimmed_left(line);
  bool after_stamp = false;
  while (const std::size_t length = label_length(rest, after_stamp))
    rest = trimmed_left(rest.substr(length));
  return rest;
}

std::string without_repeated_label(std::string_view line) {
  const std::string_view whole = trimmed_left(line), rest = without_label(line);
  const std::string_view label = whole.substr(0, bracket_length(whole));
  return label.empty() ? std::string(rest) : replaced(rest, label, " ");
}

}  // namespace linerate::bench_logs
