// One self-contained HTML page: no script, no external resource, readable on a phone, light and
// dark.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "linerate/report/bar_chart.hpp"
#include "linerate/report/dot_chart.hpp"
#include "linerate/report/heat_map.hpp"
#include "linerate/report/line_chart.hpp"
#include "linerate/report/timeline_chart.hpp"

namespace linerate::report {

/// Plain text cells; columns named in `numbers` are aligned right.
struct Table {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
  std::vector<bool> numbers;  // by column; shorter: the rest is text
};

/// A picture with its heading and caption; the table holds the same numbers for those who cannot
/// see it.
struct Figure {
  std::string title;
  std::string caption;
  std::string wide_svg, narrow_svg;
  std::string legend_html;
  std::optional<Table> data;  // folded away under "Numbers"
};

Figure figure(std::string title, std::string caption, const LineChart& chart);
Figure figure(std::string title, std::string caption, const TimelineChart& chart);
Figure figure(std::string title, std::string caption, const HeatMap& map);
Figure figure(std::string title, std::string caption, const DotChart& chart);
Figure figure(std::string title, std::string caption, const BarChart& chart);

/// A heading, paragraphs, figures, then an open table.
struct Section {
  std::string title;
  std::vector<std::string> paragraphs;
  std::vector<Figure> figures;
  std::optional<Table> table;
};

struct Page {
  std::string title;
  std::vector<std::string> sources;  // the documents it was made from
  std::string command;               // that made it
  std::string version;               // of linerate
  std::vector<Section> sections;
};

/// Same page in, same bytes out. Every text is escaped.
std::string to_html(const Page& page);

}  // namespace linerate::report
