#include <array>
#include <cmath>
#include <numbers>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/zoo/schedule.hpp"

namespace linerate::zoo {
namespace {

/// From `high` to `low` along half a cosine, t in [0, 1].
double cosine(double high, double low, double t) {
  return low + (high - low) * (1 + std::cos(std::numbers::pi * t)) / 2;
}

}  // namespace

// One-cycle over 100 steps at rate .05: .005 at step 0, .05 at step 25, and .00005 at the end.
double RateSchedule::at(std::int64_t step) const {
  if (name == "constant") return rate;
  const double t = static_cast<double>(step) / static_cast<double>(steps);
  if (name == "cosine") return cosine(rate, 0, t);
  constexpr double rise = 0.25;
  return t < rise ? rate * (0.1 + 0.9 * t / rise)
                  : cosine(rate, rate / 1000, (t - rise) / (1 - rise));
}

const std::vector<std::string>& schedules() {
  static const std::vector<std::string> known = {"constant", "cosine", "one-cycle"};
  return known;
}

void check_schedule(const std::string& name) {
  for (const std::string& one : schedules())
    if (one == name) return;
  throw UsageError("--schedule: unknown schedule \"" + name +
                   "\". Known: " + join(schedules(), ", "));
}

}  // namespace linerate::zoo
