// Lines with interval bands over a linear or logarithmic axis.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace linerate::report {

/// Absent y: the value is undefined and the line has a gap. Values that are not finite count as
/// absent.
struct Point {
  double x = 0;
  std::optional<double> y;
  std::optional<double> low, high;  // interval; drawn if both are known
};

/// One line. Points are drawn in ascending x, whatever their order here.
struct Series {
  std::string name;
  std::vector<Point> points;
};

struct LineChart {
  std::string name;                     // for screen readers
  std::string x_label;                  // with unit
  std::string y_label;                  // with unit
  bool log_x = true;                    // points with x <= 0 are left out
  std::optional<double> y_low, y_high;  // at least this range is shown
  std::vector<Series> series;
};

/// A series as the chart draws it: ascending x, only what can be drawn; gaps kept as absent y.
Series drawable(const Series& series, bool log_x);

}  // namespace linerate::report
