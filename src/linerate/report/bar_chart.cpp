#include "linerate/report/bar_chart.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/report/row_frame.hpp"

namespace linerate::report {
namespace {

std::string colour(std::size_t part) { return fmt::format("c{} bar edged", part % 8); }

double length_of(const BarRow& row) {
  double sum = 0;
  for (const double part : row.parts) sum += std::max(0.0, part);
  return std::max(sum, row.total);
}

void draw_bar(Svg& svg, const BarChart& chart, const BarRow& row, const Scale& x, double y) {
  double begin = 0;
  for (std::size_t p = 0; p < row.parts.size(); ++p) {
    if (!(row.parts[p] > 0)) continue;
    const double end = begin + row.parts[p];
    svg.rect(x(begin), y, x(end) - x(begin), 16, colour(p),
             fmt::format("{}, {}: {}", row.name, chart.parts[p], chart.format_x(row.parts[p])));
    begin = end;
  }
}

}  // namespace

std::string draw(const BarChart& chart, Layout layout) {
  RowFrame::Needs needs;
  for (const BarRow& r : chart.rows) {
    needs.highest = std::max(needs.highest, length_of(r));
    needs.names = std::max(needs.names, text_width(r.name, kFontSize));
    needs.values = std::max(needs.values, text_width(chart.format_x(r.total), kFontSize));
  }
  needs.row_height = layout == Layout::wide ? 26 : 42;
  needs.rows = chart.rows.size();
  const RowFrame frame(layout, needs);
  Svg svg(frame.width(), frame.height());
  frame.draw_axis(svg, chart.x_label, chart.format_x);
  for (std::size_t i = 0; i < chart.rows.size(); ++i) {
    const BarRow& r = chart.rows[i];
    const double y = frame.top_of(i) + (frame.wide() ? 5 : 20);
    frame.draw_name(svg, i, y + 12, r.name);
    draw_bar(svg, chart, r, frame.x(), y);
    svg.text(frame.x()(length_of(r)) + 8, y + 12, chart.format_x(r.total), Anchor::start, "tick");
  }
  return svg.str(chart.name);
}

std::string legend(const BarChart& chart) {
  std::string items;
  for (std::size_t p = 0; p < chart.parts.size(); ++p) {
    if (std::none_of(chart.rows.begin(), chart.rows.end(),
                     [p](const BarRow& r) { return r.parts[p] > 0; }))
      continue;
    items += fmt::format(
        "<li><svg class=\"key\" viewBox=\"0 0 28 12\" aria-hidden=\"true\"><rect x=\"1\" y=\"0\" "
        "width=\"26\" height=\"12\" class=\"{}\"/></svg><span>{}</span></li>",
        colour(p), escape(chart.parts[p]));
  }
  return "<ul class=\"legend\">" + items + "</ul>\n";
}

}  // namespace linerate::report
