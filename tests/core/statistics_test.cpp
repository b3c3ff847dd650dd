#include "linerate/core/statistics.hpp"

#include <gtest/gtest.h>

#include <array>

#include "linerate/core/error.hpp"

namespace linerate {
namespace {

TEST(Quantile, InterpolatesBetweenOrderStatistics) {
  const std::array<double, 4> x = {4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(median(x), 2.5);
  EXPECT_DOUBLE_EQ(quantile(x, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(x, 1), 4);
  EXPECT_DOUBLE_EQ(quantile(x, 0.25), 1.75);  // position 0.75 between 1 and 2
  EXPECT_DOUBLE_EQ(mean(x), 2.5);
}

TEST(Quantile, OfNothingIsABug) { EXPECT_THROW(median({}), InternalError); }

}  // namespace
}  // namespace linerate
