// A printed decimal stands for all numbers that round to it. Arithmetic on such intervals tells
// whether two printed numbers can belong together, and an equality of doubles would not. "12.50" is
// 12.495 to 12.505, and its quotient by "5.0" (4.95 to 5.05) is 2.474 to 2.526.
#include "linerate/bench_logs/printed_number.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "linerate/bench_logs/log_words.hpp"

namespace linerate::bench_logs {
namespace {

// A decimal on the very border of its interval is not lost to binary rounding.
constexpr double kBinaryRounding = 1e-12;

/// Half a unit of the last digit that counts: 0.005 of "12.50", 5 of "1.2e+02". Zeros at the end of
/// a whole number may stand for digits that were cut: 500 of "101000".
double half_unit(std::string word) {
  constexpr std::string_view kDigits = "0123456789";
  const std::size_t end = std::min(word.find_first_of("eE"), word.size());
  const bool whole = word.find('.') >= end;
  std::size_t last = word.find_last_of(whole ? kDigits.substr(1) : kDigits, end - 1);
  if (last == std::string::npos) last = end - 1;  // "0"
  std::replace_if(
      word.begin(), word.begin() + static_cast<std::ptrdiff_t>(end),
      [](char c) { return c >= '0' && c <= '9'; }, '0');
  word[last] = '1';
  return 0.5 * std::abs(number_of(word).value_or(0));
}

}  // namespace

Interval Interval::with(const Interval& other) const {
  return {std::max(low, other.low), std::min(high, other.high)};
}

Interval Interval::over(const Interval& divisor) const {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  return {divisor.high < kNone && divisor.high > 0 ? low / divisor.high : 0,
          divisor.low > 0 ? high / divisor.low : kNone};
}

std::optional<Printed> printed_number(std::string_view word) {
  const auto value = number_of(word);
  if (!value) return std::nullopt;
  const double slack = half_unit(std::string(word)) + kBinaryRounding * std::abs(*value);
  return Printed{*value, {std::max(0.0, *value - slack), std::max(0.0, *value + slack)}};
}

}  // namespace linerate::bench_logs
