#include "linerate/core/text_table.hpp"

#include <gtest/gtest.h>

namespace linerate {
namespace {

TEST(Printable, KeepsTextAndReplacesWhatIsNone) {
  for (const std::string text : {"", "a\tb\n", "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x99\x82"})
    EXPECT_EQ(printable(text), text);
  EXPECT_EQ(printable("\x1f\x8b\x08x"), "???x");
  EXPECT_EQ(printable(std::string_view("a\0b\x1b[1m", 7)), "a?b?[1m");
  EXPECT_EQ(printable("\xe2\x82"), "??");                   // cut
  EXPECT_EQ(printable("\xc0\xaf \xed\xa0\x80"), "?? ???");  // overlong, surrogate
  EXPECT_EQ(printable("\xc2\x9b"), "??");                   // a control character too
}

}  // namespace
}  // namespace linerate
