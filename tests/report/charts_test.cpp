#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "linerate/report/dot_chart.hpp"
#include "linerate/report/heat_map.hpp"
#include "linerate/report/line_chart.hpp"
#include "linerate/report/scale.hpp"
#include "linerate/report/svg.hpp"

namespace linerate::report {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::size_t count(const std::string& text, std::string_view what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

LineChart chart_of(std::vector<Series> series) {
  LineChart chart;
  chart.name = "test";
  chart.x_label = "x", chart.y_label = "y";
  chart.series = std::move(series);
  chart.format_x =
      chart.format_y = [](double v) { return std::to_string(static_cast<int>(std::lround(v))); };
  return chart;
}

TEST(Escape, LeavesNoMarkupAndNoControlCharacter) {
  EXPECT_EQ(escape("<a href=\"x\" b='y'>&\n\x01"),
            "&lt;a href=&quot;x&quot; b=&#39;y&#39;&gt;&amp;  ");
}

TEST(Shortened, CutsBetweenCharactersOfSeveralBytes) {
  // Each kanji is at most 12 wide: 60 units hold the ellipsis and four of them; no byte of a fifth
  // may remain.
  EXPECT_EQ(shortened("線速線速線速", 12, 60), "線速線速…");
  EXPECT_EQ(shortened("abc", 12, 60), "abc");
  EXPECT_EQ(shortened("abcdefgh", 12, 10), "");
}

TEST(Scale, LogarithmicPutsTheGeometricMeanInTheMiddle) {
  EXPECT_DOUBLE_EQ(Scale::logarithmic(1, 100, 0, 200)(10), 100);
  EXPECT_DOUBLE_EQ(Scale::linear(5, 5, 0, 200)(5), 100);  // one value: the middle
}

TEST(Ticks, AreRoundAndFewEnough) {
  EXPECT_THAT(linear_ticks(0, 1, 6),
              ElementsAre(0, testing::DoubleEq(0.2), testing::DoubleEq(0.4),
                          testing::DoubleNear(0.6, 1e-12), testing::DoubleEq(0.8), 1));
  EXPECT_THAT(log_ticks(1, 100, 10), ElementsAre(1, 2, 5, 10, 20, 50, 100));
  EXPECT_THAT(log_ticks(1, 100, 4), ElementsAre(1, 10, 100));
  EXPECT_FALSE(std::signbit(linear_ticks(0, 80, 8).front()));  // "-0" on an axis
}

TEST(LineChart, AGapInTheDataIsAGapInTheLine) {
  // Four points with an unknown third and a NaN fourth: one stretch of two points, hence one line
  // and two markers.
  const LineChart chart =
      chart_of({{"s", {{1, 1, {}, {}}, {10, 2, {}, {}}, {20, {}, {}, {}}, {30, kNaN, {}, {}}}}});
  const std::string svg = draw(chart, Layout::wide);
  EXPECT_EQ(count(svg, "c0 d0 line"), 1u);
  EXPECT_EQ(count(svg, "c0 d0 mark"), 2u);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(LineChart, OnePointIsAMarkerWithoutALine) {
  const std::string svg = draw(chart_of({{"s", {{10, 0.5, 0.4, 0.6}}}}), Layout::narrow);
  EXPECT_EQ(count(svg, " line\""), 0u);
  EXPECT_EQ(count(svg, "c0 d0 mark"), 1u);
  EXPECT_EQ(count(svg, "whisker"), 1u);  // its interval
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(LineChart, WithoutADefinedValueItSaysSo) {
  EXPECT_THAT(draw(chart_of({}), Layout::wide), HasSubstr("No defined value"));
  EXPECT_THAT(draw(chart_of({{"s", {{1, kNaN, {}, {}}}}}), Layout::wide),
              HasSubstr("No defined value"));
  EXPECT_THAT(draw(chart_of({{"s", {{-1, 1.0, {}, {}}}}}), Layout::wide),
              HasSubstr("No defined value"));
}

TEST(LineChart, NamesAreEscapedEverywhere) {
  const LineChart chart = chart_of({{"<script>", {{1, 1, {}, {}}}}});
  EXPECT_THAT(draw(chart, Layout::wide) + legend(chart), Not(HasSubstr("<script>")));
  EXPECT_THAT(legend(chart), HasSubstr("&lt;script&gt;"));
}

TEST(LineChart, TheNinthLineDiffersFromTheFirst) {
  std::vector<Series> series;
  for (int i = 0; i < 9; ++i)
    series.push_back({std::to_string(i), {{1, i, {}, {}}, {2, i, {}, {}}}});
  EXPECT_THAT(draw(chart_of(series), Layout::wide),
              HasSubstr("c0 d1 line"));  // same colour, dashed
}

TEST(HeatMap, EveryCellIsReadableWithoutColour) {
  HeatMap map{"test",
              "bandwidth, Gbit/s",
              "ranks",
              {"1", "10"},
              {"16"},
              {"ddp", "a strategy with a name that is longer than any cell of a phone"},
              {{0, false, "5 ms"}, {1, true, "4 ms"}}};
  map.columns.resize(2);
  const std::string wide = draw(map, Layout::narrow);
  EXPECT_THAT(wide, HasSubstr(">A ddp<"));
  EXPECT_THAT(wide,
              HasSubstr(">≈ B<"));  // too long for the cell: its letter, which the legend explains
  EXPECT_THAT(legend(map),
              HasSubstr("<b>B</b> a strategy with a name that is longer than any cell of a phone"));
}

TEST(HeatMap, AnUndefinedCellIsADash) {
  const HeatMap map{"test", "c", "r", {"1"}, {"16"}, {"ddp"}, {{-1, false, ""}}};
  EXPECT_THAT(draw(map, Layout::wide), HasSubstr(">–<"));
}

TEST(HeatMap, WithoutCellsItSaysSo) {
  EXPECT_THAT(draw(HeatMap{"test", "c", "r", {}, {}, {}, {}}, Layout::wide),
              HasSubstr("No defined value"));
}

TEST(DotChart, LeavesOutWhatIsNotFinite) {
  DotChart chart{
      "test", "s", {{"good", 1, 0.9, 1.1, false}, {"bad", kNaN, {}, {}, false}}, [](double) {
        return "v";
      }};
  const std::string svg = draw(chart, Layout::wide);
  EXPECT_THAT(svg, HasSubstr("good"));
  EXPECT_THAT(svg, Not(HasSubstr("bad")));
  chart.rows.clear();
  EXPECT_THAT(draw(chart, Layout::wide), HasSubstr("No defined value"));
}

}  // namespace
}  // namespace linerate::report
