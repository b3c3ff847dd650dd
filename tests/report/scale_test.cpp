#include "linerate/report/sections.hpp"

#include <gmock/gmock.h>

#include <cmath>

namespace linerate::report {
namespace {

using testing::ElementsAre;

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

}  // namespace
}  // namespace linerate::report
