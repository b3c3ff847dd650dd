// An Advice as a section of a page.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "linerate/doc/advice.hpp"
#include "linerate/doc/evaluation.hpp"
#include "linerate/doc/json.hpp"
#include "linerate/doc/prediction.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/report/named_timeline.hpp"
#include "linerate/report/page.hpp"

namespace linerate::report {

struct Inputs;

Section section_of(const doc::Advice& advice);

// Lines with interval bands over a linear or logarithmic axis.

/// Absent y: the value is undefined and the line has a gap. Values that are not finite count as
/// absent.
struct Point {
  double x = 0;
  std::optional<double> y = {};
  std::optional<double> low = {}, high = {};  // interval; drawn if both are known
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

// Charts as data for the script of the page (page.js), which draws them.

Drawing drawing_of(const LineChart& chart);

/// Times by name, a row each on a shared axis that begins at 0. `name` is for screen readers, and
/// `label` names the axis without its unit.
Drawing drawing_of_rows(const std::string& name, const std::string& label,
                        const std::vector<doc::Json>& rows,
                        const std::vector<std::string>& parts = {});
/// A row of these: a dot, with its interval if both ends are known. Emphasised: in the accent
/// colour, its name in bold. With the parts that the time is made of there are bars instead; what
/// is not above 0 has no length.
doc::Json chart_row(const std::string& name, const doc::Bounded& time_s, bool emphasised = false,
                    const std::vector<double>& parts_s = {});

/// If there is nothing to draw the JSON stays empty, and the page says so in words.
Drawing drawing_of(const std::string& name, const doc::Json& json, bool any,
                   const char* nothing = "No defined value to draw");

// An Evaluation as charts: step times next to the baselines, accuracy over steps and over time.

/// How many gain, then a section a setup.
std::vector<Section> sections_of(const doc::Evaluation& evaluation);

/// Step times of all timed runs: the median over rounds with the least and the greatest; baselines
/// and the A/A run are marked.
Drawing step_chart(const doc::Setup& setup);
/// Test accuracy by step, or by seconds of training: a line a strategy, the mean over its
/// seeds with their range. Runs with equal steps; those that diverged are left out.
LineChart accuracy_chart(const doc::Setup& setup, bool over_time);

// What-if predictions as charts: scaling factor over bandwidth, best strategy over bandwidth and
// ranks.

/// One chart a rank count, one line per strategy and compression ratio. Predictions without a
/// bandwidth are in neither charts nor maps. Bands: the step's interval,
/// as scaling factor.
std::vector<LineChart> scaling_charts(const std::vector<doc::Prediction>& predictions);

/// Least predicted step per (bandwidth, ranks). Only strategies that take the same steps are
/// compared, at one compression ratio: what a higher ratio costs in further steps is not known
/// here. One map a ratio; empty with fewer than two such strategies.
/// A cell is [choice, tied, value]: its strategy, whether another one cannot be told apart, and the
/// step. Choice -1: nothing is defined there.
std::vector<Drawing> best_strategy_maps(const std::vector<doc::Prediction>& predictions);

/// The titles of the parts of a K-FAC step (doc::StepPart).
inline constexpr std::array<const char*, doc::kStepPartNames.size()> kPartTitles = {
    "forward, backward", "gradients", "factors", "their sums", "inverses", "their broadcasts"};

/// A bar a prediction that knows its parts, and the numbers; absent: none does.
std::optional<Figure> parts_figure(const std::vector<doc::Prediction>& predictions);

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

/// One Timeline's part of the chart of steps over time: {"title", "length_s", "rows"}. It shows the
/// step of median duration (longest rank counts) of the four slowest ranks. A Timeline without
/// steps is shown whole. A row is {"rank", "resource", "lanes"}. Lanes hold what overlaps in time
/// (streams of an imported trace). A bar is [kind, start, end, name, events], in seconds since the
/// start. Several short events of one kind that would touch on paper are one bar without a name.
doc::Json group_of(const doc::Timeline& timeline);
Drawing drawing_of_groups(const std::string& name, const std::vector<doc::Json>& groups);

// From data to positions, and the round numbers at which an axis is marked.

/// Maps [low, high] to [from, to], linearly or by logarithm (low > 0). A range of one value maps to
/// the middle.
struct Scale {
  double low = 0, high = 0, from = 0, to = 0;
  bool logarithmic = false;

  double operator()(double value) const;
};

/// Multiples of 1, 2 or 5 x 10^k inside [low, high], at most `most` of them.
std::vector<double> linear_ticks(double low, double high, int most);
/// 1, 2 and 5 x 10^k inside [low, high], or the powers of ten alone where those are more than
/// `most`. Ranges that hold fewer than two of them are marked as linear ones. Labels that would
/// touch are left out by whoever draws them.
std::vector<double> log_ticks(double low, double high, int most);

// A job before and after a change: what the step takes, what was predicted, and the loss at equal
// steps.

/// The section that opens a page, of its Timelines, advice and losses. It needs two measured
/// Timelines of one Workload and as many ranks under two strategies, or losses. The job before the
/// change is the one that runs the advice's strategy in use, else the first one given.
std::optional<Section> change_section(const Inputs& documents);

/// Loss over steps, or over the time that these steps take. A point is the mean of a block of
/// steps, so that a run of any length has about 40 points. Losses have the strategy's name if a
/// Timeline has their label. Over time there are only those with a measured Timeline.
LineChart loss_chart(const Inputs& documents, bool over_time);

}  // namespace linerate::report
