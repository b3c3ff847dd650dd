// Who is blamed, on a clock that the test turns. Timeout 10 s, judged at 85 % of it: 8.5 s.
#include "linerate/comm/liveness.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace linerate::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Clock::time_point kStart{seconds(1000)};

/// Rank 0 of 4 waits in collective number 7 since kStart.
Liveness waiting() {
  Liveness liveness(0, 4, seconds(10), kStart);
  liveness.stuck_since(kStart);
  return liveness;
}

void all_heard(Liveness& liveness, std::uint64_t submitted, Clock::time_point now) {
  for (int r = 1; r < 4; ++r) liveness.heard(r, submitted, false, now);
}

TEST(Liveness, NobodyIsBlamedBeforeTheLimit) {
  Liveness liveness = waiting();
  all_heard(liveness, 7, kStart);  // none has submitted number 7 (the eighth)
  EXPECT_FALSE(liveness.verdict(7, kStart + milliseconds(8500)));
}

TEST(Liveness, ARankWithoutSignsOfLifeIsSilent) {
  Liveness liveness = waiting();
  all_heard(liveness, 8, kStart + milliseconds(8400));
  liveness.heard(2, 8, false, kStart - seconds(1));
  const auto verdict = liveness.verdict(7, kStart + milliseconds(8501));
  ASSERT_TRUE(verdict);
  EXPECT_THAT(*verdict, HasSubstr("rank 2 gave no sign of life for 9.50 s (timeout 10.0 s)"));
}

/// A silent rank makes others late: it is the one to name.
TEST(Liveness, SilenceExplainsMoreThanLateness) {
  Liveness liveness = waiting();
  all_heard(liveness, 7, kStart + seconds(8));
  liveness.heard(3, 7, false, kStart);
  const auto verdict = liveness.verdict(7, kStart + seconds(9));
  ASSERT_TRUE(verdict);
  EXPECT_THAT(*verdict, HasSubstr("rank 3 gave no sign"));
  EXPECT_THAT(*verdict, Not(HasSubstr("rank 1")));
}

TEST(Liveness, RanksThatHaveNotSubmittedAreLate) {
  Liveness liveness = waiting();
  all_heard(liveness, 8, kStart + seconds(9));
  liveness.heard(1, 7, false, kStart + seconds(9));
  liveness.heard(3, 5, false, kStart + seconds(9));
  const auto verdict = liveness.verdict(7, kStart + seconds(9));
  ASSERT_TRUE(verdict);
  EXPECT_THAT(*verdict, HasSubstr("ranks 1, 3 "));
  EXPECT_THAT(*verdict, HasSubstr("has not submitted"));
}

TEST(Liveness, ARankThatLeftFailsTheCollectiveAtOnce) {
  Liveness liveness = waiting();
  liveness.heard(2, 7, true, kStart);
  const auto verdict = liveness.verdict(7, kStart + milliseconds(1));
  ASSERT_TRUE(verdict);
  EXPECT_THAT(*verdict, HasSubstr("rank 2 left the job"));
}

/// It took part in number 7 before it left.
TEST(Liveness, ARankMayLeaveAfterItsPart) {
  Liveness liveness = waiting();
  liveness.heard(2, 8, true, kStart);
  EXPECT_FALSE(liveness.verdict(7, kStart + seconds(1)));
}

/// This process was stopped itself for a minute: the others have as long again as they had.
TEST(Liveness, OwnAbsenceIsForgiven) {
  Liveness liveness = waiting();
  all_heard(liveness, 8, kStart + seconds(1));
  liveness.forgive(seconds(60));
  EXPECT_FALSE(liveness.verdict(7, kStart + seconds(65)));
  EXPECT_TRUE(liveness.verdict(7, kStart + seconds(75)));
}

TEST(Liveness, WithoutACulpritItSaysSo) {
  Liveness liveness = waiting();
  all_heard(liveness, 8, kStart + seconds(9));
  const auto verdict = liveness.verdict(7, kStart + seconds(9));
  ASSERT_TRUE(verdict);
  EXPECT_THAT(*verdict, HasSubstr("every rank takes part"));
}

}  // namespace
}  // namespace linerate::comm
