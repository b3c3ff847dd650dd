// A microsecond since the epoch with three decimals needs 61 bits, and a double has 53. Times are
// therefore read as whole nanoseconds. Digits are collected in 64 bits. The point, the exponent and
// the scale become one power of ten, which is applied at the end.
//
// Example: "1734001122334455.678" at scale 3. Nineteen digits give 1734001122334455678, three of
// them after the point. The exponent is 3 - 3 = 0, so nothing is left to multiply or to round.
#include "linerate/trace/input/json_token.hpp"

#include <algorithm>
#include <charconv>

#include "linerate/core/index.hpp"

namespace linerate::trace {
namespace {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The fast path for nearly every number of a trace: up to 19 digits, at most `scale` of them after
/// the point. Such a number neither overflows 64 bits nor is rounded. Negative: it is another one.
std::int64_t parse_plain(std::string_view text, int scale) {
  if (text.size() > 20) return -1;
  std::uint64_t value = 0;
  int digits = 0, behind = -1;  // -1 until the point has come
  for (const char c : text) {
    if (is_digit(c)) {
      value = value * 10 + static_cast<std::uint64_t>(c - '0');
      ++digits;
      behind += behind >= 0 ? 1 : 0;
    } else if (c == '.' && behind < 0) {
      behind = 0;
    } else {
      return -1;
    }
  }
  const int missing = scale - std::max(behind, 0);
  if (digits == 0 || missing < 0 || digits + missing > 19) return -1;
  for (int i = 0; i < missing; ++i) value *= 10;
  return static_cast<std::int64_t>(value);
}

}  // namespace

/// Digits that no longer fit into 63 bits are dropped, and the first of them decides about
/// rounding. If dropped digits were before the point, the number is too large, unless its exponent
/// makes it smaller.
std::optional<std::int64_t> parse_scaled(std::string_view text, int scale) {
  text = unquoted(text);
  if (const std::int64_t plain = parse_plain(text, scale); plain >= 0) return plain;
  const bool negative = !text.empty() && text.front() == '-';
  if (negative) text.remove_prefix(1);
  // Digits after the nineteenth cannot matter to 63 bits if they are after the point; leading zeros
  // do not count.
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
    i = to_index(end - text.data());
  }
  if (i != text.size()) return std::nullopt;
  if (dropped && exponent > 0) return std::nullopt;  // a digit before the point did not fit
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
  text = unquoted(text);
  std::uint64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace linerate::trace
