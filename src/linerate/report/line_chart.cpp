#include "linerate/report/line_chart.hpp"

#include <algorithm>
#include <cmath>

namespace linerate::report {
namespace {

bool known(const std::optional<double>& v) { return v && std::isfinite(*v); }

}  // namespace

// A point of unknown y stays, as it makes the gap. An interval with one unknown end is dropped as a
// whole.
Series drawable(const Series& series, bool log_x) {
  Series out{series.name, {}};
  for (Point p : series.points) {
    if (!std::isfinite(p.x) || (log_x && p.x <= 0)) continue;
    if (!known(p.y)) p.y.reset();
    if (!known(p.low) || !known(p.high)) p.low.reset(), p.high.reset();
    out.points.push_back(p);
  }
  std::stable_sort(out.points.begin(), out.points.end(),
                   [](const Point& a, const Point& b) { return a.x < b.x; });
  return out;
}

}  // namespace linerate::report
