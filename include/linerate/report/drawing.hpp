// What a chart shows, as data for the script of the page (page.js), which draws it.
#pragma once

#include <string>

#include "linerate/report/heat_map.hpp"
#include "linerate/report/line_chart.hpp"
#include "linerate/report/row_chart.hpp"
#include "linerate/report/timeline_chart.hpp"

namespace linerate::report {

struct Drawing {
  std::string name;  // for screen readers
  /// May stand inside a script element whatever the names in it: no "<", valid UTF-8. Empty: the
  /// chart has nothing to draw.
  std::string json;
  std::string nothing;  // what the page says then
};

Drawing drawing_of(const LineChart& chart);
Drawing drawing_of(const RowChart& chart);
Drawing drawing_of(const HeatMap& map);
Drawing drawing_of(const TimelineChart& chart);

}  // namespace linerate::report
