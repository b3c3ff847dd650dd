#include "linerate/report/dot_chart.hpp"

#include <algorithm>
#include <cmath>

#include "linerate/report/row_frame.hpp"

namespace linerate::report {
namespace {

bool finite(const DotRow& r) { return std::isfinite(r.value); }

double high_of(const DotRow& r) {
  return r.high && std::isfinite(*r.high) ? std::max(*r.high, r.value) : r.value;
}

}  // namespace

std::string draw(const DotChart& chart, Layout layout) {
  RowFrame::Needs needs;
  std::vector<DotRow> rows;
  for (const DotRow& r : chart.rows) {
    if (!finite(r)) continue;
    rows.push_back(r);
    needs.highest = std::max(needs.highest, high_of(r));
    needs.names = std::max(needs.names, text_width(r.name, kFontSize) * (r.emphasised ? 1.1 : 1));
    needs.values = std::max(needs.values, text_width(chart.format_x(r.value), kFontSize));
  }
  needs.row_height = layout == Layout::wide ? 26 : 40;
  needs.rows = rows.size();
  const RowFrame frame(layout, needs);
  Svg svg(frame.width(), rows.empty() ? 80 : frame.height());
  if (rows.empty()) {
    svg.text(frame.width() / 2, 44, "No defined value to draw", Anchor::middle, "label");
    return svg.str(chart.name);
  }
  frame.draw_axis(svg, chart.x_label, chart.format_x);
  const Scale& x = frame.x();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const DotRow& r = rows[i];
    const double y = frame.top_of(i) + (frame.wide() ? 13 : 28);
    const std::string colour = r.emphasised ? "c5" : "c0";
    frame.draw_name(svg, i, y + 4, r.name, r.emphasised ? "strong" : "");
    if (r.low && r.high && std::isfinite(*r.low) && std::isfinite(*r.high))
      svg.line(x(std::max(0.0, *r.low)), y, x(*r.high), y, colour + " whisker");
    svg.marker(x(r.value), y, r.emphasised ? 3 : 0, colour + " mark",
               r.name + ": " + chart.format_x(r.value));
    svg.text(frame.right() + 10, y + 4, chart.format_x(r.value), Anchor::start, "tick");
  }
  return svg.str(chart.name);
}

}  // namespace linerate::report
