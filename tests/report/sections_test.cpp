// Sections of a page and their charts.
#include "linerate/report/sections.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "linerate/doc/json.hpp"
#include "linerate/report/inputs.hpp"
#include "linerate/report/page_files.hpp"
#include "linerate/report/texts.hpp"

namespace linerate::report {
namespace {

using doc::Json;
using doc::Prediction;
using doc::Resource;
using doc::TaskKind;
using testing::AllOf;
using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Optional;
using testing::StartsWith;

// ---- a change of strategy ----

// 10 ms of computing, then an all-reduce: as many steps as a comparison asks for.
NamedTimeline job(const std::string& label, const std::string& mode, const std::string& strategy,
                  int all_reduce_ms, int ranks = 1) {
  doc::Timeline t;
  t.mode = mode, t.workload = "net", t.strategy = strategy, t.ranks = ranks;
  t.names = {"fc"};
  const std::int64_t ms = 1'000'000, computed = 10 * ms, length = computed + all_reduce_ms * ms;
  for (std::int32_t step = 0; step < 20; ++step)
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      const std::int64_t begin = step * length;
      t.events.push_back({doc::TaskKind::backward, doc::Resource::compute, rank, step, 0, -1, -1,
                          begin, begin + computed, -1});
      t.events.push_back({doc::TaskKind::all_reduce, doc::Resource::network, rank, step, 0, -1, -1,
                          begin + computed, begin + length, 4096});
      t.steps.push_back({rank, step, begin, begin + length, ""});
    }
  return {label + ".json", label, t};
}

doc::Advice advice(const std::string& current, const std::string& other, doc::Bounded step) {
  doc::Advice a;
  a.workload = "net", a.ranks = 1, a.current = current, a.best = other;
  a.candidates.resize(1);
  a.candidates[0].strategy = other;
  a.candidates[0].step_s = step;
  return a;
}

// ddp takes 10 + 40 ms, dear 10 + 10 ms, for which 10 + 8 ms were predicted.
Inputs before_and_after() {
  Inputs inputs;
  inputs.timelines = {job("before", "trained", "ddp", 40), job("after", "trained", "dear", 10),
                      job("predicted", "predicted", "dear", 8)};
  inputs.advice = {advice("ddp", "dear", {0.018, 0.017, 0.021})};
  return inputs;
}

TEST(Change, ThePageHasTheAnswersNameThePredictionAndEachJobsVerdict) {
  Inputs inputs = before_and_after();
  const Page page = page_of(inputs, "", "");
  EXPECT_EQ(page.title, "net on 1 rank: a step of 20.0 ms instead of 50.0 ms");
  const Section section = page.sections.front();
  EXPECT_EQ(section.title, page.title);
  EXPECT_THAT(
      section.paragraphs,
      ElementsAre(
          "A step takes 20.0 ms with dear instead of 50.0 ms with ddp, 2.5 times as fast.",
          "Before dear ran, its step was predicted to take 18.0 ms (90 % interval 17.0 ms .. "
          "21.0 ms), 10 % less than measured. The measured step lies inside the interval.",
          AllOf(StartsWith("With ddp the job is network-bound"), HasSubstr(", because ")),
          StartsWith("With dear the job is network-bound")));
  EXPECT_THAT(section.table->rows.front(), ElementsAre("step", "18.0 ms", "20.0 ms", "-10 %"));
  inputs.advice[0].candidates[0].step_s->high = 0.019;
  EXPECT_THAT(change_section(inputs)->paragraphs[1], HasSubstr("lies outside the interval"));
  inputs.timelines.pop_back();
  EXPECT_FALSE(change_section(inputs)->table.has_value());
}

TEST(Change, TheJobBeforeItIsTheOneThatTheAdviceSaysIsInUse) {
  Inputs inputs = before_and_after();
  std::swap(inputs.timelines[0], inputs.timelines[1]);
  EXPECT_EQ(change_section(inputs)->paragraphs.front(),
            "A step takes 20.0 ms with dear instead of 50.0 ms with ddp, 2.5 times as fast.");
  inputs.advice.clear();  // else the first one given
  EXPECT_EQ(change_section(inputs)->paragraphs.front(),
            "A step takes 50.0 ms with ddp instead of 20.0 ms with dear, 2.5 times as long.");
}

TEST(Change, OneMeasuredStrategyAnotherWorkloadOrOtherRanksAreNoChange) {
  Inputs inputs = before_and_after();
  NamedTimeline other = inputs.timelines[1];
  other.timeline.workload = "other";
  for (const NamedTimeline& after :
       {other, job("after", "trained", "dear", 10, 2), job("after", "trained", "ddp", 10),
        job("after", "predicted", "dear", 10)}) {
    inputs.timelines[1] = after;
    EXPECT_FALSE(change_section(inputs).has_value());
  }
}

TEST(Change, LossesAreComparedAtEqualSteps) {
  Inputs inputs = before_and_after();
  inputs.losses = {{"before", 0, std::vector<double>(200, 2.0)},
                   {"after", 0, std::vector<double>(100, 2.1)}};
  const Section section = *change_section(inputs);
  EXPECT_THAT(
      section.paragraphs,
      testing::Contains("After 100 steps the loss is 2 with ddp and 2.1 with dear (+5.0 %), "
                        "as the mean of the last 10 steps."));
  ASSERT_EQ(section.figures.size(), 3u);
  EXPECT_THAT(section.figures[1].data->rows.front(), ElementsAre("10", "2", "2.1"));
  EXPECT_EQ(section.figures[1].data->rows.size(), 10u);
}

// 100 steps in blocks of 3; the last block has one.
TEST(Change, ALineOfLossesHasABlockOfStepsAPoint) {
  Inputs inputs = before_and_after();
  inputs.losses = {{"after", 0, {}}};
  for (int i = 0; i < 100; ++i) inputs.losses[0].values.push_back(i);
  const Series steps = loss_chart(inputs, false).series.at(0);
  EXPECT_EQ(steps.name, "dear");
  ASSERT_EQ(steps.points.size(), 34u);
  EXPECT_EQ(steps.points[0].x, 1.5);
  EXPECT_EQ(*steps.points[0].y, 1.0);
  EXPECT_EQ(steps.points[33].x, 99.5);
  EXPECT_EQ(*steps.points[33].y, 99.0);
  const Series time = loss_chart(inputs, true).series.at(0);
  EXPECT_DOUBLE_EQ(time.points[0].x, 1.5 * 0.02);  // a step of 20 ms
  inputs.losses[0].label = "unknown";
  EXPECT_EQ(loss_chart(inputs, false).series.at(0).name, "unknown");
  EXPECT_THAT(loss_chart(inputs, true).series, IsEmpty());
}

TEST(Change, LossesAloneAreASection) {
  Inputs inputs;
  add_document(inputs, "step,loss\n5,0.5\n6,0.25\n", "folder/run.csv");
  ASSERT_EQ(inputs.losses.size(), 1u);
  EXPECT_EQ(inputs.losses[0].label, "run");
  EXPECT_EQ(inputs.losses[0].first_step, 5);
  EXPECT_THAT(inputs.losses[0].values, ElementsAre(0.5, 0.25));
  EXPECT_EQ(page_of(inputs, "", "").title, "Training loss");
}

// ---- predictions ----

Prediction entry(const std::string& strategy, int ranks, double gbit, double step,
                 double spread = 0) {
  Prediction p;
  p.strategy = strategy, p.ranks = ranks, p.bandwidth_bit_per_s = gbit * 1e9;
  p.step_s = doc::Bounded{step, step - spread, step + spread};
  p.scaling_factor = 0.1 / step;
  return p;
}

// Of a strategy whose steps are other steps.
Prediction lossy(const std::string& strategy, double step) {
  Prediction p = entry(strategy, 4, 1, step);
  p.changes_convergence = true;
  return p;
}

TEST(ScalingCharts, OneChartARankCountOneLineAStrategy) {
  const auto charts = scaling_charts({entry("ddp", 4, 1, 1), entry("ddp", 4, 10, 0.5),
                                      entry("bulk", 4, 1, 2), entry("ddp", 8, 1, 1)});
  ASSERT_EQ(charts.size(), 2u);
  ASSERT_EQ(charts[0].series.size(), 2u);
  EXPECT_EQ(charts[0].series[0].name, "ddp");
  EXPECT_EQ(charts[0].series[0].points.size(), 2u);
}

TEST(ScalingCharts, TheBandIsTheStepIntervalTurnedUpsideDown) {
  // T_1 = 0.1 s; steps of 0.2, 0.25, 0.4 s scale 0.5, 0.4, 0.25.
  Prediction p = entry("ddp", 4, 1, 0.25);
  p.step_s = doc::Bounded{0.25, 0.2, 0.4};
  const Point point = scaling_charts({p})[0].series[0].points[0];
  EXPECT_THAT(point.y, Optional(DoubleEq(0.4)));
  EXPECT_THAT(point.low, Optional(DoubleEq(0.25)));
  EXPECT_THAT(point.high, Optional(DoubleEq(0.5)));
}

/// Six parts that sum to the step.
Prediction in_parts(const std::string& strategy, double step) {
  Prediction p = entry(strategy, 4, 1, step);
  p.parts_s = doc::StepParts{0.4 * step, 0.1 * step, 0.2 * step, 0.1 * step, 0.2 * step, 0};
  return p;
}

TEST(Parts, ABarAPredictionThatKnowsThem) {
  EXPECT_FALSE(parts_figure({entry("ddp", 4, 1, 1)}));
  const auto figure = parts_figure(
      {entry("ddp", 4, 1, 1), in_parts("ddp+kfac(d)", 2), in_parts("ddp+kfac(spd)", 1)});
  ASSERT_TRUE(figure);
  const doc::Json chart = doc::Json::parse(figure->drawing.json), rows = chart["rows"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["name"], "ddp+kfac(d)");
  EXPECT_EQ(rows[0]["parts_s"], doc::Json::parse("[0.8, 0.2, 0.4, 0.2, 0.4, 0.0]"));
  EXPECT_EQ(rows[0]["value_s"], 2.0);
  EXPECT_EQ(chart["parts"], doc::Json(kPartTitles));
}

TEST(Parts, StandInTheNumbersNamedByRanksWhereThoseDiffer) {
  Prediction more = in_parts("ddp+kfac(d)", 3);
  more.ranks = 8;
  const Table two = parts_figure({in_parts("ddp+kfac(d)", 2), more})->data.value();
  EXPECT_EQ(two.rows[0][0], "ddp+kfac(d), 4 ranks");
  EXPECT_EQ(two.rows[1][0], "ddp+kfac(d), 8 ranks");
  const std::vector<Prediction> all = {entry("ddp", 4, 1, 1), in_parts("ddp+kfac(d)", 2)};
  EXPECT_THAT(section_of({.predictions = all}, "K-FAC").figures.back().data->rows,
              ElementsAre(ElementsAre("ddp+kfac(d)", "800 ms", "200 ms", "400 ms", "200 ms",
                                      "400 ms", "0 s", "2.00 s")));
}

std::vector<doc::Json> maps_of(const std::vector<Prediction>& predictions) {
  std::vector<doc::Json> maps;
  for (const Drawing& map : best_strategy_maps(predictions))
    maps.push_back(doc::Json::parse(map.json));
  return maps;
}

TEST(BestStrategy, IsTheLeastStepPerCell) {
  const auto maps = maps_of({entry("bulk", 4, 10, 2), entry("bulk", 4, 1, 4),
                             entry("ddp", 4, 10, 1), entry("ddp", 4, 1, 5)});
  ASSERT_EQ(maps.size(), 1u);
  EXPECT_EQ(maps[0]["columns"], doc::Json::parse(R"(["1", "10"])"));
  EXPECT_EQ(maps[0]["rows"], doc::Json::parse(R"(["4"])"));
  // At 1 Gbit/s bulk takes 4 s, and ddp 5 s.
  EXPECT_EQ(maps[0]["cells"], doc::Json::parse(R"([[0, false, "4.00 s"], [1, false, "1.00 s"]])"));
  // 1 ± 0.3 and 1.5 ± 0.3 share 1.2 to 1.3.
  const auto tied = maps_of({entry("bulk", 4, 1, 1, 0.3), entry("ddp", 4, 1, 1.5, 0.3)});
  EXPECT_EQ(tied[0]["cells"][0][1], true);
  const auto empty = maps_of({entry("bulk", 4, 1, 2), entry("ddp", 8, 10, 3)});
  ASSERT_EQ(empty[0]["cells"].size(), 4u);
  EXPECT_EQ(empty[0]["cells"][1][0], -1);  // 4 ranks at 10 Gbit/s was not asked
}

TEST(BestStrategy, LossyStrategiesAreNotComparedByStepTime) {
  const Prediction bulk = entry("bulk", 4, 1, 2), ddp = entry("ddp", 4, 1, 3);
  Prediction codec = lossy("ddp+codec(ratio=8)", 0.1);
  codec.compression_ratio = 8;  // which makes no map of its own
  for (const Prediction& other : {codec, lossy("ddp(wire=fp16)", 0.1)}) {
    const auto maps = maps_of({bulk, ddp, other});
    ASSERT_EQ(maps.size(), 1u);
    EXPECT_EQ(maps[0]["choices"], doc::Json::parse(R"(["bulk", "ddp"])"));
    EXPECT_EQ(maps[0]["cells"][0][0], 0);
  }
  EXPECT_TRUE(best_strategy_maps({ddp}).empty());  // nothing to choose
  const auto caption_of = [](const std::vector<Prediction>& p) {
    return section_of({.predictions = p}, "t").figures.back().caption;
  };
  EXPECT_EQ(caption_of({bulk, ddp}), "Least predicted step time in each cell.");
  EXPECT_THAT(caption_of({bulk, ddp, lossy("ddp(wire=fp16)", 1), codec}),
              HasSubstr("Left out: ddp(wire=fp16), ddp+codec(ratio=8). Lossy"));
}

TEST(ScalingCharts, OnlyASweptRatioIsSaidBesideTheStrategy) {
  Prediction codec = lossy("ddp+codec(ratio=8)", 0.1), swept = entry("bulk", 4, 1, 0.2);
  codec.compression_ratio = 8, swept.compression_ratio = 2;
  const auto charts = scaling_charts({entry("ddp", 4, 1, 1), codec, entry("bulk", 4, 1, 1), swept});
  std::vector<std::string> names;
  for (const Series& s : charts[0].series) names.push_back(s.name);
  EXPECT_THAT(names, ElementsAre("ddp", "ddp+codec(ratio=8)", "bulk, ratio 1", "bulk, ratio 2"));
}

TEST(ScalingCharts, WhatHasNoBandwidthStandsInTheTableAlone) {
  Prediction unknown = entry("bulk", 4, 1, 1);
  unknown.bandwidth_bit_per_s.reset();
  const Section both = section_of({.predictions = {entry("ddp", 4, 1, 1), unknown}}, "t");
  ASSERT_EQ(both.figures.size(), 1u);
  EXPECT_EQ(both.figures[0].data->rows.size(), 2u);
  const Section neither = section_of({.predictions = {unknown}}, "t");
  EXPECT_TRUE(neither.figures.empty());
  EXPECT_THAT(neither.paragraphs, testing::Contains(HasSubstr("whatif with --bandwidth")));
  ASSERT_TRUE(neither.table);
  EXPECT_EQ(neither.table->rows.size(), 1u);
}

// ---- timelines ----

constexpr std::int64_t kMs = 1'000'000;

doc::Event event(TaskKind kind, int rank, std::int64_t start, std::int64_t end, int name = -1) {
  const Resource resource = is_communication(kind) ? Resource::network : Resource::compute;
  return {kind, resource, rank, 0, name, -1, -1, start, end, -1};
}

// Of the first row's first lane.
const doc::Json& bar(const doc::Json& group, std::size_t i) {
  return group["rows"][0]["lanes"][0][i];
}

TEST(TimelineGroup, ShowsTheStepOfMedianDuration) {
  // Steps of 50, 10 and 20 ms: 20 ms is the median, and only its event is drawn.
  doc::Timeline t;
  t.mode = "trained";
  t.steps = {
      {0, 0, 0, 50 * kMs, ""}, {0, 1, 50 * kMs, 60 * kMs, ""}, {0, 2, 60 * kMs, 80 * kMs, ""}};
  t.events = {event(TaskKind::forward, 0, 0, 5 * kMs),
              event(TaskKind::backward, 0, 62 * kMs, 70 * kMs)};
  const doc::Json group = group_of(t);
  EXPECT_DOUBLE_EQ(group["length_s"].get<double>(), 0.02);
  EXPECT_THAT(group["title"].get<std::string>(), HasSubstr("step 2, the median of 3"));
  ASSERT_EQ(group["rows"].size(), 1u);
  EXPECT_DOUBLE_EQ(bar(group, 0)[1].get<double>(), 0.002);  // since the start of the step
}

TEST(TimelineGroup, OverlappingStreamsTakeLanes) {
  doc::Timeline t;
  t.events = {event(TaskKind::compute, 0, 0, 10 * kMs),
              event(TaskKind::compute, 0, 5 * kMs, 15 * kMs),
              event(TaskKind::compute, 0, 12 * kMs, 20 * kMs)};
  const doc::Json lanes = group_of(t)["rows"].at(0)["lanes"];
  ASSERT_EQ(lanes.size(), 2u);
  EXPECT_EQ(lanes[0].size(), 2u);  // the third fits behind the first
}

TEST(TimelineGroup, TinyNeighboursOfOneKindBecomeOneBar) {
  // 1,000 kernels of 10 us without gaps within 1 s: each is 1/100,000 of the window.
  doc::Timeline t;
  for (int i = 0; i < 1000; ++i)
    t.events.push_back(event(TaskKind::compute, 0, i * 10'000, (i + 1) * 10'000));
  t.events.push_back(event(TaskKind::all_reduce, 0, 990 * kMs, 1000 * kMs));
  const doc::Json group = group_of(t);
  ASSERT_EQ(group["rows"][0]["lanes"][0].size(), 1u);
  EXPECT_EQ(bar(group, 0), doc::Json::parse(R"(["compute", 0.0, 0.01, "", 1000])"));
}

TEST(TimelineGroup, ShowsTheSlowestRanksAndSaysSo) {
  doc::Timeline t;
  t.ranks = 8;
  for (int rank = 0; rank < 8; ++rank) {
    t.steps.push_back({rank, 0, 0, (10 + rank) * kMs, ""});
    t.events.push_back(event(TaskKind::forward, rank, 0, 5 * kMs));
  }
  const doc::Json group = group_of(t);
  ASSERT_EQ(group["rows"].size(), 4u);
  EXPECT_EQ(group["rows"][0]["rank"], 4);
  EXPECT_THAT(group["title"].get<std::string>(), HasSubstr("the 4 slowest of 8 ranks"));
}

TEST(TimelineDrawing, AnEmptyTimelineSaysSoAndTheScriptHasAColourForEveryKind) {
  const Drawing drawing = drawing_of_groups("t", {group_of(doc::Timeline{})});
  EXPECT_EQ(drawing.json + drawing.nothing, "No event with a duration to draw");
  for (const std::string_view kind : doc::kTaskKindNames)
    EXPECT_THAT(std::string(kPageScript), HasSubstr(fmt::format("'{}': '", kind)));
}

TEST(TimelineDrawing, ABarHasItsKindTimesAndName) {
  doc::Timeline t;
  t.names = {"<fc>"};
  t.events = {event(TaskKind::backward, 0, 50 * kMs, 100 * kMs),
              event(TaskKind::forward, 0, 0, 50 * kMs, 0)};
  const doc::Json group = doc::Json::parse(drawing_of_groups("t", {group_of(t)}).json)["groups"][0];
  EXPECT_EQ(group["rows"][0]["resource"], "compute");
  EXPECT_EQ(group["rows"][0]["rank"], 0);
  EXPECT_EQ(bar(group, 0), doc::Json::parse(R"(["forward", 0.0, 0.05, "<fc>", 1])"));
  EXPECT_EQ(bar(group, 1), doc::Json::parse(R"(["backward", 0.05, 0.1, "backward", 1])"));
  EXPECT_DOUBLE_EQ(group["length_s"].get<double>(), 0.1);
}

// ---- charts as data of a page, and in a terminal ----

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

LineChart chart_of(std::vector<Series> series) {
  LineChart chart;
  chart.name = "test";
  chart.x_label = "x", chart.y_label = "y";
  chart.series = std::move(series);
  return chart;
}

Json points_of(std::vector<Point> points, bool log_x = true) {
  LineChart chart = chart_of({{"s", std::move(points)}});
  chart.log_x = log_x;
  return Json::parse(drawing_of(chart).json)["series"][0]["points"];
}

// An undefined value is a gap, points rise in x with intervals of two known ends, and what a
// logarithmic axis lacks is left out.
TEST(LineDrawing, HasThePointsThatCanBeDrawn) {
  const std::vector<Point> below = {{-1, 1}, {0, 1}, {kNaN, 1}, {2, 1}};
  EXPECT_EQ(points_of({{1, 1}, {10, 2}, {20}, {30, kNaN}}),
            Json::parse("[[1,1],[10,2],[20,null],[30,null]]"));
  EXPECT_EQ(points_of({{10, 0.5, 0.4, 0.6}, {1, 0.25, 0.125, kNaN}}),
            Json::parse("[[1,0.25],[10,0.5,0.4,0.6]]"));
  EXPECT_EQ(points_of(below), Json::parse("[[2,1]]"));
  EXPECT_EQ(points_of(below, false), Json::parse("[[-1,1],[0,1],[2,1]]"));
}

TEST(LineDrawing, HasTheRangeToShowOrWordsIfNoValueIsDefined) {
  LineChart chart = chart_of({{"s", {{1, 1}}}});
  EXPECT_EQ(Json::parse(drawing_of(chart).json)["y_range"], Json::array());
  chart.y_low = 0, chart.y_high = 1;
  EXPECT_EQ(Json::parse(drawing_of(chart).json)["y_range"], Json::array({0.0, 1.0}));
  for (const std::vector<Series>& series :
       std::vector<std::vector<Series>>{{}, {{"s", {{1, kNaN}}}}, {{"s", {{-1, 1.0}}}}}) {
    EXPECT_EQ(drawing_of(chart_of(series)).json, "");
    EXPECT_EQ(drawing_of(chart_of(series)).nothing, "No defined value to draw");
  }
}

TEST(Drawing, NoNameEndsTheScriptElementAndWhatIsNoUtf8IsReplaced) {
  const std::string hostile = "</script><!--<script>\"'\\\n\x01";
  const auto json_of = [](const std::string& name) {
    return drawing_of(chart_of({{name, {{1, 1}}}})).json;
  };
  EXPECT_THAT(json_of(hostile), Not(HasSubstr("<")));
  EXPECT_EQ(Json::parse(json_of(hostile))["series"][0]["name"], hostile);
  EXPECT_EQ(Json::parse(json_of("a\xff\xfe z"))["series"][0]["name"], "a\uFFFD\uFFFD z");
}

TEST(RowDrawing, HasAnIntervalOfTwoEndsOrPartsOrNothingToDraw) {
  const std::vector<Json> rows = {chart_row("a", {1, 0.9, 1.1}, true), chart_row("b", {1, 0.9}),
                                  chart_row("c", {2}, false, {1.5, 0.5})};
  const Json drawn = Json::parse(drawing_of_rows("test", "Step", rows, {"x", "y"}).json);
  EXPECT_EQ(drawn["parts"], Json::parse(R"(["x", "y"])"));
  EXPECT_EQ(drawn["rows"][0],
            Json::parse(R"({"name": "a", "value_s": 1.0, "text": "1.00 s", "emphasised": true,
                            "parts_s": [], "low_s": 0.9, "high_s": 1.1})"));
  EXPECT_FALSE(drawn["rows"][1].contains("low_s"));
  EXPECT_EQ(drawn["rows"][2]["parts_s"], Json::parse("[1.5, 0.5]"));
  EXPECT_EQ(drawing_of_rows("test", "Step", {}).json, "");
}

LineChart rising() {
  LineChart chart;
  chart.name = "test", chart.x_label = "Gbit/s", chart.y_label = "Scaling T₁ / Tₙ";
  chart.y_low = 0, chart.y_high = 1;
  chart.series = {{"ddp", {{1, 0.1}, {10, 0.5}, {100, 1.0}}}};
  return chart;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(TerminalCurve, MarksAxesAndNamesItsLines) {
  const std::string text = terminal_curve(rising());
  for (const char* words : {"\n  1 ┤", "\n  0 ┤", "Gbit/s", "\n  a ddp\n"})
    EXPECT_THAT(text, HasSubstr(words));
}

TEST(TerminalCurve, InAsciiALineIsWhereItsPointsAreAndNoLineIsWiderThanATerminal) {
  // 10 is the geometric mean of 1 and 100: the middle data point stands half way, and the letters
  // rise to the right.
  const std::vector<std::string> lines = lines_of(terminal_curve(rising(), true));
  EXPECT_GT(lines[1].rfind('a'), 60u);     // y = 1 is the top row
  EXPECT_LT(lines[15].find('a', 5), 12u);  // y = 0.1
  for (const std::string& line : lines) {
    EXPECT_LE(line.size(), 72u);
    for (const char c : line) ASSERT_LT(static_cast<unsigned char>(c), 0x80);
  }
}

TEST(TerminalCurve, AGapStaysEmptyAndOnePointOrNoneIsDrawable) {
  LineChart chart = rising();
  chart.series[0].points[1].y = std::nan("");
  // Two lone points: two letters in the drawing and one in the key, no line between them.
  EXPECT_EQ(std::ranges::count(terminal_curve(chart, true), 'a'), 3 + 1);  // + "Scaling"
  chart.series[0].points.resize(1);
  EXPECT_THAT(terminal_curve(chart), HasSubstr("a ddp"));
  chart.series.clear();
  EXPECT_THAT(terminal_curve(chart), HasSubstr("no defined value"));
}

TEST(TerminalCurve, UnicodeIsReadFromTheLocale) {
  EXPECT_TRUE(shows_unicode("de_DE.UTF-8"));
  EXPECT_TRUE(shows_unicode("C.utf8"));
  EXPECT_FALSE(shows_unicode("C"));
  EXPECT_FALSE(shows_unicode(""));
}

TEST(Scale, LogarithmicPutsTheGeometricMeanInTheMiddle) {
  EXPECT_DOUBLE_EQ((Scale{1, 100, 0, 200, true})(10), 100);
  EXPECT_DOUBLE_EQ((Scale{5, 5, 0, 200})(5), 100);  // one value: the middle
}

TEST(Ticks, AreRoundAndFewEnough) {
  EXPECT_THAT(linear_ticks(0, 1, 6),
              ElementsAre(0, testing::DoubleEq(0.2), testing::DoubleEq(0.4),
                          testing::DoubleNear(0.6, 1e-12), testing::DoubleEq(0.8), 1));
  EXPECT_THAT(log_ticks(1, 100, 10), ElementsAre(1, 2, 5, 10, 20, 50, 100));
  EXPECT_THAT(log_ticks(1, 100, 4), ElementsAre(1, 10, 100));
  EXPECT_FALSE(std::signbit(linear_ticks(0, 80, 8).front()));  // "-0" on an axis
}

}  // namespace
}  // namespace linerate::report
