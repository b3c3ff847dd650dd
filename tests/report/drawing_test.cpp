#include "linerate/report/sections.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "linerate/doc/json.hpp"

namespace linerate::report {
namespace {

using doc::Json;
using testing::HasSubstr;
using testing::Not;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

LineChart chart_of(std::vector<Series> series) {
  LineChart chart;
  chart.name = "test";
  chart.x_label = "x", chart.y_label = "y";
  chart.series = std::move(series);
  return chart;
}

template <typename Chart>
Json data_of(const Chart& chart) {
  return Json::parse(drawing_of(chart).json);
}

Json points_of(std::vector<Point> points, bool log_x = true) {
  LineChart chart = chart_of({{"s", std::move(points)}});
  chart.log_x = log_x;
  return data_of(chart)["series"][0]["points"];
}

TEST(LineDrawing, AnUndefinedValueIsAGap) {
  EXPECT_EQ(points_of({{1, 1, {}, {}}, {10, 2, {}, {}}, {20, {}, {}, {}}, {30, kNaN, {}, {}}}),
            Json::parse("[[1,1],[10,2],[20,null],[30,null]]"));
}

TEST(LineDrawing, PointsRiseInXAndHaveTheirIntervals) {
  EXPECT_EQ(points_of({{10, 0.5, 0.4, 0.6}, {1, 0.25, 0.125, kNaN}}),
            Json::parse("[[1,0.25],[10,0.5,0.4,0.6]]"));
}

TEST(LineDrawing, WhatALogarithmicAxisLacksIsLeftOut) {
  const std::vector<Point> points = {
      {-1, 1, {}, {}}, {0, 1, {}, {}}, {kNaN, 1, {}, {}}, {2, 1, {}, {}}};
  EXPECT_EQ(points_of(points), Json::parse("[[2,1]]"));
  EXPECT_EQ(points_of(points, false), Json::parse("[[-1,1],[0,1],[2,1]]"));
}

TEST(LineDrawing, TheRangeToShowIsThere) {
  LineChart chart = chart_of({{"s", {{1, 1, {}, {}}}}});
  EXPECT_EQ(data_of(chart)["y_range"], Json::array());
  chart.y_low = 0, chart.y_high = 1;
  EXPECT_EQ(data_of(chart)["y_range"], Json::array({0.0, 1.0}));
}

TEST(LineDrawing, WithoutADefinedValueItSaysSo) {
  for (const LineChart& chart : {chart_of({}), chart_of({{"s", {{1, kNaN, {}, {}}}}}),
                                 chart_of({{"s", {{-1, 1.0, {}, {}}}}})}) {
    EXPECT_EQ(drawing_of(chart).json, "");
    EXPECT_EQ(drawing_of(chart).nothing, "No defined value to draw");
  }
}

TEST(Drawing, NoNameEndsTheScriptElement) {
  const std::string name = "</script><!--<script>\"'\\\n\x01";
  const std::string json = drawing_of(chart_of({{name, {{1, 1, {}, {}}}}})).json;
  EXPECT_THAT(json, Not(HasSubstr("<")));
  EXPECT_EQ(Json::parse(json)["series"][0]["name"], name);
}

TEST(Drawing, ANameThatIsNoUtf8IsReplaced) {
  const std::string json = drawing_of(chart_of({{"a\xff\xfe z", {{1, 1, {}, {}}}}})).json;
  EXPECT_EQ(Json::parse(json)["series"][0]["name"], "a\uFFFD\uFFFD z");
}

TEST(MapDrawing, HasEveryCellInItsPlace) {
  const HeatMap map{"test",
                    "bandwidth, Gbit/s",
                    "ranks",
                    {"1", "10"},
                    {"16"},
                    {"ddp", "dear"},
                    {{0, false, "5 ms"}, {1, true, "4 ms"}}};
  const Json data = data_of(map);
  EXPECT_EQ(data["cells"], Json::parse(R"([[0,false,"5 ms"],[1,true,"4 ms"]])"));
  EXPECT_EQ(data["columns"], Json::parse(R"(["1","10"])"));
  EXPECT_EQ(data["rows"], Json::parse(R"(["16"])"));
  EXPECT_EQ(data["choices"], Json::parse(R"(["ddp","dear"])"));
}

TEST(MapDrawing, AnUndefinedCellHasNoChoice) {
  const HeatMap map{"test", "c", "r", {"1"}, {"16"}, {"ddp"}, {{-1, false, ""}}};
  EXPECT_EQ(data_of(map)["cells"], Json::parse(R"([[-1,false,""]])"));
}

TEST(MapDrawing, WithoutCellsItSaysSo) {
  const Drawing drawing = drawing_of(HeatMap{"test", "c", "r", {}, {}, {}, {}});
  EXPECT_EQ(drawing.json, "");
  EXPECT_EQ(drawing.nothing, "No defined value to draw");
}

TEST(RowDrawing, LeavesOutWhatIsNotFinite) {
  RowChart chart{
      "test", "Step", {}, {{"good", 1, 0.9, 1.1, false, {}}, {"bad", kNaN, {}, {}, false, {}}}};
  EXPECT_EQ(data_of(chart)["rows"],
            Json::parse(R"([{"name": "good", "value_s": 1.0, "text": "1.00 s",
                             "emphasised": false, "parts_s": [], "low_s": 0.9, "high_s": 1.1}])"));
  chart.rows[0].high_s = kNaN;  // no end, no interval
  EXPECT_FALSE(data_of(chart)["rows"][0].contains("low_s"));
  chart.rows.clear();
  EXPECT_EQ(drawing_of(chart).json, "");
}

}  // namespace
}  // namespace linerate::report
