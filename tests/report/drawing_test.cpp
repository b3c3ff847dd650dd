// Charts as data of a page, and in a terminal.
#include "linerate/report/sections.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "linerate/doc/json.hpp"
#include "linerate/report/texts.hpp"

namespace linerate::report {
namespace {

using doc::Json;
using testing::ElementsAre;
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
