// An Advice as charts and tables. Words are those of its text.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "linerate/compare/accuracy.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/core/units.hpp"
#include "linerate/report/texts.hpp"

namespace linerate::report {
namespace {

std::string text_of(const std::optional<doc::Bounded>& i) {
  if (!i) return "–";
  if (!i->has_interval()) return format_time(i->value);
  return fmt::format("{} ({} – {})", format_time(i->value), format_time(*i->low),
                     format_time(*i->high));
}

// Ranked candidates alone share an axis: time per step times the steps it takes, in steps of the
// uncompressed run. An example: 10 ms a step and 1.1 times the steps is drawn at 11 ms.
Drawing chart_of(const doc::Advice& advice) {
  std::vector<doc::Json> rows;
  bool weighted = false;
  for (const doc::Candidate* c : shown_candidates(advice, false)) {
    if (c->standing != doc::Standing::ranked || !c->target_s) continue;
    rows.push_back(
        chart_row(advice.named(c->strategy), *c->target_s, c->strategy == advice.current));
    weighted = weighted || c->steps_to_target.has_value();
  }
  return drawing_of_rows(
      "Strategies by predicted time to target",
      weighted ? "Step time × steps to target relative to uncompressed" : "Predicted step time",
      rows);
}

// All candidates, with their reasons: the chart shows only those that can be compared.
Table table_of(const doc::Advice& advice) {
  Table t{
      {"Strategy", "Standing", ">Step", ">Steps to target", ">Memory a rank", "Trains", "Reason"},
      {}};
  for (const doc::Candidate& c : advice.candidates)
    t.rows.push_back({advice.named(c.strategy), std::string(name_of(c.standing)), text_of(c.step_s),
                      c.steps_to_target ? fmt::format("× {:.3g}", c.steps_to_target->value) : "–",
                      format_size(c.memory_bytes), c.trains ? "yes" : "no", c.reason});
  return t;
}

// Charts of an Evaluation. Tables and sentences are those of its text: a page and a terminal say
// the same.

Table table_of(const compare::Cells& cells) { return {cells.heads, cells.rows}; }

// A baseline says its role, "ddp (fp32)": a candidate may have the same strategy.
std::string name_of(const doc::TimedRun& run) {
  return run.role == doc::Role::candidate
             ? run.strategy
             : fmt::format("{} ({})", run.strategy, doc::name_of(run.role));
}

// A run within a budget of time has another number of steps: over steps it is no point of the same
// curve.
bool is_drawn(const doc::TrainedRun& run) {
  return run.budget == doc::Budget::steps && run.diverged.empty();
}

/// Over the seeds that were tested at the same step. Their times differ, their step does not.
struct Tested {
  std::vector<double> train_s, accuracy;
};

// An example: three seeds have 0.89, 0.90 and 0.91 at step 100. The point is 90 %, its band 89 to
// 91 %. Over time it stands at the mean of their seconds. One seed has no band.
Point point_of(std::int64_t step, const Tested& tested, bool over_time) {
  const auto [low, high] = std::ranges::minmax(tested.accuracy);
  Point point{over_time ? mean(tested.train_s) : static_cast<double>(step),
              100 * mean(tested.accuracy)};
  if (tested.accuracy.size() > 1) point.low = 100 * low, point.high = 100 * high;
  return point;
}

// Sentences before charts: first the noise floor, as no difference below it counts.
Section section_of(const doc::Setup& setup) {
  Section section;
  section.title = title_of(setup);
  if (!setup.timed.empty()) {
    section.paragraphs.push_back(compare::noise_sentence(setup) + ".");
    section.figures.push_back(
        {"Step time",
         "Median over rounds in which all take turns. Bar: least and greatest round. Diamonds: "
         "tuned baselines and the A/A run (the same strategy twice).",
         step_chart(setup), table_of(compare::timing_cells(setup))});
  }
  if (!setup.trained.empty()) {
    section.paragraphs.push_back(compare::target_sentence(setup) + ".");
    const std::string caption = "Mean over seeds; band: least and greatest.";
    section.figures.push_back(
        {"Accuracy over steps", caption, drawing_of(accuracy_chart(setup, false))});
    section.figures.push_back({"Accuracy over time", caption,
                               drawing_of(accuracy_chart(setup, true)),
                               table_of(compare::accuracy_cells(setup))});
  }
  section.notes = setup.notes;
  if (!setup.timed.empty()) section.table = table_of(compare::property_cells(setup));
  return section;
}

}  // namespace

// Ceilings stand open after the figure, as they say what no strategy can reach.
Section section_of(const doc::Advice& advice) {
  Section section;
  section.title = fmt::format("Advice for {} on {} ranks at {}: {}", advice.workload, advice.ranks,
                              format_bit_rate(advice.bandwidth_bit_per_s / kBitsPerByte),
                              name_of(advice.verdict));
  if (advice.confidence == doc::Confidence::low) section.title += ", confidence low";
  section.paragraphs = paragraphs_of(advice);
  for (const doc::Straggler& s : advice.stragglers)
    section.paragraphs.push_back(fmt::format("Late rank {}: {}", s.rank, s.reason));
  section.figures.push_back(
      {"Ranked strategies",
       "The best setting of each exchange; the numbers have all settings. "
       "Dot: prediction. Bar: its 90 % interval. Diamond: the strategy in use.",
       chart_of(advice), table_of(advice)});
  if (!advice.ceilings.empty()) {
    section.table = {{"Remedy and the most that it could gain", ">Step", "What it means"}, {}};
    for (const doc::Ceiling& c : advice.ceilings)
      section.table->rows.push_back({c.remedy, text_of(c.step_s), c.reason});
  }
  section.notes =
      turning_points_of(advice, "The answer changes at a bandwidth of {}: {} below, {} above.");
  section.notes.insert(section.notes.end(), advice.notes.begin(), advice.notes.end());
  return section;
}

// Bars from the least to the greatest round. Where they overlap the order of two strategies is not
// certain.
Drawing step_chart(const doc::Setup& setup) {
  std::vector<doc::Json> rows;
  for (const doc::TimedRun& run : setup.timed) {
    const auto [low, high] = std::ranges::minmax(run.round_step_s);
    rows.push_back(chart_row(name_of(run), {compare::step_s(run), low, high},
                             run.role != doc::Role::candidate));
  }
  return drawing_of_rows("Step time by strategy", "Measured step time", rows);
}

// Strategies keep their order of appearance in both charts, so a colour means the same in both.
LineChart accuracy_chart(const doc::Setup& setup, bool over_time) {
  LineChart chart;
  chart.name = over_time ? "Test accuracy over time" : "Test accuracy over steps";
  chart.x_label = over_time ? "Training, seconds" : "Steps";
  chart.y_label = "Test accuracy, %";
  chart.log_x = false;
  std::map<std::string, std::map<std::int64_t, Tested>> tested;
  for (const doc::TrainedRun& run : setup.trained) {
    if (!is_drawn(run)) continue;
    const auto [its, is_new] = tested.try_emplace(run.strategy);
    if (is_new) chart.series.push_back({run.strategy, {}});
    for (const doc::AccuracyPoint& p : run.points) {
      its->second[p.step].train_s.push_back(p.train_s);
      its->second[p.step].accuracy.push_back(p.test_accuracy);
    }
  }
  for (Series& series : chart.series)
    for (const auto& [step, at] : tested[series.name])
      series.points.push_back(point_of(step, at, over_time));
  return chart;
}

std::vector<Section> sections_of(const doc::Evaluation& evaluation) {
  std::vector<Section> sections;
  const compare::Gains gains = compare::count_gains(evaluation);
  Section& summary = sections.emplace_back();
  summary.title = "Evaluation of compressors";
  summary.paragraphs.push_back(gains.all > 0 ? compare::sentence_of(gains)
                                             : "No candidate was timed.");
  for (const doc::Setup& setup : evaluation.setups) sections.push_back(section_of(setup));
  return sections;
}

}  // namespace linerate::report
