// An Advice as a section of a page.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "linerate/doc/advice.hpp"
#include "linerate/doc/evaluation.hpp"
#include "linerate/doc/prediction.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/report/named_timeline.hpp"
#include "linerate/report/page.hpp"

namespace linerate::report {

Section section_of(const doc::Advice& advice);

// Lines with interval bands over a linear or logarithmic axis.

/// Absent y: the value is undefined and the line has a gap. Values that are not finite count as
/// absent.
struct Point {
  double x = 0;
  std::optional<double> y;
  std::optional<double> low, high;  // interval; drawn if both are known
};

/// One line. Points are drawn in ascending x, whatever their order here.
struct Series {
  std::string name;
  std::vector<Point> points;
};

struct LineChart {
  std::string name;                     // for screen readers
  std::string x_label;                  // with unit
  std::string y_label;                  // with unit
  bool log_x = true;                    // points with x <= 0 are left out
  std::optional<double> y_low, y_high;  // at least this range is shown
  std::vector<Series> series;
};

/// A series as the chart draws it: ascending x, only what can be drawn; gaps kept as absent y.
Series drawable(const Series& series, bool log_x);

// Times by name, a row each on a shared axis that begins at 0: a dot with its interval, or the
// parts that the time is made of.

struct ChartRow {
  std::string name;
  double value_s = 0;  // rows whose value is not finite are left out
  std::optional<double> low_s, high_s;
  bool emphasised = false;      // drawn in the accent colour, its name in bold
  std::vector<double> parts_s;  // as the chart names them; what is not above 0 has no length
};

struct RowChart {
  std::string name;                // for screen readers
  std::string label;               // of the axis, without unit
  std::vector<std::string> parts;  // empty: dots
  std::vector<ChartRow> rows;
};

// An Evaluation as charts: step times next to the baselines, accuracy over steps and over time.

/// How many gain, then a section a setup.
std::vector<Section> sections_of(const doc::Evaluation& evaluation);

/// Step times of all timed runs: the median over rounds with the least and the greatest; baselines
/// and the A/A run are marked.
RowChart step_chart(const doc::Setup& setup);
/// Test accuracy by step, or by seconds of training: a line a strategy, the mean over its
/// seeds with their range. Runs with equal steps; those that diverged are left out.
LineChart accuracy_chart(const doc::Setup& setup, bool over_time);

// The best choice in each cell of a grid, as colour and as text.

/// One cell. choice -1: nothing is defined there, the cell is drawn empty with a dash.
struct HeatCell {
  int choice = -1;    // index into HeatMap::choices
  bool tied = false;  // another choice cannot be told apart (intervals overlap): marked with ≈
  std::string value;  // second line, with unit: "12.4 ms"
};

struct HeatMap {
  std::string name;  // for screen readers
  std::string column_label, row_label;
  std::vector<std::string> columns, rows;
  std::vector<std::string> choices;  // in the order of their letters A, B, C …
  std::vector<HeatCell> cells;       // row by row, columns.size() * rows.size()
};

// What-if predictions as charts: scaling factor over bandwidth, best strategy over bandwidth and
// ranks.

/// One chart a rank count, one line per strategy and compression ratio. Predictions without a
/// bandwidth are in neither charts nor maps. Bands: the step's interval,
/// as scaling factor.
std::vector<LineChart> scaling_charts(const std::vector<doc::Prediction>& predictions);

/// Least predicted step per (bandwidth, ranks). Only strategies that take the same steps are
/// compared, at one compression ratio: what a higher ratio costs in further steps is not known
/// here. One map a ratio; empty with fewer than two such strategies.
std::vector<HeatMap> best_strategy_maps(const std::vector<doc::Prediction>& predictions);

/// The titles of the parts of a K-FAC step (doc::StepPart).
inline constexpr std::array<const char*, doc::kStepPartNames.size()> kPartTitles = {
    "forward, backward", "gradients", "factors", "their sums", "inverses", "their broadcasts"};

/// A bar a prediction that knows its parts; absent: none does.
std::optional<RowChart> parts_chart(const std::vector<doc::Prediction>& predictions);

/// Notes, charts, maps, parts and the numbers of one set of predictions. What has no bandwidth is
/// in the table only.
Section section_of(const doc::Predictions& predictions, const std::string& title);

// Timelines as sections of a page.

/// A section for each set of Timelines that share workload, strategy and rank count (predicted
/// first, then the measured ones): such a set is one chart over one time axis.
std::vector<Section> sections_of(const std::vector<NamedTimeline>& timelines);

/// Of the traces that it was imported from, else of the Timeline.
[[nodiscard]] trace::Explanation explanation_of(const NamedTimeline& timeline);

/// Whether the planner simulated it.
[[nodiscard]] bool is_predicted(const doc::Timeline& timeline);

// One training step as bars over time: a row per rank and resource, predicted and measured below
// each other.

/// A bar of the chart. Several short events of one kind that would touch on paper are one bar.
struct Bar {
  doc::TaskKind kind = doc::TaskKind::host;
  double start_s = 0, end_s = 0;  // since the start of the window
  std::string label;              // empty for several events together
  int events = 1;
};

/// The bars of one rank and resource; lanes hold what overlaps in time (streams of an imported
/// trace).
struct Row {
  int rank = 0;
  doc::Resource resource = doc::Resource::host;
  std::vector<std::vector<Bar>> lanes;
};

/// One Timeline's part of the chart.
struct TimelineGroup {
  std::string title;  // "predicted: ddp, 2 ranks, step 3 of 20, 12.4 ms"
  double length_s = 0;
  std::vector<Row> rows;
};

struct TimelineChart {
  std::string name;  // for screen readers
  std::vector<TimelineGroup> groups;
};

struct TimelineOptions {
  int most_ranks = 4;  // the slowest ranks of the step are shown
  int most_lanes = 3;  // what overlaps beyond that is drawn over the last lane
  // share of the window: shorter gaps between bars of one kind are closed
  double resolution = 1.0 / 1500;
};

/// Picks the step of median duration (longest rank counts) and lays its events out. A Timeline
/// without steps is shown whole. No event: a group without rows.
TimelineGroup group_of(const doc::Timeline& timeline, const TimelineOptions& options = {});

// From data to positions, and the round numbers at which an axis is marked.

/// Maps [low, high] to [from, to], linearly or by logarithm. A range of one value maps to the
/// middle.
class Scale {
 public:
  static Scale linear(double low, double high, double from, double to) {
    return {false, low, high, from, to};
  }
  /// low > 0.
  static Scale logarithmic(double low, double high, double from, double to) {
    return {true, low, high, from, to};
  }
  double operator()(double value) const;

 private:
  Scale(bool log, double low, double high, double from, double to);
  bool log_;
  double low_, high_, from_, to_;
};

/// Multiples of 1, 2 or 5 x 10^k inside [low, high], at most `most` of them.
std::vector<double> linear_ticks(double low, double high, int most);
/// 1, 2 and 5 x 10^k inside [low, high], or the powers of ten alone where those are more than
/// `most`. Ranges that hold fewer than two of them are marked as linear ones.
std::vector<double> log_ticks(double low, double high, int most);

// Charts as data for the script of the page (page.js), which draws them.

Drawing drawing_of(const LineChart& chart);
Drawing drawing_of(const RowChart& chart);
Drawing drawing_of(const HeatMap& map);
Drawing drawing_of(const TimelineChart& chart);

// A job before and after a change: what the step takes, what was predicted, and the loss at equal
// steps.

/// What the section is made from, of those that a page has.
struct ChangeDocuments {
  const std::vector<NamedTimeline>& timelines;
  const std::vector<doc::Advice>& advice;
  const std::vector<NamedLosses>& losses;
};

/// The section that opens a page. It needs two measured Timelines of one Workload and as many ranks
/// under two strategies, or losses. The job before the change is the one that runs the advice's
/// strategy in use, else the first one given.
std::optional<Section> change_section(const ChangeDocuments& documents);

/// Loss over steps, or over the time that these steps take. A point is the mean of a block of
/// steps, so that a run of any length has about 40 points. Losses have the strategy's name if a
/// Timeline has their label. Over time there are only those with a measured Timeline.
LineChart loss_chart(const ChangeDocuments& documents, bool over_time);

}  // namespace linerate::report
