// Times that a caller sets are written as std::chrono writes them.
#include "linerate/core/units.hpp"

#include <gtest/gtest.h>

#include "linerate/core/text.hpp"

namespace linerate {
namespace {

TEST(DurationOf, TakesEveryUnitOfChronoAndWhatWasTyped) {
  using namespace std::chrono_literals;
  const auto seconds = [](Duration d) { return d.count(); };
  EXPECT_EQ(seconds(60s), 60);
  EXPECT_EQ(seconds(250ms), 0.25);
  EXPECT_EQ(seconds(1.5s), 1.5);
  EXPECT_EQ(seconds(std::chrono::minutes(5)), 300);
  EXPECT_EQ(seconds(to_duration(parse_time("1.5s"))), 1.5);
  static_assert(!std::is_convertible_v<double, Duration>);  // a bare number says no unit
}

}  // namespace
}  // namespace linerate
