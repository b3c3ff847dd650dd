#include "linerate/bench_logs/printed_number.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "linerate/bench_logs/log_words.hpp"

namespace linerate::bench_logs {
namespace {

// A decimal that stands exactly on the border of its interval is not lost to binary rounding.
constexpr double kBinaryRounding = 1e-12;

/// The power of ten of the last digit that counts: -2 of "12.50", 1 of "1.2e+02". Zeros at the end
/// of a whole number may stand for digits that were cut: 3 of "101000".
int place_of_last_digit(std::string_view word) {
  const std::size_t exponent = word.find_first_of("eE");
  int place = 0;
  if (exponent != std::string_view::npos) {
    std::string_view digits = word.substr(exponent + 1);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    std::from_chars(digits.data(), digits.data() + digits.size(), place);
  }
  const std::string_view mantissa = word.substr(0, exponent);
  const std::size_t point = mantissa.find('.');
  if (point != std::string_view::npos) return place - static_cast<int>(mantissa.size() - point - 1);
  const std::size_t last = mantissa.find_last_not_of('0');
  return last == std::string_view::npos ? place
                                        : place + static_cast<int>(mantissa.size() - last - 1);
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
  const double half = 0.5 * std::pow(10.0, place_of_last_digit(word));
  const double slack = half + kBinaryRounding * std::abs(*value);
  return Printed{*value, {std::max(0.0, *value - slack), std::max(0.0, *value + slack)}};
}

}  // namespace linerate::bench_logs
