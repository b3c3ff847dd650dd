#include "linerate/report/predictions.hpp"

#include <gmock/gmock.h>

#include "linerate/core/error.hpp"

namespace linerate::report {
namespace {

using testing::DoubleEq;
using testing::Optional;

Prediction entry(const std::string& strategy, int ranks, double gbit, double step,
                 double spread = 0) {
  return {strategy, ranks, gbit * 1e9, 1.0, step, step - spread, step + spread, 0.1 / step, false};
}

// Of a strategy whose steps are other steps.
Prediction lossy(const std::string& strategy, double step) {
  Prediction p = entry(strategy, 4, 1, step);
  p.changes_convergence = true;
  return p;
}

TEST(Predictions, SayWhetherTheStrategyChangesConvergence) {
  const auto p = predictions_from_json(
      R"json({"predictions": [
    {"strategy": "a", "changes_convergence": true, "ranks": 4, "bandwidth_bit_per_s": 1e9},
    {"strategy": "b", "changes_convergence": false, "ranks": 4, "bandwidth_bit_per_s": 1e9},
    {"strategy": "ddp+codec(ratio=8)", "ranks": 4, "bandwidth_bit_per_s": 1e9}]})json",
      "x");
  ASSERT_EQ(p.size(), 3u);
  EXPECT_TRUE(p[0].changes_convergence);
  EXPECT_FALSE(p[1].changes_convergence);
  EXPECT_FALSE(p[2].changes_convergence);  // absent: nobody reads a strategy's name here
}

TEST(Predictions, NullIsAbsentAndNeverZero) {
  const auto p = predictions_from_json(
      R"({"predictions": [{"strategy": "ddp", "ranks": 4, "bandwidth_bit_per_s": 1e9,
    "compression_ratio": null, "step_s": null, "interval_s": null, "scaling_factor": null}]})",
      "x");
  ASSERT_EQ(p.size(), 1u);
  EXPECT_FALSE(p[0].compression_ratio || p[0].step_s || p[0].step_low_s || p[0].scaling_factor);
}

TEST(Predictions, AnIntervalOfOneEndIsRefusedWithItsPlace) {
  try {
    predictions_from_json(
        R"({"predictions": [{"strategy": "ddp", "ranks": 4, "bandwidth_bit_per_s": 1e9,
      "step_s": 1, "interval_s": [1]}]})",
        "x.json");
    FAIL();
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("x.json: /predictions/0/interval_s"));
  }
}

TEST(Predictions, ImpossibleNumbersAndAnUnknownBandwidthAreRefusedWhereTheyStand) {
  const auto error_of = [](const std::string& bandwidth, const std::string& step) {
    try {
      predictions_from_json(
          R"({"predictions": [{"strategy": "ddp", "ranks": 4, "bandwidth_bit_per_s": )" +
              bandwidth + R"(, "step_s": )" + step + "}]}",
          "x.json");
    } catch (const InputError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(error_of("1e9", "1"), "no error");
  EXPECT_THAT(error_of("0", "1"), testing::HasSubstr("/bandwidth_bit_per_s: expected more than 0"));
  EXPECT_THAT(error_of("1e9", "-1"), testing::HasSubstr("/step_s: expected 0 to"));
  EXPECT_THAT(error_of("null", "1"), testing::HasSubstr("ask whatif with --bandwidth"));
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
  p.step_low_s = 0.2, p.step_high_s = 0.4;
  const Point point = scaling_charts({p})[0].series[0].points[0];
  EXPECT_THAT(point.y, Optional(DoubleEq(0.4)));
  EXPECT_THAT(point.low, Optional(DoubleEq(0.25)));
  EXPECT_THAT(point.high, Optional(DoubleEq(0.5)));
}

TEST(BestStrategy, IsTheLeastStepPerCell) {
  const auto maps = best_strategy_maps({entry("bulk", 4, 10, 2), entry("bulk", 4, 1, 4),
                                        entry("ddp", 4, 10, 1), entry("ddp", 4, 1, 5)});
  ASSERT_EQ(maps.size(), 1u);
  EXPECT_THAT(maps[0].columns, testing::ElementsAre("1", "10"));
  EXPECT_EQ(maps[0].cells[0].choice, 0);  // 1 Gbit/s: bulk, 4 s before 5 s
  EXPECT_EQ(maps[0].cells[1].choice, 1);
  EXPECT_FALSE(maps[0].cells[0].tied);
}

TEST(BestStrategy, OverlappingIntervalsAreATie) {
  // 1 ± 0.3 and 1.5 ± 0.3 share 1.2 to 1.3.
  const auto maps = best_strategy_maps({entry("bulk", 4, 1, 1, 0.3), entry("ddp", 4, 1, 1.5, 0.3)});
  EXPECT_TRUE(maps[0].cells[0].tied);
}

TEST(BestStrategy, LossyStrategiesAreNotComparedByStepTime) {
  const auto maps = best_strategy_maps(
      {entry("bulk", 4, 1, 2), entry("ddp", 4, 1, 3), lossy("ddp+codec(ratio=8)", 0.1)});
  ASSERT_EQ(maps.size(), 1u);
  EXPECT_EQ(maps[0].choices, (std::vector<std::string>{"bulk", "ddp"}));
  EXPECT_EQ(maps[0].cells[0].choice, 0);
  EXPECT_TRUE(best_strategy_maps({entry("ddp", 4, 1, 1)}).empty());  // nothing to choose
}

TEST(BestStrategy, ANarrowerWireIsLossyToo) {
  const auto maps = best_strategy_maps(
      {entry("bulk", 4, 1, 2), entry("ddp", 4, 1, 3), lossy("ddp(wire=fp16)", 0.1)});
  ASSERT_EQ(maps.size(), 1u);
  EXPECT_EQ(maps[0].choices, (std::vector<std::string>{"bulk", "ddp"}));
}

TEST(BestStrategy, TheCaptionNamesWhatIsLeftOutAndOnlyThat) {
  const auto caption_of = [](const std::vector<Prediction>& p) {
    return section_of(p, "t").figures.back().caption;
  };
  const Prediction bulk = entry("bulk", 4, 1, 2), ddp = entry("ddp", 4, 1, 3);
  EXPECT_EQ(caption_of({bulk, ddp}), "Least predicted step time in each cell.");
  EXPECT_THAT(caption_of({bulk, ddp, lossy("ddp(wire=fp16)", 1), lossy("ddp+codec(ratio=8)", 1)}),
              testing::HasSubstr("Left out: ddp(wire=fp16), ddp+codec(ratio=8). Lossy"));
}

TEST(BestStrategy, ARatioThatOnlyALossyStrategyHasMakesNoEmptyMap) {
  Prediction codec = lossy("ddp+codec(ratio=8)", 0.1);
  codec.compression_ratio = 8;
  EXPECT_EQ(best_strategy_maps({entry("bulk", 4, 1, 2), entry("ddp", 4, 1, 3), codec}).size(), 1u);
}

TEST(ScalingCharts, OnlyASweptRatioIsSaidBesideTheStrategy) {
  Prediction codec = lossy("ddp+codec(ratio=8)", 0.1), swept = entry("bulk", 4, 1, 0.2);
  codec.compression_ratio = 8, swept.compression_ratio = 2;
  const auto charts = scaling_charts({entry("ddp", 4, 1, 1), codec, entry("bulk", 4, 1, 1), swept});
  std::vector<std::string> names;
  for (const Series& s : charts[0].series) names.push_back(s.name);
  EXPECT_THAT(names,
              testing::ElementsAre("ddp", "ddp+codec(ratio=8)", "bulk, ratio 1", "bulk, ratio 2"));
}

TEST(BestStrategy, ACellWithoutAPredictionStaysEmpty) {
  const auto maps = best_strategy_maps({entry("bulk", 4, 1, 2), entry("ddp", 8, 10, 3)});
  ASSERT_EQ(maps[0].cells.size(), 4u);
  EXPECT_EQ(maps[0].cells[1].choice, -1);  // 4 ranks at 10 Gbit/s was not asked
}

}  // namespace
}  // namespace linerate::report
