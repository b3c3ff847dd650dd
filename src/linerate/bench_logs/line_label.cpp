#include "linerate/bench_logs/line_label.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "linerate/bench_logs/log_words.hpp"

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

bool is_name_of_day_or_month(std::string_view word) {
  constexpr std::array<std::string_view, 19> kNames = {
      "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun", "Jan", "Feb", "Mar",
      "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  return std::find(kNames.begin(), kNames.end(), word) != kNames.end();
}

/// Marks that stand alone between a label and the line.
bool is_mark(std::string_view word) {
  constexpr std::array<std::string_view, 10> kMarks = {
      "|", "-", ">", "INFO", "DEBUG", "STDOUT", "stdout", "stderr", "F", "P"};
  return std::find(kMarks.begin(), kMarks.end(), word) != kMarks.end();
}

/// "[1,0]<stdout>:", "(head, rank=0)": the length with what clings to the bracket, 0 where `text`
/// does not begin with one.
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

class Labels {
 public:
  explicit Labels(std::string_view line) : rest_(trimmed_left(line)) {}

  std::string_view strip() {
    while (!rest_.empty()) {
      const std::size_t length = next();
      if (length == 0) break;
      rest_ = trimmed_left(rest_.substr(length));
    }
    return rest_;
  }

 private:
  std::size_t next() {
    if (const std::size_t bracket = bracket_length(rest_)) return bracket;
    const std::string_view word = first_word(rest_);
    if (is_time_stamp(word)) {
      after_stamp_ = true;
      return word.size();
    }
    if (const std::size_t colon = colon_length(word)) return colon;
    if (is_mark(word)) return word.size();
    return length_of_several(word);
  }

  /// "Mar 18" of a date, its year, and names that a later mark proves to be labels.
  std::size_t length_of_several(std::string_view word) {
    const std::string_view after = trimmed_left(rest_.substr(word.size()));
    const std::string_view second = first_word(after);
    const auto through_second = [&] {
      return static_cast<std::size_t>(second.data() + second.size() - rest_.data());
    };
    if (is_name_of_day_or_month(word))
      return second.size() <= 2 && number_of(second) ? through_second() : word.size();
    if (after_stamp_ && word.size() > 4 && (word[4] == '[' || word[4] == '(') &&
        number_of(word.substr(0, 4)))
      return 4;
    const bool name = !word.empty() && is_letter(word[0]);
    if (name && second == "|") return through_second();
    if (name && after_stamp_ && colon_length(second) == second.size() && !second.empty())
      return through_second();
    return 0;
  }

  std::string_view rest_;
  bool after_stamp_ = false;
};

}  // namespace

std::string_view without_label(std::string_view line) { return Labels(line).strip(); }

std::string_view without_repeated_label(std::string_view line, std::string& storage) {
  const std::string_view rest = without_label(line), whole = trimmed_left(line);
  const std::string_view label = whole.substr(0, bracket_length(whole));
  if (label.empty() || rest.find(label) == std::string_view::npos) return rest;
  storage = rest;
  for (std::size_t at = 0; (at = storage.find(label, at)) != std::string::npos;)
    storage.replace(at, label.size(), " ");
  return storage;
}

}  // namespace linerate::bench_logs
