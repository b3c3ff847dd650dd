#include "linerate/doc/strategy.hpp"

#include <gmock/gmock.h>

#include "linerate/core/error.hpp"
#include "support/message_of.hpp"

namespace linerate::doc {
namespace {

TEST(Strategy, TextRoundTrips) {
  for (const char* text :
       {"ddp", "ddp(bucket=25MiB)", "ddp(bucket=25MiB, first=1MiB)+powersgd(rank=4)",
        "ddp+kfac(spd)", "bulk+codec(ratio=8, encode=10GB/s)+kfac(spd, fusion=greedy)"})
    EXPECT_EQ(to_text(parse_strategy(text)), text);
}

TEST(Strategy, PositionalAndNamedOptionsAreToldApart) {
  const Strategy s = parse_strategy("ddp+kfac(spd, fusion=greedy)");
  ASSERT_EQ(s.extras.size(), 1u);
  EXPECT_EQ(*s.extras[0].find(""), "spd");
  EXPECT_EQ(*s.extras[0].find("fusion"), "greedy");
  EXPECT_EQ(s.extras[0].find("placement"), nullptr);
}

TEST(Strategy, CommasInsideParenthesesDoNotSplitAList) {
  EXPECT_EQ(parse_strategies("ddp,dear+codec(ratio=8,encode=1GB/s),bulk").size(), 3u);
}

TEST(Strategy, ErrorsNameTheColumn) {
  for (const char* text : {"", "ddp+", "ddp(", "ddp)", "ddp(bucket=)",
                           "ddp(bucket=1MB, bucket=2MB)", "d dp", "ddp(=4)"})
    EXPECT_THROW(static_cast<void>(parse_strategy(text)), UsageError) << text;
  EXPECT_THAT(support::message_of([] { return parse_strategy("ddp+?"); }),
              testing::HasSubstr("column 5"));
}

}  // namespace
}  // namespace linerate::doc
