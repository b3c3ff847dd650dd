// Who is blamed, on a clock that the test turns. Timeout 10 s, judged at 85 % of it: 8.5 s.
#include "linerate/comm/liveness.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace linerate::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Clock::time_point kStart{seconds(1000)};

// Rank 0 of 4 waits in its eighth collective with each of the others, since kStart.
constexpr std::array<int, 4> kAll = {0, 1, 2, 3};
constexpr std::array<std::uint64_t, 4> kBegun = {8, 8, 8, 8};

Liveness waiting() {
  Liveness liveness(0, 4, seconds(10), kStart);
  liveness.stuck_since(kStart);
  return liveness;
}

std::optional<std::string> verdict(const Liveness& liveness, Clock::time_point now) {
  return liveness.verdict(kAll, kBegun, now);
}

/// It waits in the same collective, or has been through it.
Report here() { return {.submitted = 8, .begun = 8, .left = false, .stalled = seconds(1)}; }
/// It computes, and has not come yet.
Report missing() { return {.submitted = 7, .begun = 7, .left = false, .stalled = {}}; }
/// It is inside a collective before this one, which it has submitted or not.
Report elsewhere(std::uint64_t submitted, Clock::duration stalled) {
  return {.submitted = submitted, .begun = 7, .left = false, .stalled = stalled};
}

void all_heard(Liveness& liveness, const Report& report, Clock::time_point now) {
  for (int r = 1; r < 4; ++r) liveness.heard(r, report, now);
}

TEST(Liveness, NobodyIsBlamedBeforeTheLimit) {
  Liveness liveness = waiting();
  all_heard(liveness, missing(), kStart);
  EXPECT_FALSE(verdict(liveness, kStart + milliseconds(8500)));
}

TEST(Liveness, ARankWithoutSignsOfLifeIsSilent) {
  Liveness liveness = waiting();
  all_heard(liveness, here(), kStart + milliseconds(8400));
  liveness.heard(2, here(), kStart - seconds(1));
  const auto said = verdict(liveness, kStart + milliseconds(8501));
  ASSERT_TRUE(said);
  EXPECT_THAT(*said, HasSubstr("rank 2 gave no sign of life for 9.50 s (timeout 10.0 s)"));
}

/// A silent rank makes others late: it is the one to name.
TEST(Liveness, SilenceExplainsMoreThanLateness) {
  Liveness liveness = waiting();
  all_heard(liveness, missing(), kStart + seconds(8));
  liveness.heard(3, missing(), kStart);
  const auto said = verdict(liveness, kStart + seconds(9));
  ASSERT_TRUE(said);
  EXPECT_THAT(*said, HasSubstr("rank 3 gave no sign"));
  EXPECT_THAT(*said, Not(HasSubstr("rank 1")));
}

TEST(Liveness, RanksThatHaveNotSubmittedAreLate) {
  Liveness liveness = waiting();
  all_heard(liveness, here(), kStart + seconds(9));
  liveness.heard(1, missing(), kStart + seconds(9));
  liveness.heard(3, {.submitted = 5, .begun = 5}, kStart + seconds(9));
  const auto said = verdict(liveness, kStart + seconds(9));
  ASSERT_TRUE(said);
  EXPECT_THAT(*said, HasSubstr("ranks 1, 3 "));
  EXPECT_THAT(*said, HasSubstr("has not submitted"));
}

TEST(Liveness, ARankThatLeftFailsTheCollectiveAtOnce) {
  Liveness liveness = waiting();
  liveness.heard(2, {.submitted = 7, .begun = 7, .left = true}, kStart);
  const auto said = verdict(liveness, kStart + milliseconds(1));
  ASSERT_TRUE(said);
  EXPECT_THAT(*said, HasSubstr("rank 2 left the job"));
}

/// It took part in this one before it left.
TEST(Liveness, ARankMayLeaveAfterItsPart) {
  Liveness liveness = waiting();
  liveness.heard(2, {.submitted = 8, .begun = 8, .left = true}, kStart);
  EXPECT_FALSE(verdict(liveness, kStart + seconds(1)));
}

/// This process was stopped itself for a minute: the others have as long again as they had.
TEST(Liveness, OwnAbsenceIsForgiven) {
  Liveness liveness = waiting();
  all_heard(liveness, here(), kStart + seconds(1));
  liveness.forgive(seconds(60));
  EXPECT_FALSE(verdict(liveness, kStart + seconds(65)));
  EXPECT_TRUE(verdict(liveness, kStart + seconds(75)));
}

TEST(Liveness, WithoutACulpritItSaysSo) {
  Liveness liveness = waiting();
  all_heard(liveness, here(), kStart + seconds(9));
  const auto said = verdict(liveness, kStart + seconds(9));
  ASSERT_TRUE(said);
  EXPECT_THAT(*said, HasSubstr("every rank takes part"));
}

// Ranks 0 and 2 are a group.
constexpr std::array<int, 2> kGroup = {0, 2};

/// Those outside may have left, or compute for as long as they like.
TEST(LivenessOfGroups, ARankOutsideIsNeverLateAndMayLeave) {
  Liveness liveness = waiting();
  liveness.heard(1, {.submitted = 3, .begun = 3, .left = true}, kStart);
  liveness.heard(2, here(), kStart + seconds(9));
  liveness.heard(3, missing(), kStart + seconds(9));
  EXPECT_FALSE(liveness.verdict(kGroup, kBegun, kStart + seconds(1)));
  const auto said = liveness.verdict(kGroup, kBegun, kStart + seconds(9));
  ASSERT_TRUE(said);
  EXPECT_THAT(*said, HasSubstr("every rank takes part"));
}

TEST(LivenessOfGroups, AMemberThatDoesNotComeIsNamed) {
  Liveness liveness = waiting();
  all_heard(liveness, missing(), kStart + seconds(9));
  const auto late = liveness.verdict(kGroup, kBegun, kStart + seconds(9));
  ASSERT_TRUE(late);
  EXPECT_THAT(*late, HasSubstr("rank 2 is late"));
  liveness.heard(2, {.submitted = 7, .begun = 7, .left = true}, kStart + seconds(9));
  const auto left = liveness.verdict(kGroup, kBegun, kStart + seconds(9));
  ASSERT_TRUE(left);
  EXPECT_THAT(*left, HasSubstr("rank 2 left the job"));
}

/// The counts are by pairs: what this rank has begun with others says nothing of rank 2.
TEST(LivenessOfGroups, ComparesTheCountsOfEachPair) {
  Liveness liveness = waiting();
  const std::array<std::uint64_t, 4> begun = {8, 100, 3, 50};
  all_heard(liveness, {.submitted = 3, .begun = 3}, kStart + seconds(9));
  const auto in_group = liveness.verdict(kGroup, begun, kStart + seconds(9));
  ASSERT_TRUE(in_group);
  EXPECT_THAT(*in_group, HasSubstr("every rank takes part"));
  const auto in_all = liveness.verdict(kAll, begun, kStart + seconds(9));
  ASSERT_TRUE(in_all);
  EXPECT_THAT(*in_all, HasSubstr("ranks 1, 3 are late"));
}

TEST(LivenessOfGroups, ASilentRankOutsideEndsTheJob) {
  Liveness liveness = waiting();
  all_heard(liveness, here(), kStart + seconds(9));
  liveness.heard(1, here(), kStart);
  const auto said = liveness.verdict(kGroup, kBegun, kStart + seconds(9));
  ASSERT_TRUE(said);
  EXPECT_THAT(*said, HasSubstr("rank 1 gave no sign"));
}

/// Rank 2 waits in another group, for somebody whom it will name itself.
TEST(LivenessOfGroups, AMemberHeldUpElsewhereIsNotBlamed) {
  for (const std::uint64_t submitted : {7u, 8u}) {
    Liveness liveness = waiting();
    all_heard(liveness, missing(), kStart + seconds(9));
    liveness.heard(2, elsewhere(submitted, seconds(9)), kStart + seconds(9));
    EXPECT_FALSE(liveness.verdict(kGroup, kBegun, kStart + seconds(9)));
  }
}

/// Its own verdict is overdue: ranks wait in a circle.
TEST(LivenessOfGroups, ACircleIsTheFaultOfTheOrder) {
  Liveness liveness = waiting();
  all_heard(liveness, elsewhere(8, milliseconds(9600)), kStart + seconds(10));
  const auto said = liveness.verdict(kGroup, kBegun, kStart + seconds(10));
  ASSERT_TRUE(said);
  EXPECT_THAT(*said, HasSubstr("rank 2 submitted this operation but is stuck in an earlier one"));
  EXPECT_THAT(*said, HasSubstr("different orders"));
}

/// A rank that goes on with other groups for ever, and never comes, is late after all.
TEST(LivenessOfGroups, BusyElsewhereIsAnExcuseForSoLong) {
  Liveness liveness = waiting();
  all_heard(liveness, elsewhere(7, milliseconds(1)), kStart + seconds(17));
  EXPECT_FALSE(liveness.verdict(kGroup, kBegun, kStart + seconds(17)));
  all_heard(liveness, elsewhere(7, milliseconds(1)), kStart + milliseconds(17001));
  const auto said = liveness.verdict(kGroup, kBegun, kStart + milliseconds(17001));
  ASSERT_TRUE(said);
  EXPECT_THAT(*said, HasSubstr("rank 2 is late"));
}

}  // namespace
}  // namespace linerate::comm
