// What the page's script draws, as JSON. Geometry is the script's: a page is drawn as wide as the
// window that shows it. Here values that cannot be drawn are left out, so that the script needs no
// rules for them.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/json.hpp"
#include "linerate/report/sections.hpp"

namespace linerate::report {
namespace {

using doc::Json;

// A colour per kind, fixed, so that pages can be compared. Kinds that share one never meet in a
// row. In the order of TaskKind.
constexpr std::array kColours =
    std::to_array<std::string_view>({"c0", "c6", "c3", "c4", "c5", "c7", "c2", "c2", "c1", "n",
                                     "c4", "c3", "c2", "c1", "n", "c0", "n"});
static_assert(kColours.size() == doc::kTaskKindNames.size());

// "</script>" in a name would end the element, "<!--" would hide its end. In JSON "<" stands only
// inside strings, and there \u003c means the same. Names of traces may hold bytes that are no
// UTF-8: they are replaced.
std::string inside_script(const Json& json) {
  std::string out;
  for (const char c : json.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

// Without anything to draw the JSON stays empty, and the page says so in words.
Drawing drawing(const std::string& name, const Json& json, bool any,
                const char* nothing = "No defined value to draw") {
  return {name, any ? inside_script(json) : "", nothing};
}

// [x, y], or [x, y, low, high] with an interval. y is null in a gap.
Json json_of(const Point& p) {
  if (p.low) return Json::array({p.x, doc::json_of(p.y), *p.low, *p.high});
  return Json::array({p.x, doc::json_of(p.y)});
}

// An interval needs both ends: a bar with one end would be read as one that ends at the dot.
Json json_of(const ChartRow& row) {
  Json json = {{"name", row.name},
               {"value_s", row.value_s},
               {"text", format_time(row.value_s)},
               {"emphasised", row.emphasised},
               {"parts_s", row.parts_s}};
  if (row.low_s && row.high_s && std::isfinite(*row.low_s) && std::isfinite(*row.high_s))
    json["low_s"] = *row.low_s, json["high_s"] = *row.high_s;
  return json;
}

// Bars name their kind by its place among those that occur. An example: forward, backward and
// all-reduce occur, so a bar of the all-reduce begins with 2. A bar is [kind, start, end, label,
// events]. A page may hold thousands, so they are lists without names.
class TimelineJson {
 public:
  Json of(const TimelineChart& chart) {
    number_kinds(chart);
    Json groups = Json::array();
    for (const TimelineGroup& g : chart.groups) {
      Json& group = groups.emplace_back(Json{{"title", g.title}, {"length_s", g.length_s}});
      group["rows"] = Json::array();
      for (const Row& row : g.rows) group["rows"].push_back(json_of(row));
    }
    return {{"kind", "timeline"}, {"kinds", kinds_}, {"groups", groups}};
  }

 private:
  // Kinds get numbers in the order of TaskKind, which is the order of the key. Kinds that do not
  // occur are not in it.
  void number_kinds(const TimelineChart& chart) {
    for (const TimelineGroup& g : chart.groups)
      for (const Row& row : g.rows)
        for (const std::vector<Bar>& lane : row.lanes)
          for (const Bar& bar : lane) number_of_[bar.kind] = 0;
    for (auto& [kind, number] : number_of_) {
      number = kinds_.size();
      kinds_.push_back({{"name", name_of(kind)}, {"colour", kColours[to_index(kind)]}});
    }
  }

  Json json_of(const Row& row) const {
    Json lanes = Json::array();
    for (const std::vector<Bar>& lane : row.lanes) {
      Json& bars = lanes.emplace_back(Json::array());
      for (const Bar& bar : lane)
        bars.push_back(
            Json::array({number_of_.at(bar.kind), bar.start_s, bar.end_s, bar.label, bar.events}));
    }
    return {{"rank", row.rank}, {"resource", name_of(row.resource)}, {"lanes", lanes}};
  }

  std::map<doc::TaskKind, std::size_t> number_of_;
  Json kinds_ = Json::array();
};

}  // namespace

// The range holds what is fixed of the y axis; the script widens it to the data.
Drawing drawing_of(const LineChart& chart) {
  Json lines = Json::array(), range = Json::array();
  bool any = false;
  for (const Series& s : chart.series) {
    Json points = Json::array();
    for (const Point& p : drawable(s, chart.log_x).points) {
      points.push_back(json_of(p));
      any = any || p.y;
    }
    lines.push_back({{"name", s.name}, {"points", points}});
  }
  for (const std::optional<double>& y : {chart.y_low, chart.y_high})
    if (y) range.push_back(*y);
  return drawing(chart.name,
                 {{"kind", "lines"},
                  {"x_label", chart.x_label},
                  {"y_label", chart.y_label},
                  {"log_x", chart.log_x},
                  {"y_range", range},
                  {"series", lines}},
                 any);
}

Drawing drawing_of(const RowChart& chart) {
  Json rows = Json::array();
  for (const ChartRow& row : chart.rows)
    if (std::isfinite(row.value_s)) rows.push_back(json_of(row));
  return drawing(chart.name,
                 {{"kind", "rows"}, {"label", chart.label}, {"parts", chart.parts}, {"rows", rows}},
                 !rows.empty());
}

Drawing drawing_of(const HeatMap& map) {
  LINERATE_CHECK(map.cells.size() == map.columns.size() * map.rows.size(), "cells of " + map.name);
  Json cells = Json::array();
  for (const HeatCell& cell : map.cells)
    cells.push_back(Json::array({cell.choice, cell.tied, cell.value}));
  return drawing(map.name,
                 {{"kind", "map"},
                  {"column_label", map.column_label},
                  {"row_label", map.row_label},
                  {"columns", map.columns},
                  {"rows", map.rows},
                  {"choices", map.choices},
                  {"cells", cells}},
                 !map.cells.empty());
}

Drawing drawing_of(const TimelineChart& chart) {
  const bool any = std::any_of(chart.groups.begin(), chart.groups.end(),
                               [](const TimelineGroup& g) { return g.length_s > 0; });
  return drawing(chart.name, TimelineJson().of(chart), any, "No event with a duration to draw");
}

namespace {

constexpr double kSlack = 1e-9;  // relative; a tick that rounding put just outside still counts

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

Scale::Scale(bool log, double low, double high, double from, double to)
    : log_(log),
      low_(log ? std::log(low) : low),
      high_(log ? std::log(high) : high),
      from_(from),
      to_(to) {}

double Scale::operator()(double value) const {
  if (high_ <= low_) return (from_ + to_) / 2;
  return from_ + ((log_ ? std::log(value) : value) - low_) / (high_ - low_) * (to_ - from_);
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
  // A dozen decades on a narrow axis: every second, third ... of them.
  const std::size_t stride = (ticks.size() + to_index(most) - 1) / to_index(most);
  std::vector<double> kept;
  for (std::size_t i = 0; i < ticks.size(); i += std::max<std::size_t>(1, stride))
    kept.push_back(ticks[i]);
  return kept.size() < 2 ? linear_ticks(low, high, most) : kept;
}

namespace {

bool known(const std::optional<double>& v) { return v && std::isfinite(*v); }

}  // namespace

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
  std::stable_sort(out.points.begin(), out.points.end(),
                   [](const Point& a, const Point& b) { return a.x < b.x; });
  return out;
}

}  // namespace linerate::report
