// Charts as data for the script of the page (page.js), which draws them.
#pragma once

#include "linerate/report/heat_map.hpp"
#include "linerate/report/line_chart.hpp"
#include "linerate/report/page.hpp"
#include "linerate/report/row_chart.hpp"
#include "linerate/report/timeline_chart.hpp"

namespace linerate::report {

Drawing drawing_of(const LineChart& chart);
Drawing drawing_of(const RowChart& chart);
Drawing drawing_of(const HeatMap& map);
Drawing drawing_of(const TimelineChart& chart);

}  // namespace linerate::report
