#include <gmock/gmock.h>

#include "linerate/report/timeline_chart.hpp"

namespace linerate::report {
namespace {

using doc::Resource;
using doc::TaskKind;
using testing::HasSubstr;

constexpr std::int64_t kMs = 1'000'000;

doc::Event event(TaskKind kind, int rank, std::int64_t start, std::int64_t end, int name = -1) {
  const Resource resource = is_communication(kind) ? Resource::network : Resource::compute;
  return {kind, resource, rank, 0, name, -1, -1, start, end, -1};
}

TEST(TimelineGroup, ShowsTheStepOfMedianDuration) {
  // Steps of 50, 10 and 20 ms: 20 ms is the median, and only its event is drawn.
  doc::Timeline t;
  t.mode = "trained";
  t.steps = {
      {0, 0, 0, 50 * kMs, ""}, {0, 1, 50 * kMs, 60 * kMs, ""}, {0, 2, 60 * kMs, 80 * kMs, ""}};
  t.events = {event(TaskKind::forward, 0, 0, 5 * kMs),
              event(TaskKind::backward, 0, 62 * kMs, 70 * kMs)};
  const TimelineGroup group = group_of(t);
  EXPECT_DOUBLE_EQ(group.length_s, 0.02);
  EXPECT_THAT(group.title, HasSubstr("step 2, the median of 3"));
  ASSERT_EQ(group.rows.size(), 1u);
  EXPECT_DOUBLE_EQ(group.rows[0].lanes[0][0].start_s, 0.002);  // since the start of the step
}

TEST(TimelineGroup, OverlappingStreamsTakeLanes) {
  doc::Timeline t;
  t.events = {event(TaskKind::compute, 0, 0, 10 * kMs),
              event(TaskKind::compute, 0, 5 * kMs, 15 * kMs),
              event(TaskKind::compute, 0, 12 * kMs, 20 * kMs)};
  const TimelineGroup group = group_of(t);
  ASSERT_EQ(group.rows.size(), 1u);
  ASSERT_EQ(group.rows[0].lanes.size(), 2u);
  EXPECT_EQ(group.rows[0].lanes[0].size(), 2u);  // the third fits behind the first
}

TEST(TimelineGroup, TinyNeighboursOfOneKindBecomeOneBar) {
  // 1,000 kernels of 10 us without gaps within 1 s: each is 1/100,000 of the window.
  doc::Timeline t;
  for (int i = 0; i < 1000; ++i)
    t.events.push_back(event(TaskKind::compute, 0, i * 10'000, (i + 1) * 10'000));
  t.events.push_back(event(TaskKind::all_reduce, 0, 990 * kMs, 1000 * kMs));
  const TimelineGroup group = group_of(t);
  ASSERT_EQ(group.rows[0].lanes[0].size(), 1u);
  EXPECT_EQ(group.rows[0].lanes[0][0].events, 1000);
  EXPECT_DOUBLE_EQ(group.rows[0].lanes[0][0].end_s, 0.01);
}

TEST(TimelineGroup, ShowsTheSlowestRanksAndSaysSo) {
  doc::Timeline t;
  t.ranks = 8;
  for (int rank = 0; rank < 8; ++rank) {
    t.steps.push_back({rank, 0, 0, (10 + rank) * kMs, ""});
    t.events.push_back(event(TaskKind::forward, rank, 0, 5 * kMs));
  }
  const TimelineGroup group = group_of(t, {.most_ranks = 2});
  ASSERT_EQ(group.rows.size(), 2u);
  EXPECT_EQ(group.rows[0].rank, 6);
  EXPECT_THAT(group.title, HasSubstr("the 2 slowest of 8 ranks"));
}

}  // namespace
}  // namespace linerate::report
