#include "linerate/report/dot_chart.hpp"

#include <algorithm>
#include <cmath>

#include "linerate/report/scale.hpp"

namespace linerate::report {
namespace {

bool finite(const DotRow& r) { return std::isfinite(r.value); }

double high_of(const DotRow& r) {
  return r.high && std::isfinite(*r.high) ? std::max(*r.high, r.value) : r.value;
}

}  // namespace

std::string draw(const DotChart& chart, Layout layout) {
  const bool wide = layout == Layout::wide;
  const double width = width_of(layout), row_height = wide ? 26 : 40;
  double highest = 0, names = 0, values = 0;
  std::vector<DotRow> rows;
  for (const DotRow& r : chart.rows) {
    if (!finite(r)) continue;
    rows.push_back(r);
    highest = std::max(highest, high_of(r));
    names = std::max(names, text_width(r.name, kFontSize) * (r.emphasised ? 1.1 : 1));
    values = std::max(values, text_width(chart.format_x(r.value), kFontSize));
  }
  const double bottom = 8 + row_height * static_cast<double>(rows.size());
  Svg svg(width, rows.empty() ? 80 : bottom + 44);
  if (rows.empty()) {
    svg.text(width / 2, 44, "No defined value to draw", Anchor::middle, "label");
    return svg.str(chart.name);
  }
  // Narrow: the name stands above its dot, so that long strategies keep the axis wide.
  const double name_room = wide ? std::min(names, width * 0.45) : 0;
  const double left = wide ? name_room + 12 : 4, right = width - values - 16;
  const Scale x = Scale::linear(0, highest > 0 ? highest : 1, left, right);
  for (const double tick : linear_ticks(0, highest > 0 ? highest : 1, wide ? 8 : 4)) {
    svg.line(x(tick), 4, x(tick), bottom, "grid");
    const std::string label = chart.format_x(tick);
    svg.text(std::max(x(tick), text_width(label, kFontSize) / 2), bottom + 16, label,
             Anchor::middle, "tick");
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const DotRow& r = rows[i];
    const double top = 8 + row_height * static_cast<double>(i), y = wide ? top + 13 : top + 28;
    const std::string colour = r.emphasised ? "c5" : "c0";
    const std::string name = shortened(r.name, kFontSize, wide ? name_room : width - 8);
    svg.text(wide ? left - 10 : 0, wide ? y + 4 : top + 14, name,
             wide ? Anchor::end : Anchor::start, r.emphasised ? "strong" : "");
    if (r.low && r.high && std::isfinite(*r.low) && std::isfinite(*r.high))
      svg.line(x(std::max(0.0, *r.low)), y, x(*r.high), y, colour + " whisker");
    svg.marker(x(r.value), y, r.emphasised ? 3 : 0, colour + " mark",
               r.name + ": " + chart.format_x(r.value));
    svg.text(right + 10, y + 4, chart.format_x(r.value), Anchor::start, "tick");
  }
  svg.text((left + right) / 2, bottom + 36, chart.x_label, Anchor::middle, "label");
  return svg.str(chart.name);
}

}  // namespace linerate::report
