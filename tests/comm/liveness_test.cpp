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

std::optional<std::string> verdict(Liveness& liveness, const Liveness::Waiting& in,
                                   Clock::time_point now) {
  liveness.note_busy_peers(in, now);
  return liveness.diagnose(in, now);
}
std::optional<std::string> verdict(Liveness& liveness, Clock::time_point now) {
  return verdict(liveness, {kAll, kBegun}, now);
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
  EXPECT_FALSE(verdict(liveness, {kGroup, kBegun}, kStart + seconds(1)));
  const auto said = verdict(liveness, {kGroup, kBegun}, kStart + seconds(9));
  ASSERT_TRUE(said);
  EXPECT_THAT(*said, HasSubstr("every rank takes part"));
}

TEST(LivenessOfGroups, AMemberThatDoesNotComeIsNamed) {
  Liveness liveness = waiting();
  all_heard(liveness, missing(), kStart + seconds(9));
  const auto late = verdict(liveness, {kGroup, kBegun}, kStart + seconds(9));
  ASSERT_TRUE(late);
  EXPECT_THAT(*late, HasSubstr("rank 2 is late"));
  liveness.heard(2, {.submitted = 7, .begun = 7, .left = true}, kStart + seconds(9));
  const auto left = verdict(liveness, {kGroup, kBegun}, kStart + seconds(9));
  ASSERT_TRUE(left);
  EXPECT_THAT(*left, HasSubstr("rank 2 left the job"));
}

/// The counts are by pairs: what this rank has begun with others says nothing of rank 2.
TEST(LivenessOfGroups, ComparesTheCountsOfEachPair) {
  Liveness liveness = waiting();
  const std::array<std::uint64_t, 4> begun = {8, 100, 3, 50};
  all_heard(liveness, {.submitted = 3, .begun = 3}, kStart + seconds(9));
  const auto in_group = verdict(liveness, {kGroup, begun}, kStart + seconds(9));
  ASSERT_TRUE(in_group);
  EXPECT_THAT(*in_group, HasSubstr("every rank takes part"));
  const auto in_all = verdict(liveness, {kAll, begun}, kStart + seconds(9));
  ASSERT_TRUE(in_all);
  EXPECT_THAT(*in_all, HasSubstr("ranks 1, 3 are late"));
}

TEST(LivenessOfGroups, ASilentRankOutsideEndsTheJob) {
  Liveness liveness = waiting();
  all_heard(liveness, here(), kStart + seconds(9));
  liveness.heard(1, here(), kStart);
  const auto said = verdict(liveness, {kGroup, kBegun}, kStart + seconds(9));
  ASSERT_TRUE(said);
  EXPECT_THAT(*said, HasSubstr("rank 1 gave no sign"));
}

/// Rank 2 waits in another group, for somebody whom it will name itself.
TEST(LivenessOfGroups, AMemberHeldUpElsewhereIsNotBlamed) {
  for (const std::uint64_t submitted : {7u, 8u}) {
    Liveness liveness = waiting();
    all_heard(liveness, missing(), kStart + seconds(9));
    liveness.heard(2, elsewhere(submitted, seconds(9)), kStart + seconds(9));
    EXPECT_FALSE(verdict(liveness, {kGroup, kBegun}, kStart + seconds(9)));
  }
}

/// Its own verdict is overdue: ranks wait in a circle.
TEST(LivenessOfGroups, ACircleIsTheFaultOfTheOrder) {
  Liveness liveness = waiting();
  all_heard(liveness, elsewhere(8, milliseconds(9600)), kStart + seconds(10));
  const auto said = verdict(liveness, {kGroup, kBegun}, kStart + seconds(10));
  ASSERT_TRUE(said);
  EXPECT_THAT(*said, HasSubstr("rank 2 submitted this operation but is stuck in an earlier one"));
  EXPECT_THAT(*said, HasSubstr("different orders"));
}

/// A rank that goes on with other groups for ever, and never comes, is late after all.
TEST(LivenessOfGroups, BusyElsewhereIsAnExcuseForSoLong) {
  Liveness liveness = waiting();
  all_heard(liveness, elsewhere(7, milliseconds(1)), kStart + seconds(17));
  EXPECT_FALSE(verdict(liveness, {kGroup, kBegun}, kStart + seconds(17)));
  all_heard(liveness, elsewhere(7, milliseconds(1)), kStart + milliseconds(17001));
  const auto said = verdict(liveness, {kGroup, kBegun}, kStart + milliseconds(17001));
  ASSERT_TRUE(said);
  EXPECT_THAT(*said, HasSubstr("rank 2 is late"));
}

/// Its process exits with this one in its queue.
TEST(Liveness, ARankThatLeftBeforeItBeganIsNamedAtOnce) {
  Liveness liveness = waiting();
  all_heard(liveness, here(), kStart);
  liveness.heard(1, {.submitted = 8, .begun = 7, .left = true, .stalled = {}}, kStart);
  EXPECT_THAT(verdict(liveness, kStart).value_or(""), HasSubstr("rank 1 left the job"));
}

Report busy(std::optional<Clock::duration> left = {}) {
  Report report = missing();
  report.busy = BusyReport{"writing a checkpoint", left};
  return report;
}

/// After an hour of it the time begins anew, not where it was.
TEST(Liveness, ABusyRankIsNotLateAndThenHasTheWholeTimeout) {
  Liveness liveness = waiting();
  const auto later = kStart + seconds(3600);
  all_heard(liveness, here(), later);
  liveness.heard(2, busy(), later);
  EXPECT_FALSE(verdict(liveness, later));
  EXPECT_EQ(liveness.held_by(), 2);
  all_heard(liveness, here(), later + seconds(8));
  liveness.heard(2, missing(), later + seconds(8));
  EXPECT_FALSE(verdict(liveness, later + seconds(8)));
  EXPECT_THAT(verdict(liveness, later + milliseconds(8501)).value_or(""),
              HasSubstr("rank 2 is late"));
}

TEST(Liveness, ABusyRankThatFallsSilentIsNamed) {
  Liveness liveness = waiting();
  all_heard(liveness, here(), kStart + milliseconds(8501));
  liveness.heard(2, busy(), kStart);
  EXPECT_THAT(verdict(liveness, kStart + milliseconds(8501)).value_or(""),
              HasSubstr("rank 2 gave no sign of life"));
}

TEST(Liveness, TheBoundOfABusyRankEndsItsExcuse) {
  Liveness liveness = waiting();
  all_heard(liveness, here(), kStart + seconds(1));
  liveness.heard(2, busy(seconds(3)), kStart + seconds(1));
  EXPECT_FALSE(verdict(liveness, kStart + milliseconds(3900)));
  all_heard(liveness, here(), kStart + seconds(12));
  liveness.heard(2, busy(seconds(0)), kStart + seconds(12));
  EXPECT_FALSE(verdict(liveness, kStart + milliseconds(12'400)));
  EXPECT_THAT(verdict(liveness, kStart + milliseconds(12'401)).value_or(""),
              HasSubstr("rank 2 is busy for longer than it asked for: writing a checkpoint"));
}

/// Ranks 1 and 3 say that rank 2 holds them up: true as long as rank 2 says that it is busy.
TEST(Liveness, WhoWaitsForABusyRankIsExcusedByIt) {
  Liveness liveness = waiting();
  const auto later = kStart + seconds(60);
  Report held = elsewhere(7, seconds(50));
  held.held_by = 2;
  all_heard(liveness, held, later);
  liveness.heard(2, busy(), later);
  EXPECT_FALSE(verdict(liveness, later));
  all_heard(liveness, held, later + seconds(18));
  liveness.heard(2, here(), later + seconds(18));
  EXPECT_THAT(verdict(liveness, later + seconds(18)).value_or(""),
              HasSubstr("ranks 1, 3 are late"));
}

}  // namespace
}  // namespace linerate::comm
