#include "linerate/report/bar_chart.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/report/scale.hpp"

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
  const bool wide = layout == Layout::wide;
  const double width = width_of(layout), row_height = wide ? 26 : 42;
  double longest = 0, names = 0, values = 0;
  for (const BarRow& r : chart.rows) {
    longest = std::max(longest, length_of(r));
    names = std::max(names, text_width(r.name, kFontSize));
    values = std::max(values, text_width(chart.format_x(r.total), kFontSize));
  }
  const double bottom = 8 + row_height * static_cast<double>(chart.rows.size());
  Svg svg(width, bottom + 44);
  // Narrow: the name stands above its bar, so that long strategies keep the axis wide.
  const double name_room = wide ? std::min(names, width * 0.45) : 0;
  const double left = wide ? name_room + 12 : 4, right = width - values - 16;
  const Scale x = Scale::linear(0, longest > 0 ? longest : 1, left, right);
  for (const double tick : linear_ticks(0, longest > 0 ? longest : 1, wide ? 8 : 4)) {
    svg.line(x(tick), 4, x(tick), bottom, "grid");
    const std::string label = chart.format_x(tick);
    svg.text(std::max(x(tick), text_width(label, kFontSize) / 2), bottom + 16, label,
             Anchor::middle, "tick");
  }
  for (std::size_t i = 0; i < chart.rows.size(); ++i) {
    const BarRow& r = chart.rows[i];
    const double top = 8 + row_height * static_cast<double>(i), y = wide ? top + 5 : top + 20;
    svg.text(wide ? left - 10 : 0, wide ? y + 12 : top + 14,
             shortened(r.name, kFontSize, wide ? name_room : width - 8),
             wide ? Anchor::end : Anchor::start);
    draw_bar(svg, chart, r, x, y);
    svg.text(x(length_of(r)) + 8, y + 12, chart.format_x(r.total), Anchor::start, "tick");
  }
  svg.text((left + right) / 2, bottom + 36, chart.x_label, Anchor::middle, "label");
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
