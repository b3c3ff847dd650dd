// Times by name, a row each on a shared axis that begins at 0: a dot with its interval, or the
// parts that the time is made of.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace linerate::report {

struct ChartRow {
  std::string name;
  double value_s = 0;  // rows whose value is not finite are left out
  std::optional<double> low_s, high_s;
  bool emphasised = false;      // drawn in the accent colour, its name in bold
  std::vector<double> parts_s;  // as the chart names them; what is not above 0 has no length
};

struct RowChart {
  std::string name;                // for screen readers
  std::string label;               // of the axis, without unit
  std::vector<std::string> parts;  // empty: dots
  std::vector<ChartRow> rows;
};

}  // namespace linerate::report
