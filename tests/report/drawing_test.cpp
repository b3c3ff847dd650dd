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

Json points_of(std::vector<Point> points, bool log_x = true) {
  LineChart chart = chart_of({{"s", std::move(points)}});
  chart.log_x = log_x;
  return Json::parse(drawing_of(chart).json)["series"][0]["points"];
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
  const auto range = [&] { return Json::parse(drawing_of(chart).json)["y_range"]; };
  EXPECT_EQ(range(), Json::array());
  chart.y_low = 0, chart.y_high = 1;
  EXPECT_EQ(range(), Json::array({0.0, 1.0}));
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

TEST(RowDrawing, HasAnIntervalOfTwoEndsOrPartsOrNothingToDraw) {
  const std::vector<Json> rows = {chart_row("a", {1, 0.9, 1.1}, true),
                                  chart_row("b", {1, 0.9, {}}, false),
                                  chart_row("c", 2, {1.5, 0.5})};
  const Json drawn = Json::parse(drawing_of_rows("test", "Step", rows, {"x", "y"}).json);
  EXPECT_EQ(drawn["parts"], Json::parse(R"(["x", "y"])"));
  EXPECT_EQ(drawn["rows"][0],
            Json::parse(R"({"name": "a", "value_s": 1.0, "text": "1.00 s", "emphasised": true,
                            "parts_s": [], "low_s": 0.9, "high_s": 1.1})"));
  EXPECT_FALSE(drawn["rows"][1].contains("low_s"));
  EXPECT_EQ(drawn["rows"][2]["parts_s"], Json::parse("[1.5, 0.5]"));
  EXPECT_EQ(drawing_of_rows("test", "Step", {}).json, "");
}

}  // namespace
}  // namespace linerate::report
