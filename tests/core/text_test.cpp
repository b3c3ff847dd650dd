#include "linerate/core/text.hpp"

#include <gmock/gmock.h>

#include "linerate/core/error.hpp"
#include "linerate/core/text_table.hpp"
#include "support/message_of.hpp"

namespace linerate {
namespace {

using support::message_of;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(ParseSize, BinaryAndDecimalUnitsDiffer) {
  EXPECT_EQ(parse_size("25MiB").value, 25 * 1024 * 1024);
  EXPECT_EQ(parse_size("25 MB").value, 25'000'000);
  EXPECT_EQ(parse_size("1.5KiB").value, 1536);
}

TEST(ParseSize, AsksForTheUnitAndNamesWhatWasFound) {
  EXPECT_THAT(message_of([] { return parse_size("100"); }), HasSubstr("\"100\"; write 100B"));
  EXPECT_THAT(message_of([] { return parse_size("3 parsecs"); }),
              HasSubstr("unknown unit \"parsecs\""));
  EXPECT_THROW(static_cast<void>(parse_size("-1MB")), UsageError);
  EXPECT_THROW(static_cast<void>(parse_size("")), UsageError);
  EXPECT_THROW(static_cast<void>(parse_size("1e30B")), UsageError);
}

TEST(ParseRate, BitsAreAnEighthOfBytes) {
  EXPECT_DOUBLE_EQ(parse_rate("10Gbit/s").value, 1.25e9);
  EXPECT_DOUBLE_EQ(parse_rate("10Gbps").value, 1.25e9);
  EXPECT_DOUBLE_EQ(parse_rate("10Gb/s").value, 1.25e9);
  EXPECT_DOUBLE_EQ(parse_rate("12.5GB/s").value, 12.5e9);
}

TEST(ParseRate, ZeroWithoutAUnitIsNotToldToTakeOne) {
  EXPECT_EQ(message_of([] { return parse_rate("0"); }),
            "expected a rate above 0 such as 10Gbit/s, found \"0\"");
  EXPECT_THAT(message_of([] { return parse_rate("5"); }), HasSubstr("write 5Gbit/s or 5GB/s"));
}

TEST(ParseTime, MicroAndMinuteAreNotMixedUp) {
  EXPECT_DOUBLE_EQ(parse_time("20us").value, 2e-5);
  EXPECT_DOUBLE_EQ(parse_time("128.08580ms").value, 0.1280858);
  EXPECT_DOUBLE_EQ(parse_time("2min").value, 120);
}

TEST(FormatTime, KeepsThreeFigures) {
  EXPECT_EQ(format_time(0.128), "128 ms");
  EXPECT_EQ(format_time(2e-5), "20.0 us");
  EXPECT_EQ(format_time(0), "0 s");
  EXPECT_EQ(format_time(1.234), "1.23 s");
}

TEST(Split, LeavesParenthesesWhole) {
  EXPECT_THAT(split_outside_parentheses("ddp, codec(a=1,b=2) ,dear", ','),
              ElementsAre("ddp", "codec(a=1,b=2)", "dear"));
}

TEST(Nearest, FindsTheTypoAndNothingFarAway) {
  const std::vector<std::string> names = {"bulk", "ddp", "optimal"};
  EXPECT_EQ(nearest("optmal", names), "optimal");
  EXPECT_EQ(nearest("dpd", names), "ddp");
  EXPECT_EQ(nearest("DDP", names), "ddp");
  EXPECT_EQ(nearest("kfac", names), "");
}

TEST(Printable, KeepsTextAndReplacesWhatIsNone) {
  for (const std::string text : {"", "a\tb\n", "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x99\x82"})
    EXPECT_EQ(printable(text), text);
  EXPECT_EQ(printable("\x1f\x8b\x08x"), "???x");
  EXPECT_EQ(printable(std::string_view("a\0b\x1b[1m", 7)), "a?b?[1m");
  EXPECT_EQ(printable("\xe2\x82"), "??");                   // cut
  EXPECT_EQ(printable("\xc0\xaf \xed\xa0\x80"), "?? ???");  // overlong, surrogate
  EXPECT_EQ(printable("\xc2\x9b"), "??");                   // a control character too
}

TEST(TextTable, ColumnsAreAsWideAsTheirCells) {
  EXPECT_EQ(text_table({"name", ">step", "reason"},
                       {{"ddp", "20.0 ms", "short"}, {"horovod", "1 s", ""}}, "  "),
            "  name        step  reason\n"
            "  ddp      20.0 ms  short\n"
            "  horovod      1 s\n");
}

TEST(TextTable, WithoutRowsHasItsHeadAlone) {
  EXPECT_THAT(table_lines({">a", "b"}, {}), testing::ElementsAre("a  b"));
}

}  // namespace
}  // namespace linerate
