#include "linerate/report/line_chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "linerate/report/scale.hpp"

namespace linerate::report {
namespace {

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void add(double v) { low = std::min(low, v), high = std::max(high, v); }
  bool empty() const { return low > high; }
};

struct Frame {
  double left, right, top, bottom;
  Scale x, y;
};

bool known(const std::optional<double>& v) { return v && std::isfinite(*v); }

// Eight colours; from the ninth line on the dashes tell lines of one colour apart.
std::string style_of(std::size_t i, std::string_view role) {
  return fmt::format("c{} d{} {}", i % 8, i / 8 % 4, role);
}

std::string polyline(const std::vector<Point>& points, std::size_t begin, std::size_t end,
                     const Frame& f) {
  std::string data;
  for (std::size_t i = begin; i < end; ++i)
    data +=
        fmt::format("{}{:.1f} {:.1f}", i == begin ? 'M' : 'L', f.x(points[i].x), f.y(*points[i].y));
  return data;
}

// Calls f(begin, end) for each stretch of points for which `has` holds.
template <typename Has, typename F>
void for_stretches(const std::vector<Point>& points, Has has, F f) {
  for (std::size_t i = 0; i < points.size();) {
    std::size_t end = i;
    while (end < points.size() && has(points[end])) ++end;
    if (end > i) f(i, end);
    i = end + 1;
  }
}

void draw_band(Svg& svg, const std::vector<Point>& points, const Frame& f,
               const std::string& style) {
  for_stretches(
      points, [](const Point& p) { return p.y && p.low && p.high; },
      [&](std::size_t begin, std::size_t end) {
        if (end - begin == 1) {
          const double x = f.x(points[begin].x);
          svg.line(x, f.y(*points[begin].low), x, f.y(*points[begin].high), style + " whisker");
          return;
        }
        std::string data;
        for (std::size_t i = begin; i < end; ++i)
          data += fmt::format("{}{:.1f} {:.1f}", i == begin ? 'M' : 'L', f.x(points[i].x),
                              f.y(*points[i].high));
        for (std::size_t i = end; i-- > begin;)
          data += fmt::format("L{:.1f} {:.1f}", f.x(points[i].x), f.y(*points[i].low));
        svg.path(data + "z", style + " band");
      });
}

std::string tooltip(const LineChart& chart, const Series& s, const Point& p) {
  std::string text = fmt::format("{}: {} at {}", s.name, chart.format_y(*p.y), chart.format_x(p.x));
  if (p.low && p.high)
    text += fmt::format(", interval {} to {}", chart.format_y(*p.low), chart.format_y(*p.high));
  return text;
}

void draw_axes(Svg& svg, const LineChart& chart, const Frame& f, Range x, Range y, Layout layout) {
  for (const double tick : linear_ticks(y.low, y.high, 6)) {
    svg.line(f.left, f.y(tick), f.right, f.y(tick), "grid");
    svg.text(f.left - 8, f.y(tick) + 4, chart.format_y(tick), Anchor::end, "tick");
  }
  const int most = layout == Layout::wide ? 10 : 6;
  double free_from = -1;
  for (const double tick :
       chart.log_x ? log_ticks(x.low, x.high, most) : linear_ticks(x.low, x.high, most)) {
    const std::string label = chart.format_x(tick);
    const double half = text_width(label, kFontSize) / 2, at = f.x(tick);
    svg.line(at, f.bottom, at, f.bottom + 4, "axis");
    if (at - half < free_from) continue;
    svg.text(at, f.bottom + 18, label, Anchor::middle, "tick");
    free_from = at + half + 6;
  }
  svg.line(f.left, f.bottom, f.right, f.bottom, "axis");
  svg.text((f.left + f.right) / 2, f.bottom + 38, chart.x_label, Anchor::middle, "label");
  svg.text(0, 14, chart.y_label, Anchor::start, "label");
}

}  // namespace

Series drawable(const Series& series, bool log_x) {
  Series out{series.name, {}};
  for (Point p : series.points) {
    if (!std::isfinite(p.x) || (log_x && p.x <= 0)) continue;
    if (!known(p.y)) p.y.reset();
    if (!known(p.low) || !known(p.high)) p.low.reset(), p.high.reset();
    out.points.push_back(p);
  }
  std::stable_sort(out.points.begin(), out.points.end(),
                   [](const Point& a, const Point& b) { return a.x < b.x; });
  return out;
}

std::string draw(const LineChart& chart, Layout layout) {
  std::vector<Series> series;
  Range x, y;
  for (const Series& s : chart.series) {
    series.push_back(drawable(s, chart.log_x));
    for (const Point& p : series.back().points) {
      if (!p.y) continue;
      x.add(p.x), y.add(*p.y);
      if (p.low) y.add(*p.low), y.add(*p.high);
    }
  }
  const double width = width_of(layout), height = layout == Layout::wide ? 400 : 320;
  Svg svg(width, height);
  if (x.empty()) {
    svg.text(width / 2, height / 2, "No defined value to draw", Anchor::middle, "label");
    return svg.str(chart.name);
  }
  if (chart.y_low) y.add(*chart.y_low);
  if (chart.y_high) y.add(*chart.y_high);
  if (y.low == y.high) y.low -= 0.5, y.high += 0.5;
  double left = 0;
  for (const double tick : linear_ticks(y.low, y.high, 6))
    left = std::max(left, text_width(chart.format_y(tick), kFontSize));
  left += 12;
  const double right = width - 12, top = 30, bottom = height - 48;
  const Frame frame{left,
                    right,
                    top,
                    bottom,
                    chart.log_x ? Scale::logarithmic(x.low, x.high, left + 8, right - 8)
                                : Scale::linear(x.low, x.high, left + 8, right - 8),
                    Scale::linear(y.low, y.high, bottom, top)};
  draw_axes(svg, chart, frame, x, y, layout);
  for (std::size_t i = 0; i < series.size(); ++i)
    draw_band(svg, series[i].points, frame, style_of(i, ""));
  for (std::size_t i = 0; i < series.size(); ++i) {
    const std::vector<Point>& points = series[i].points;
    for_stretches(
        points, [](const Point& p) { return p.y.has_value(); },
        [&](std::size_t begin, std::size_t end) {
          if (end - begin > 1) svg.path(polyline(points, begin, end, frame), style_of(i, "line"));
        });
    for (const Point& p : points)
      if (p.y)
        svg.marker(frame.x(p.x), frame.y(*p.y), static_cast<int>(i), style_of(i, "mark"),
                   tooltip(chart, series[i], p));
  }
  return svg.str(chart.name);
}

std::string legend(const LineChart& chart) {
  std::string items;
  for (std::size_t i = 0; i < chart.series.size(); ++i)
    items += fmt::format(
        "<li><svg class=\"key\" viewBox=\"0 0 28 12\" aria-hidden=\"true\"><path d=\"M0 6H28\" "
        "class=\"{}\"/>"
        "<path d=\"{}\" class=\"{}\"/></svg>{}</li>",
        style_of(i, "line"), marker_path(14, 6, static_cast<int>(i)), style_of(i, "mark"),
        escape(chart.series[i].name));
  return "<ul class=\"legend\">" + items + "</ul>\n";
}

}  // namespace linerate::report
