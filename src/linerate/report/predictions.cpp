#include "linerate/report/predictions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/json.hpp"

namespace linerate::report {
namespace {

constexpr double kBitsPerByte = 8;

std::string gbit(double bit_per_s) { return fmt::format("{:g}", bit_per_s / 1e9); }

template <typename T, typename Get>
std::vector<T> distinct(const std::vector<Prediction>& predictions, Get get) {
  std::vector<T> values;  // in the order of appearance: the user's
  for (const Prediction& p : predictions)
    if (std::find(values.begin(), values.end(), get(p)) == values.end()) values.push_back(get(p));
  return values;
}

// 0 stands for "no ratio": a ratio is at least 1.
double ratio_of(const Prediction& p) { return p.compression_ratio.value_or(0); }

// A codec's ratio stands in its strategy; only one that was swept beside the strategy is said.
bool is_swept(const std::vector<Prediction>& predictions, const Prediction& p) {
  return std::any_of(predictions.begin(), predictions.end(), [&](const Prediction& other) {
    return other.strategy == p.strategy && ratio_of(other) != ratio_of(p);
  });
}

std::string series_name(const Prediction& p, bool swept) {
  return swept && p.compression_ratio
             ? fmt::format("{}, ratio {:g}", p.strategy, *p.compression_ratio)
             : p.strategy;
}

// scaling = T_1 / T_n, so the step's interval maps to scaling * T_n / T.
Point scaling_point(const Prediction& p) {
  Point point{p.bandwidth_bit_per_s, p.scaling_factor, {}, {}};
  const bool spread = p.step_low_s && p.step_high_s && p.step_s && *p.step_low_s > 0 &&
                      *p.step_low_s < *p.step_high_s;
  if (p.scaling_factor && spread) {
    point.low = *p.scaling_factor * *p.step_s / *p.step_high_s;
    point.high = *p.scaling_factor * *p.step_s / *p.step_low_s;
  }
  return point;
}

HeatCell best_of(const std::vector<const Prediction*>& candidates,
                 const std::vector<std::string>& strategies) {
  const Prediction* best = nullptr;
  for (const Prediction* p : candidates)
    if (p->step_s && std::isfinite(*p->step_s) && (!best || *p->step_s < *best->step_s)) best = p;
  if (!best) return {};
  HeatCell cell;
  cell.choice = static_cast<int>(std::find(strategies.begin(), strategies.end(), best->strategy) -
                                 strategies.begin());
  cell.value = format_time(*best->step_s);
  const double reach = best->step_high_s.value_or(*best->step_s);
  for (const Prediction* p : candidates)
    if (p != best && p->step_s && p->step_low_s.value_or(*p->step_s) <= reach) cell.tied = true;
  return cell;
}

Table table_of(const std::vector<Prediction>& predictions) {
  Table t{{"Strategy", "Ranks", "Bandwidth", "Ratio", "Step", "Interval", "Scaling factor"},
          {},
          {false, true, true, true, true, true, true}};
  for (const Prediction& p : predictions) {
    const bool interval = p.step_low_s && p.step_high_s;
    t.rows.push_back(
        {p.strategy, std::to_string(p.ranks), format_bit_rate(p.bandwidth_bit_per_s / kBitsPerByte),
         p.compression_ratio ? fmt::format("{:g}", *p.compression_ratio) : "–",
         p.step_s ? format_time(*p.step_s) : "–",
         interval ? format_time(*p.step_low_s) + " – " + format_time(*p.step_high_s) : "–",
         p.scaling_factor ? fmt::format("{:.4f}", *p.scaling_factor) : "–"});
  }
  return t;
}

std::vector<std::string> strategies_of(const std::vector<Prediction>& predictions) {
  return distinct<std::string>(predictions, [](const Prediction& p) { return p.strategy; });
}

std::string map_caption(const std::vector<Prediction>& predictions) {
  const std::string text = "Least predicted step time in each cell.";
  std::vector<Prediction> lossy = predictions;
  std::erase_if(lossy, [](const Prediction& p) { return !p.changes_convergence; });
  const std::vector<std::string> left_out = strategies_of(lossy);
  if (left_out.empty()) return text;
  return fmt::format(
      "{} Left out: {}. Lossy strategies take other steps, not only shorter ones; advise compares "
      "them by time to target.",
      text, fmt::join(left_out, ", "));
}

// "0.571 to 0.999": the range a chart covers, for its caption.
std::string range_sentence(const LineChart& chart) {
  double low = INFINITY, high = -INFINITY;
  for (const Series& s : chart.series)
    for (const Point& p : s.points)
      if (p.y && std::isfinite(*p.y)) low = std::min(low, *p.y), high = std::max(high, *p.y);
  if (low > high) return "Undefined everywhere.";
  return fmt::format("From {:.3f} to {:.3f}; 1 is perfect scaling.", low, high);
}

}  // namespace

std::vector<Prediction> predictions_from_json(const std::string& text, const std::string& place) {
  const doc::Json json = doc::parse_json(text, place);
  std::vector<Prediction> out;
  for (const doc::JsonReader& entry : doc::JsonReader(json, place).at("predictions").items()) {
    Prediction p;
    p.strategy = entry.string("strategy");
    p.ranks = static_cast<int>(entry.integer("ranks"));
    if (entry.at("bandwidth_bit_per_s").value().is_null())
      entry.at("bandwidth_bit_per_s")
          .fail("unknown, and the curves go over it; ask whatif with --bandwidth");
    p.bandwidth_bit_per_s = entry.positive("bandwidth_bit_per_s");
    p.compression_ratio = entry.optional_number("compression_ratio");
    p.step_s = entry.optional_seconds("step_s");
    p.scaling_factor = entry.optional_number("scaling_factor");
    p.changes_convergence =
        entry.has("changes_convergence") && entry.at("changes_convergence").boolean();
    if (entry.has("interval_s") && !entry.at("interval_s").value().is_null()) {
      const std::vector<doc::JsonReader> ends = entry.at("interval_s").items();
      if (ends.size() != 2) entry.at("interval_s").fail("expected [low, high]");
      if (!ends[0].value().is_null()) p.step_low_s = ends[0].seconds();
      if (!ends[1].value().is_null()) p.step_high_s = ends[1].seconds();
    }
    out.push_back(std::move(p));
  }
  return out;
}

std::vector<LineChart> scaling_charts(const std::vector<Prediction>& predictions) {
  std::vector<LineChart> charts;
  for (const int ranks : distinct<int>(predictions, [](const Prediction& p) { return p.ranks; })) {
    LineChart chart;
    chart.name = fmt::format("Scaling factor against bandwidth on {} ranks", ranks);
    chart.x_label = "Bandwidth per direction, Gbit/s (logarithmic)";
    chart.y_label = "Scaling factor T₁ / Tₙ";
    chart.y_low = 0, chart.y_high = 1;
    chart.format_x = gbit;
    chart.format_y = [](double v) { return fmt::format("{:.4g}", v); };
    for (const Prediction& p : predictions) {
      if (p.ranks != ranks) continue;
      const std::string name = series_name(p, is_swept(predictions, p));
      auto series = std::find_if(chart.series.begin(), chart.series.end(),
                                 [&](const Series& s) { return s.name == name; });
      if (series == chart.series.end())
        series = chart.series.insert(chart.series.end(), Series{name, {}});
      series->points.push_back(scaling_point(p));
    }
    charts.push_back(std::move(chart));
  }
  return charts;
}

std::vector<HeatMap> best_strategy_maps(const std::vector<Prediction>& all) {
  std::vector<Prediction> predictions = all;
  std::erase_if(predictions, [](const Prediction& p) { return p.changes_convergence; });
  const std::vector<std::string> strategies = strategies_of(predictions);
  if (strategies.size() < 2) return {};
  auto bandwidths =
      distinct<double>(predictions, [](const Prediction& p) { return p.bandwidth_bit_per_s; });
  auto ranks = distinct<int>(predictions, [](const Prediction& p) { return p.ranks; });
  std::sort(bandwidths.begin(), bandwidths.end());
  std::sort(ranks.begin(), ranks.end());
  std::vector<HeatMap> maps;
  for (const double ratio : distinct<double>(predictions, ratio_of)) {
    HeatMap map;
    map.name =
        ratio > 1 ? fmt::format("Best strategy at compression ratio {:g}", ratio) : "Best strategy";
    map.column_label = "bandwidth, Gbit/s", map.row_label = "ranks";
    map.choices = strategies;
    for (const double b : bandwidths) map.columns.push_back(gbit(b));
    for (const int n : ranks) {
      map.rows.push_back(std::to_string(n));
      for (const double b : bandwidths) {
        std::vector<const Prediction*> here;
        for (const Prediction& p : predictions)
          if (p.ranks == n && p.bandwidth_bit_per_s == b && ratio_of(p) == ratio)
            here.push_back(&p);
        map.cells.push_back(best_of(here, strategies));
      }
    }
    if (std::any_of(map.cells.begin(), map.cells.end(),
                    [](const HeatCell& c) { return c.choice >= 0; }))
      maps.push_back(std::move(map));
  }
  return maps;
}

Section section_of(const std::vector<Prediction>& predictions, const std::string& title) {
  Section section;
  section.title = title;
  if (predictions.empty()) section.paragraphs.push_back("The file holds no prediction.");
  for (const LineChart& chart : scaling_charts(predictions))
    section.figures.push_back(figure(chart.name, range_sentence(chart), chart));
  for (const HeatMap& map : best_strategy_maps(predictions))
    section.figures.push_back(
        figure(map.name + " over bandwidth and ranks", map_caption(predictions), map));
  if (!section.figures.empty()) section.figures.back().data = table_of(predictions);
  return section;
}

}  // namespace linerate::report
