#include "linerate/core/text_table.hpp"

#include <gmock/gmock.h>

namespace linerate {
namespace {

TEST(TextTable, ColumnsAreAsWideAsTheirCells) {
  EXPECT_EQ(text_table({{"name"}, {"step", true}, {"reason"}},
                       {{"ddp", "20.0 ms", "short"}, {"horovod", "1 s", ""}}, "  "),
            "  name        step  reason\n"
            "  ddp      20.0 ms  short\n"
            "  horovod      1 s\n");
}

TEST(TextTable, WithoutRowsHasItsHeadAlone) {
  EXPECT_THAT(table_lines({{"a", true}, {"b"}}, {}), testing::ElementsAre("a  b"));
}

}  // namespace
}  // namespace linerate
