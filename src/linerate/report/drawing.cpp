// What the page's script draws, as JSON. Geometry is the script's: a page is drawn as wide as the
// window that shows it. Here values that cannot be drawn are left out, so that the script needs no
// rules for them.
#include <algorithm>
#include <cmath>

#include "linerate/core/text.hpp"
#include "linerate/report/sections.hpp"

namespace linerate::report {

using doc::Json;

// "</script>" in a name would end the element, "<!--" would hide its end. In JSON "<" stands only
// inside strings, and there \u003c means the same. Names of traces may hold bytes that are no
// UTF-8: they are replaced.
Drawing drawing_of(const std::string& name, const Json& json, bool any, const char* nothing) {
  Drawing drawing{name, "", nothing};
  if (!any) return drawing;
  for (const char c : json.dump(-1, ' ', false, Json::error_handler_t::replace))
    drawing.json += c == '<' ? "\\u003c" : std::string(1, c);
  return drawing;
}

// A point is [x, y], or [x, y, low, high] with an interval. y is null in a gap. The range holds
// what is fixed of the y axis; the script widens it to the data.
Drawing drawing_of(const LineChart& chart) {
  Json lines = Json::array(), range = Json::array();
  bool any = false;
  for (const Series& s : chart.series) {
    Json points = Json::array();
    for (const Point& p : drawable(s, chart.log_x).points) {
      Json& point = points.emplace_back(Json::array({p.x, doc::json_of(p.y)}));
      if (p.low) point.push_back(*p.low), point.push_back(*p.high);
      any = any || p.y;
    }
    lines.push_back({{"name", s.name}, {"points", points}});
  }
  for (const std::optional<double>& y : {chart.y_low, chart.y_high})
    if (y) range.push_back(*y);
  return drawing_of(chart.name,
                    {{"kind", "lines"},
                     {"x_label", chart.x_label},
                     {"y_label", chart.y_label},
                     {"log_x", chart.log_x},
                     {"y_range", range},
                     {"series", lines}},
                    any);
}

// An interval needs both ends: a bar with one end would be read as one that ends at the dot.
Json chart_row(const std::string& name, const doc::Bounded& time_s, bool emphasised,
               const std::vector<double>& parts_s) {
  Json row = {{"name", name},
              {"value_s", time_s.value},
              {"text", format_time(time_s.value)},
              {"emphasised", emphasised},
              {"parts_s", parts_s}};
  if (time_s.has_interval()) row["low_s"] = *time_s.low, row["high_s"] = *time_s.high;
  return row;
}

Drawing drawing_of_rows(const std::string& name, const std::string& label,
                        const std::vector<Json>& rows, const std::vector<std::string>& parts) {
  return drawing_of(name, {{"kind", "rows"}, {"label", label}, {"parts", parts}, {"rows", rows}},
                    !rows.empty());
}

namespace {

constexpr double kSlack = 1e-9;  // relative; a tick that rounding put just outside still counts

bool known(const std::optional<double>& v) { return v && std::isfinite(*v); }

// The multiples of powers of ten by `digits` that are inside [low, high], ascending.
std::vector<double> decades(double low, double high, std::initializer_list<int> digits) {
  std::vector<double> ticks;
  const int last = static_cast<int>(std::ceil(std::log10(high)));
  for (int k = static_cast<int>(std::floor(std::log10(low))); k <= last; ++k)
    for (const int digit : digits) {
      const double tick = digit * std::pow(10.0, k);
      if (tick >= low * (1 - kSlack) && tick <= high * (1 + kSlack)) ticks.push_back(tick);
    }
  return ticks;
}

}  // namespace

double Scale::operator()(double value) const {
  if (high <= low) return (from + to) / 2;
  const auto of = [this](double x) { return logarithmic ? std::log(x) : x; };
  return from + (of(value) - of(low)) / (of(high) - of(low)) * (to - from);
}

// The least round step that gives no more than `most` marks. An example: over [0, 1] a step of 0.1
// gives 11 marks, one of 0.2 gives 6, one of 0.5 gives 3. With at most 6 it is 0.2, with at most 5
// it is 0.5. Marks are computed as k times the step: adding the step up would gather rounding
// errors.
std::vector<double> linear_ticks(double low, double high, int most) {
  if (!(high > low)) return {low};
  const double rough = (high - low) / std::max(1, most);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = power;
  for (const int digit : {1, 2, 5, 10}) {
    step = digit * power;
    if (std::floor(high / step + kSlack) - std::ceil(low / step - kSlack) + 1 <= most) break;
  }
  std::vector<double> ticks;
  for (double k = std::ceil(low / step - kSlack); k * step <= high + step * kSlack; ++k)
    ticks.push_back(k * step + 0.0);  // + 0: never "-0"
  return ticks;
}

// An example: [1, 100] has 1, 2, 5, 10, 20, 50, 100. If at most 6 are asked for, it has 1, 10, 100.
// [20, 40] has 20 alone, which says nothing of the scale: it is marked as a linear one, at 20, 25,
// 30 and so on.
std::vector<double> log_ticks(double low, double high, int most) {
  if (!(high > low)) return {low};
  std::vector<double> ticks = decades(low, high, {1, 2, 5});
  if (static_cast<int>(ticks.size()) > most) ticks = decades(low, high, {1});
  return ticks.size() < 2 ? linear_ticks(low, high, most) : ticks;
}

// A point of unknown y stays, as it makes the gap. An interval with one unknown end is dropped as a
// whole.
Series drawable(const Series& series, bool log_x) {
  Series out{series.name, {}};
  for (Point p : series.points) {
    if (!std::isfinite(p.x) || (log_x && p.x <= 0)) continue;
    if (!known(p.y)) p.y.reset();
    if (!known(p.low) || !known(p.high)) p.low.reset(), p.high.reset();
    out.points.push_back(p);
  }
  std::ranges::stable_sort(out.points, {}, &Point::x);
  return out;
}

}  // namespace linerate::report
