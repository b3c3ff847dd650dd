#include "linerate/core/bucket_limits.hpp"

#include <gtest/gtest.h>

#include <array>

namespace linerate {
namespace {

TEST(BucketLimits, ApplyInTurnAndTheLastOneStays) {
  constexpr std::array<std::int64_t, 3> limits = {10, 20, 30};
  BucketLimits rule(limits);
  EXPECT_FALSE(rule.closes_at(9));
  EXPECT_TRUE(rule.closes_at(10));   // reached, not passed
  EXPECT_FALSE(rule.closes_at(19));  // a bucket that does not close keeps its limit
  EXPECT_FALSE(rule.closes_at(19));
  EXPECT_TRUE(rule.closes_at(1000));  // one tensor may be larger than any limit
  EXPECT_FALSE(rule.closes_at(29));
  EXPECT_TRUE(rule.closes_at(30));
  EXPECT_FALSE(rule.closes_at(29));
  EXPECT_TRUE(rule.closes_at(31));
}

}  // namespace
}  // namespace linerate
