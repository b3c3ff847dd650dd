#include "linerate/report/scale.hpp"

#include <algorithm>
#include <cmath>

#include "linerate/core/index.hpp"

namespace linerate::report {
namespace {

constexpr double kSlack = 1e-9;  // relative; a tick that rounding put just outside still counts

// The multiples of powers of ten by `digits` that are inside [low, high], ascending.
std::vector<double> decades(double low, double high, std::initializer_list<int> digits) {
  std::vector<double> ticks;
  const int last = static_cast<int>(std::ceil(std::log10(high)));
  for (int k = static_cast<int>(std::floor(std::log10(low))); k <= last; ++k)
    for (const int digit : digits) {
      const double tick = digit * std::pow(10.0, k);
      if (tick >= low * (1 - kSlack) && tick <= high * (1 + kSlack)) ticks.push_back(tick);
    }
  return ticks;
}

}  // namespace

Scale::Scale(bool log, double low, double high, double from, double to)
    : log_(log),
      low_(log ? std::log(low) : low),
      high_(log ? std::log(high) : high),
      from_(from),
      to_(to) {}

double Scale::operator()(double value) const {
  if (high_ <= low_) return (from_ + to_) / 2;
  return from_ + ((log_ ? std::log(value) : value) - low_) / (high_ - low_) * (to_ - from_);
}

// The least round step that gives no more than `most` marks. An example: over [0, 1] a step of 0.1
// gives 11 marks, one of 0.2 gives 6, one of 0.5 gives 3. With at most 6 it is 0.2, with at most 5
// it is 0.5. Marks are computed as k times the step: adding the step up would gather rounding
// errors.
std::vector<double> linear_ticks(double low, double high, int most) {
  if (!(high > low)) return {low};
  const double rough = (high - low) / std::max(1, most);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = power;
  for (const int digit : {1, 2, 5, 10}) {
    step = digit * power;
    if (std::floor(high / step + kSlack) - std::ceil(low / step - kSlack) + 1 <= most) break;
  }
  std::vector<double> ticks;
  for (double k = std::ceil(low / step - kSlack); k * step <= high + step * kSlack; ++k)
    ticks.push_back(k * step + 0.0);  // + 0: never "-0"
  return ticks;
}

// An example: [1, 100] has 1, 2, 5, 10, 20, 50, 100. If at most 6 are asked for, it has 1, 10, 100.
// [20, 40] has 20 alone, which says nothing of the scale: it is marked as a linear one, at 20, 25,
// 30 and so on.
std::vector<double> log_ticks(double low, double high, int most) {
  if (!(high > low)) return {low};
  std::vector<double> ticks = decades(low, high, {1, 2, 5});
  if (static_cast<int>(ticks.size()) > most) ticks = decades(low, high, {1});
  // A dozen decades on a narrow axis: every second, third ... of them.
  const std::size_t stride = (ticks.size() + to_index(most) - 1) / to_index(most);
  std::vector<double> kept;
  for (std::size_t i = 0; i < ticks.size(); i += std::max<std::size_t>(1, stride))
    kept.push_back(ticks[i]);
  return kept.size() < 2 ? linear_ticks(low, high, most) : kept;
}

}  // namespace linerate::report
