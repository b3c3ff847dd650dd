#include "linerate/trace/decimal.hpp"

#include <charconv>

namespace linerate::trace {
namespace {

std::string_view bare(std::string_view text) {
  while (!text.empty() &&
         (text.back() == ' ' || text.back() == '\n' || text.back() == '\r' || text.back() == '\t'))
    text.remove_suffix(1);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"')
    text = text.substr(1, text.size() - 2);
  return text;
}

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::optional<std::int64_t> parse_scaled(std::string_view text, int scale) {
  text = bare(text);
  const bool negative = !text.empty() && text.front() == '-';
  if (negative) text.remove_prefix(1);
  // Digits behind the nineteenth cannot matter to 63 bits where they are behind the point; leading
  // zeros do not count.
  constexpr std::uint64_t kLimit = 9'223'372'036'854'775'807ull;
  std::uint64_t value = 0;
  bool any = false, point = false, round_up = false, dropped = false;
  std::size_t i = 0;
  int exponent = scale;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '.' && !point) {
      point = true;
      continue;
    }
    if (!is_digit(c)) break;
    any = true;
    const auto digit = static_cast<std::uint64_t>(c - '0');
    if (dropped || value > (kLimit - digit) / 10) {
      round_up = dropped ? round_up : digit >= 5;
      dropped = true;
      exponent += point ? 0 : 1;
      continue;
    }
    value = value * 10 + digit;
    exponent -= point ? 1 : 0;
  }
  if (!any) return std::nullopt;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    int power = 0;
    const std::size_t from = i + 1 + (i + 1 < text.size() && text[i + 1] == '+' ? 1 : 0);
    const auto [end, status] =
        std::from_chars(text.data() + from, text.data() + text.size(), power);
    if (status != std::errc{} || power < -10000 || power > 10000) return std::nullopt;
    exponent += power;
    i = static_cast<std::size_t>(end - text.data());
  }
  if (i != text.size()) return std::nullopt;
  if (dropped && exponent > 0) return std::nullopt;  // a digit in front of the point had no room
  for (; exponent > 0 && value != 0; --exponent) {
    if (value > kLimit / 10) return std::nullopt;
    value *= 10;
  }
  for (; exponent < 0 && value != 0; ++exponent) {
    round_up = value % 10 >= 5;
    value /= 10;
  }
  if (round_up && value < kLimit) ++value;
  return negative ? -static_cast<std::int64_t>(value) : static_cast<std::int64_t>(value);
}

std::optional<std::uint64_t> parse_unsigned(std::string_view text) {
  text = bare(text);
  std::uint64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace linerate::trace
