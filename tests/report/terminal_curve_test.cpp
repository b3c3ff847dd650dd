#include "linerate/report/texts.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <sstream>

namespace linerate::report {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

LineChart rising() {
  LineChart chart;
  chart.name = "test", chart.x_label = "Gbit/s", chart.y_label = "Scaling T₁ / Tₙ";
  chart.y_low = 0, chart.y_high = 1;
  chart.series = {{"ddp", {{1, 0.1, {}, {}}, {10, 0.5, {}, {}}, {100, 1.0, {}, {}}}}};
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
  EXPECT_THAT(text, HasSubstr("\n  1 ┤"));
  EXPECT_THAT(text, HasSubstr("\n  0 ┤"));
  EXPECT_THAT(text, HasSubstr("Gbit/s"));
  EXPECT_THAT(text, HasSubstr("\n  a ddp\n"));
}

TEST(TerminalCurve, ALineIsWhereItsPointsAre) {
  // 10 is the geometric mean of 1 and 100: the middle data point stands half way, and the letters
  // rise to the right.
  const std::vector<std::string> lines = lines_of(terminal_curve(rising(), {60, 10, true}));
  const auto row_with = [&](std::size_t from) {
    for (std::size_t i = from; i < 11; ++i)
      if (lines[i].find('a', 5) != std::string::npos) return i;
    return std::string::npos;
  };
  EXPECT_EQ(row_with(1), 1u);  // y = 1 is the top row
  EXPECT_GT(lines[1].rfind('a'), 50u);
  EXPECT_LT(lines[9].find('a', 5), 12u);
}

TEST(TerminalCurve, AsciiMeansNoByteAbove127) {
  for (const char c : terminal_curve(rising(), {60, 10, true}))
    ASSERT_LT(static_cast<unsigned char>(c), 0x80);
}

TEST(TerminalCurve, NoLineIsWiderThanAsked) {
  for (const std::string& line : lines_of(terminal_curve(rising(), {60, 10, true})))
    EXPECT_LE(line.size(), 60u);
}

TEST(TerminalCurve, AGapStaysEmpty) {
  LineChart chart = rising();
  chart.series[0].points[1].y = std::nan("");
  // Two lone points: two letters in the drawing and one in the key, no line between them.
  const std::string text = terminal_curve(chart, {60, 10, true});
  EXPECT_EQ(std::count(text.begin(), text.end(), 'a'), 3 + 1);  // + "Scaling"
}

TEST(TerminalCurve, OnePointAndNoPointAreDrawable) {
  LineChart chart = rising();
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
