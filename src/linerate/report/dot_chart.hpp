// Ranked values with their intervals: one row each, a dot and a whisker on a shared axis.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "linerate/report/svg.hpp"

namespace linerate::report {

struct DotRow {
  std::string name;
  double value = 0;  // rows whose value is not finite are left out
  std::optional<double> low, high;
  bool emphasised = false;  // drawn in the accent colour, its name in bold
};

struct DotChart {
  std::string name;     // for screen readers
  std::string x_label;  // with unit
  std::vector<DotRow> rows;
  std::function<std::string(double)> format_x;  // tick labels and values
};

/// The axis begins at 0, so that lengths compare.
std::string draw(const DotChart& chart, Layout layout);

}  // namespace linerate::report
