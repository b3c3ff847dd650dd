// What totals are made of: one row each, its parts one behind the other on a shared axis.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "linerate/report/svg.hpp"

namespace linerate::report {

struct BarRow {
  std::string name;
  std::vector<double> parts;  // as the chart names them; what is not above 0 has no length
  double total = 0;           // printed behind the bar
};

struct BarChart {
  std::string name;     // for screen readers
  std::string x_label;  // with unit
  std::vector<std::string> parts;
  std::vector<BarRow> rows;
  std::function<std::string(double)> format_x;  // tick labels and values
};

std::string draw(const BarChart& chart, Layout layout);
/// Colour and name of each part that any row has, as an HTML list.
std::string legend(const BarChart& chart);

}  // namespace linerate::report
