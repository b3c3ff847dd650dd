#include "linerate/report/sections.hpp"

#include <gmock/gmock.h>

namespace linerate::report {
namespace {

using doc::Prediction;
using testing::DoubleEq;
using testing::ElementsAre;
using testing::Optional;

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
              testing::HasSubstr("Left out: ddp(wire=fp16), ddp+codec(ratio=8). Lossy"));
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
  EXPECT_THAT(neither.paragraphs, testing::Contains(testing::HasSubstr("whatif with --bandwidth")));
  ASSERT_TRUE(neither.table);
  EXPECT_EQ(neither.table->rows.size(), 1u);
}

}  // namespace
}  // namespace linerate::report
