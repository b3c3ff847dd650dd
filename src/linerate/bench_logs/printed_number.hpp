// Private: decimals of a log, and what they may have been before they were rounded.
#pragma once

#include <limits>
#include <optional>
#include <string_view>

namespace linerate::bench_logs {

/// low <= x <= high; the default holds every number from 0.
struct Interval {
  double low = 0;
  double high = std::numeric_limits<double>::infinity();

  bool empty() const { return low > high; }
  bool holds(double x) const { return low <= x && x <= high; }
  Interval with(const Interval& other) const;
  /// The quotients of positive numbers.
  Interval over(const Interval& divisor) const;
};

struct Printed {
  double value = 0;
  Interval range;  // half a unit of its last digit either way, never below 0
};

/// "12.50" stands for 12.495 to 12.505, "1.2e+02" for 115 to 125, "2200" for 2150 to 2250: its
/// zeros may be digits that were cut. nullopt for other words.
std::optional<Printed> printed_number(std::string_view word);

}  // namespace linerate::bench_logs
