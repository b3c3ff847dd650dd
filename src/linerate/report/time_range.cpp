// Intervals of fitted costs may be narrower than the three digits that times have elsewhere. Both
// ends would print alike and look like a typing error.
#include "linerate/report/texts.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "linerate/core/text.hpp"

namespace linerate::report {
namespace {

constexpr int kUsualDigits = 3, kMostDigits = 7;

struct Unit {
  std::string_view name;
  double seconds;
};

// The greatest unit that leaves a number of at least 1.
Unit unit_of(double seconds) {
  for (const Unit u : {Unit{"s", 1}, Unit{"ms", 1e-3}, Unit{"us", 1e-6}})
    if (seconds >= u.seconds) return u;
  return {"ns", 1e-9};
}

// With so many digits in all. Of 128.336 ms three stand before the point: five digits are 128.34.
std::string with_digits(double seconds, Unit unit, int digits) {
  const double value = seconds / unit.seconds;
  const int whole = value >= 1 ? static_cast<int>(std::floor(std::log10(value))) + 1 : 1;
  return fmt::format("{:.{}f} {}", value, std::max(0, digits - whole), unit.name);
}

}  // namespace

// Digits are added one at a time until the ends differ. Beyond seven a difference is rounding, not
// information.
std::string time_range(double low_s, double high_s) {
  std::string low = format_time(low_s), high = format_time(high_s);
  const Unit unit = unit_of(high_s);
  for (int digits = kUsualDigits + 1; low == high && low_s < high_s && digits <= kMostDigits;
       ++digits) {
    low = with_digits(low_s, unit, digits);
    high = with_digits(high_s, unit, digits);
  }
  return low + " .. " + high;
}

}  // namespace linerate::report
