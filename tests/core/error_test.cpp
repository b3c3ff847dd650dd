#include "linerate/core/error.hpp"

#include <gmock/gmock.h>

#include "linerate/core/registry.hpp"

namespace linerate {
namespace {

TEST(Errors, CarryTheirExitCode) {
  EXPECT_EQ(UsageError("x").exit_code(), 2);
  EXPECT_EQ(InputError("file", "x").exit_code(), 3);
  EXPECT_EQ(CommError("x").exit_code(), 4);
  EXPECT_EQ(DeviceError("x").exit_code(), 5);
  EXPECT_EQ(InternalError("x").exit_code(), 70);
}

TEST(Check, NamesExpressionPlaceAndDetail) {
  EXPECT_THAT([] { LINERATE_CHECK(1 == 2, "sums are off"); },
              testing::ThrowsMessage<InternalError>(
                  testing::AllOf(testing::HasSubstr("error_test.cpp"), testing::HasSubstr("1 == 2"),
                                 testing::HasSubstr("sums are off"))));
}

TEST(Registry, AnUnknownNameIsAnsweredWithTheNearest) {
  const Registry<int> registry("exchange", {{"bulk", 1, "", ""}, {"ddp", 2, "", ""}});
  EXPECT_EQ(registry.at("ddp"), 2);
  EXPECT_THAT([&] { registry.at("dpp"); },
              testing::ThrowsMessage<UsageError>(testing::HasSubstr("did you mean \"ddp\"?")));
}

}  // namespace
}  // namespace linerate
