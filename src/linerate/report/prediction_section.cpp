// Curves and maps go over bandwidth, so a prediction of no known bandwidth is in the table alone.
// What is compared in one map takes the same steps: a lossy strategy's shorter step says nothing of
// its time to a target.
#include "linerate/report/sections.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "linerate/core/text.hpp"
#include "linerate/core/units.hpp"

namespace linerate::report {
namespace {

constexpr const char* kDash = "–";

using doc::Prediction;

// The charts' axis is bandwidth.
std::vector<Prediction> with_bandwidth(std::vector<Prediction> predictions) {
  std::erase_if(predictions, [](const Prediction& p) { return !p.bandwidth_bit_per_s; });
  return predictions;
}

template <typename T, typename Get>
// Each value once. Sets of strategies and rank counts are small, so a list is searched.
std::vector<T> distinct(const std::vector<Prediction>& predictions, Get get) {
  std::vector<T> values;  // in the order of appearance: the user's
  for (const Prediction& p : predictions)
    if (std::ranges::find(values, get(p)) == values.end()) values.push_back(get(p));
  return values;
}

// A codec's ratio is in its strategy's text; only one that was swept by itself is added. An
// example: "dear" at ratios 1 and 8 are two lines, "dear, ratio 1" and "dear, ratio 8".
bool is_swept(const std::vector<Prediction>& predictions, const Prediction& p) {
  return std::ranges::any_of(predictions, [&](const Prediction& other) {
    return other.strategy == p.strategy && other.compression_ratio != p.compression_ratio;
  });
}

std::string series_name(const Prediction& p, bool swept) {
  return swept ? fmt::format("{}, ratio {:g}", p.strategy, p.compression_ratio) : p.strategy;
}

// scaling = T_1 / T_n, so the step's interval maps to scaling * T_n / T. The ends swap: the longest
// step is the least scaling. An example: a scaling factor of 0.8 at a step of 10 ms, interval 8 to
// 16 ms. The band is 0.8 * 10 / 16 = 0.5 to 0.8 * 10 / 8 = 1.
Point scaling_point(const Prediction& p) {
  Point point{*p.bandwidth_bit_per_s / kBitsPerGbit, p.scaling_factor};
  if (p.scaling_factor && has_interval(p) && *p.step_s->low > 0 &&
      *p.step_s->low < *p.step_s->high) {
    point.low = *p.scaling_factor * p.step_s->value / *p.step_s->high;
    point.high = *p.scaling_factor * p.step_s->value / *p.step_s->low;
  }
  return point;
}

// The least predicted step. A cell is tied if another strategy's interval begins before the best
// one's ends. An example: A takes 10 ms (9 to 12), B 11 ms (10 to 13), C 14 ms (13 to 15). A is
// best and tied with B. C is not part of the tie. The first of equal steps wins, in the order that
// the user gave.
doc::Json best_of(const std::vector<const Prediction*>& candidates,
                  const std::vector<std::string>& strategies) {
  const Prediction* best = nullptr;
  for (const Prediction* p : candidates)
    if (p->step_s && (!best || p->step_s->value < best->step_s->value)) best = p;
  if (!best) return doc::Json::array({-1, false, ""});
  const bool tied = std::ranges::any_of(candidates, [best](const Prediction* p) {
    return p != best && p->step_s && p->step_s->low_or_value() <= best->step_s->high_or_value();
  });
  return doc::Json::array({std::ranges::find(strategies, best->strategy) - strategies.begin(), tied,
                           format_time(best->step_s->value)});
}

Table table_of(const std::vector<Prediction>& predictions) {
  Table t{{"Strategy", ">Ranks", ">Bandwidth", ">Ratio", ">Step", ">Interval",
           ">Exposed communication", ">Scaling factor"},
          {}};
  for (const Prediction& p : predictions)
    t.rows.push_back(
        {p.strategy, std::to_string(p.ranks),
         p.bandwidth_bit_per_s ? format_bit_rate(*p.bandwidth_bit_per_s / kBitsPerByte) : kDash,
         fmt::format("{:g}", p.compression_ratio), p.step_s ? format_time(p.step_s->value) : kDash,
         has_interval(p) ? format_time(*p.step_s->low) + " – " + format_time(*p.step_s->high)
                         : kDash,
         p.exposed_communication_s ? format_time(*p.exposed_communication_s) : kDash,
         p.scaling_factor ? fmt::format("{:#.3g}", *p.scaling_factor) : kDash});
  return t;
}

std::vector<std::string> strategies_of(const std::vector<Prediction>& predictions) {
  return distinct<std::string>(predictions, [](const Prediction& p) { return p.strategy; });
}

// What the map leaves out is named under it, or a reader would look for it in vain.
std::string map_caption(const std::vector<Prediction>& predictions) {
  const std::string text = "Least predicted step time in each cell.";
  std::vector<Prediction> lossy = predictions;
  std::erase_if(lossy, [](const Prediction& p) { return !p.changes_convergence; });
  const std::vector<std::string> left_out = strategies_of(lossy);
  if (left_out.empty()) return text;
  return fmt::format(
      "{} Left out: {}. Lossy strategies need other numbers of steps, not only shorter ones; "
      "advise compares them by time to target.",
      text, fmt::join(left_out, ", "));
}

// "0.571 to 0.999": the range a chart covers, for its caption.
std::string range_sentence(const LineChart& chart) {
  double low = INFINITY, high = -INFINITY;
  for (const Series& s : chart.series)
    for (const Point& p : s.points)
      if (p.y && std::isfinite(*p.y)) low = std::min(low, *p.y), high = std::max(high, *p.y);
  if (low > high) return "Undefined everywhere.";
  return fmt::format("From {:.2g} to {:.2g}; 1 is perfect scaling.", low, high);
}

/// The answer: which strategy has the shortest step, and in how many of the cases.
std::string shortest_sentence(const doc::Predictions& all) {
  std::vector<Prediction> known = all.predictions;
  std::erase_if(known, [](const Prediction& p) { return !p.step_s || p.changes_convergence; });
  const std::vector<std::string> strategies = strategies_of(known);
  if (known.empty() || strategies.size() < 2) return "";
  std::map<std::tuple<int, std::optional<double>, double>, const Prediction*> best;  // by case
  for (const Prediction& p : known) {
    const Prediction*& shortest = best[{p.ranks, p.bandwidth_bit_per_s, p.compression_ratio}];
    if (!shortest || p.step_s->value < shortest->step_s->value) shortest = &p;
  }
  std::string text;
  for (const std::string& strategy : strategies) {
    const auto wins = std::ranges::count_if(
        best, [&](const auto& of_case) { return of_case.second->strategy == strategy; });
    if (wins == 0) continue;
    text += text.empty() ? fmt::format("{} has the shortest predicted step in {} of {} case{}",
                                       strategy, wins, best.size(), best.size() == 1 ? "" : "s")
                         : fmt::format(", {} in {}", strategy, wins);
  }
  return text + ". A case is a number of ranks, a bandwidth and a compression ratio.";
}

}  // namespace

// A chart per rank count, in the order of the question. Lines keep the order of strategies in every
// chart, so a letter or colour means the same one on the whole page.
std::vector<LineChart> scaling_charts(const std::vector<Prediction>& all) {
  const std::vector<Prediction> predictions = with_bandwidth(all);
  std::vector<LineChart> charts;
  for (const int ranks : distinct<int>(predictions, [](const Prediction& p) { return p.ranks; })) {
    LineChart chart;
    chart.name = fmt::format("Scaling factor against bandwidth on {} ranks", ranks);
    chart.x_label = "Bandwidth per direction, Gbit/s (logarithmic)";
    chart.y_label = "Scaling factor T₁ / Tₙ";
    chart.y_low = 0, chart.y_high = 1;
    for (const Prediction& p : predictions) {
      if (p.ranks != ranks) continue;
      const std::string name = series_name(p, is_swept(predictions, p));
      auto series = std::ranges::find(chart.series, name, &Series::name);
      if (series == chart.series.end())
        series = chart.series.insert(chart.series.end(), Series{name, {}});
      series->points.push_back(scaling_point(p));
    }
    charts.push_back(std::move(chart));
  }
  return charts;
}

// Axes ascend, whatever the order of the question. A map that defines no cell is left out.
std::vector<Drawing> best_strategy_maps(const std::vector<Prediction>& all) {
  std::vector<Prediction> predictions = with_bandwidth(all);
  std::erase_if(predictions, [](const Prediction& p) { return p.changes_convergence; });
  const std::vector<std::string> strategies = strategies_of(predictions);
  if (strategies.size() < 2) return {};
  auto bandwidths =
      distinct<double>(predictions, [](const Prediction& p) { return *p.bandwidth_bit_per_s; });
  auto ranks = distinct<int>(predictions, [](const Prediction& p) { return p.ranks; });
  std::ranges::sort(bandwidths), std::ranges::sort(ranks);
  std::vector<std::string> columns, rows;
  for (const double b : bandwidths) columns.push_back(fmt::format("{:g}", b / kBitsPerGbit));
  for (const int n : ranks) rows.push_back(std::to_string(n));
  std::vector<Drawing> maps;
  for (const double ratio :
       distinct<double>(predictions, [](const Prediction& p) { return p.compression_ratio; })) {
    doc::Json cells = doc::Json::array();
    for (const int n : ranks)
      for (const double b : bandwidths) {
        std::vector<const Prediction*> here;
        for (const Prediction& p : predictions)
          if (p.ranks == n && *p.bandwidth_bit_per_s == b && p.compression_ratio == ratio)
            here.push_back(&p);
        cells.push_back(best_of(here, strategies));
      }
    if (std::ranges::none_of(cells, [](const auto& cell) { return cell[0] >= 0; })) continue;
    maps.push_back(drawing_of(
        ratio > 1 ? fmt::format("Best strategy at compression ratio {:g}", ratio) : "Best strategy",
        {{"kind", "map"},
         {"column_label", "bandwidth, Gbit/s"},
         {"row_label", "ranks"},
         {"columns", columns},
         {"rows", rows},
         {"choices", strategies},
         {"cells", cells}},
        true));
  }
  return maps;
}

// A bar's name says rank count and bandwidth only where the bars differ in them. By exclusion a
// part may come out negative: the step without it took longer.
std::optional<Figure> parts_figure(const std::vector<Prediction>& predictions) {
  Table table{{"Strategy"}, {}};
  for (const std::string part : kPartTitles) table.head.push_back(">" + part);
  table.head.push_back(">Step");
  const bool ranks =
      distinct<int>(predictions, [](const Prediction& p) { return p.ranks; }).size() > 1;
  const bool rates = distinct<std::optional<double>>(predictions, [](const Prediction& p) {
                       return p.bandwidth_bit_per_s;
                     }).size() > 1;
  std::vector<doc::Json> rows;
  for (const Prediction& p : predictions) {
    if (!p.parts_s || !p.step_s) continue;
    std::string name = series_name(p, is_swept(predictions, p));
    if (ranks) name += fmt::format(", {} ranks", p.ranks);
    if (rates && p.bandwidth_bit_per_s)
      name += ", " + format_bit_rate(*p.bandwidth_bit_per_s / kBitsPerByte);
    rows.push_back(
        chart_row(name, {p.step_s->value}, false, {p.parts_s->begin(), p.parts_s->end()}));
    std::vector<std::string>& cells = table.rows.emplace_back(1, name);
    for (const double part : *p.parts_s)
      cells.push_back(part < 0 ? "-" + format_time(-part) : format_time(part));
    cells.push_back(format_time(p.step_s->value));
  }
  if (rows.empty()) return std::nullopt;
  return Figure{"What steps spend their time on",
                "A part's time is the step's time with the part and all parts to its left, less "
                "its time without the part.",
                drawing_of_rows("Exposed time of each part of a step", "Step", rows,
                                {kPartTitles.begin(), kPartTitles.end()}),
                std::move(table)};
}

// The numbers fold away under the last of the curves and maps. Without any the table stands open.
Section section_of(const doc::Predictions& all, const std::string& title) {
  const std::vector<Prediction>& predictions = all.predictions;
  Section section;
  section.title = title;
  section.notes = all.notes;
  if (predictions.empty()) section.paragraphs.push_back("The file holds no prediction.");
  if (const std::string best = shortest_sentence(all); !best.empty())
    section.paragraphs.push_back(best);
  for (const LineChart& chart : scaling_charts(predictions))
    section.figures.push_back({chart.name, range_sentence(chart), drawing_of(chart)});
  for (const Drawing& map : best_strategy_maps(predictions))
    section.figures.push_back(
        {map.name + " over bandwidth and ranks", map_caption(predictions), map});
  const bool curves = !section.figures.empty();
  if (curves) section.figures.back().data = table_of(predictions);
  if (std::optional<Figure> parts = parts_figure(predictions))
    section.figures.push_back(std::move(*parts));
  if (!curves && !predictions.empty()) {
    section.paragraphs.push_back(
        "No bandwidth is known, so there are no curves over it. Run whatif with --bandwidth.");
    section.table = table_of(predictions);
  }
  return section;
}

}  // namespace linerate::report
