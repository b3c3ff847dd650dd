// The order of the data: from seed and epoch alone, and shared out without loss.
#include "linerate/zoo/dataset.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "linerate/zoo/optimizer.hpp"

namespace linerate::zoo {
namespace {

TEST(EpochOrder, IsAPermutationThatSeedAndEpochChange) {
  const std::vector<std::int64_t> order = epoch_order(1, 0, 1000);
  std::vector<std::int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (std::int64_t i = 0; i < 1000; ++i) ASSERT_EQ(sorted[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(order, epoch_order(1, 0, 1000));
  EXPECT_NE(order, epoch_order(2, 0, 1000));
  EXPECT_NE(order, epoch_order(1, 1, 1000));
}

TEST(EpochPlan, RanksTogetherVisitWhatOneRankVisits) {
  // 103 samples, 24 a step: steps of 24, 24, 24, 24 and 7.
  for (const int ranks : {1, 2, 3, 4}) {
    const EpochPlan plan{103, 24, ranks};
    ASSERT_EQ(plan.steps(), 5);
    for (std::int64_t s = 0; s < plan.steps(); ++s) {
      std::int64_t next = plan.step(s).begin;
      for (int rank = 0; rank < ranks; ++rank) {
        const Range share = share_of(plan.step(s), rank, ranks);
        EXPECT_EQ(share.begin, next);
        EXPECT_GE(share.size(), 1);
        next = share.end;
      }
      EXPECT_EQ(next, plan.step(s).end);
    }
  }
}

TEST(EpochPlan, FewerLeftThanRanksAreDropped) {
  EXPECT_EQ((EpochPlan{17, 8, 2}).steps(), 2);  // one sample is left for two ranks
  EXPECT_EQ((EpochPlan{18, 8, 2}).steps(), 3);
}

TEST(RateSchedule, OneCycleRisesToItsRateAndFallsToAThousandth) {
  const RateSchedule s{"one-cycle", 1.0, 100};
  EXPECT_DOUBLE_EQ(s.at(0), 0.1);
  EXPECT_DOUBLE_EQ(s.at(25), 1.0);
  EXPECT_NEAR(s.at(100), 0.001, 1e-12);
  for (std::int64_t i = 26; i <= 100; ++i) EXPECT_LT(s.at(i), s.at(i - 1));
}

}  // namespace
}  // namespace linerate::zoo
