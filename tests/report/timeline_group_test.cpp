#include <fmt/format.h>
#include <gmock/gmock.h>

#include "linerate/doc/json.hpp"
#include "linerate/report/page_files.hpp"
#include "linerate/report/sections.hpp"

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

// Of the first row's first lane.
const doc::Json& bar(const doc::Json& group, std::size_t i) {
  return group["rows"][0]["lanes"][0][i];
}

TEST(TimelineGroup, ShowsTheStepOfMedianDuration) {
  // Steps of 50, 10 and 20 ms: 20 ms is the median, and only its event is drawn.
  doc::Timeline t;
  t.mode = "trained";
  t.steps = {
      {0, 0, 0, 50 * kMs, ""}, {0, 1, 50 * kMs, 60 * kMs, ""}, {0, 2, 60 * kMs, 80 * kMs, ""}};
  t.events = {event(TaskKind::forward, 0, 0, 5 * kMs),
              event(TaskKind::backward, 0, 62 * kMs, 70 * kMs)};
  const doc::Json group = group_of(t);
  EXPECT_DOUBLE_EQ(group["length_s"].get<double>(), 0.02);
  EXPECT_THAT(group["title"].get<std::string>(), HasSubstr("step 2, the median of 3"));
  ASSERT_EQ(group["rows"].size(), 1u);
  EXPECT_DOUBLE_EQ(bar(group, 0)[1].get<double>(), 0.002);  // since the start of the step
}

TEST(TimelineGroup, OverlappingStreamsTakeLanes) {
  doc::Timeline t;
  t.events = {event(TaskKind::compute, 0, 0, 10 * kMs),
              event(TaskKind::compute, 0, 5 * kMs, 15 * kMs),
              event(TaskKind::compute, 0, 12 * kMs, 20 * kMs)};
  const doc::Json lanes = group_of(t)["rows"].at(0)["lanes"];
  ASSERT_EQ(lanes.size(), 2u);
  EXPECT_EQ(lanes[0].size(), 2u);  // the third fits behind the first
}

TEST(TimelineGroup, TinyNeighboursOfOneKindBecomeOneBar) {
  // 1,000 kernels of 10 us without gaps within 1 s: each is 1/100,000 of the window.
  doc::Timeline t;
  for (int i = 0; i < 1000; ++i)
    t.events.push_back(event(TaskKind::compute, 0, i * 10'000, (i + 1) * 10'000));
  t.events.push_back(event(TaskKind::all_reduce, 0, 990 * kMs, 1000 * kMs));
  const doc::Json group = group_of(t);
  ASSERT_EQ(group["rows"][0]["lanes"][0].size(), 1u);
  EXPECT_EQ(bar(group, 0), doc::Json::parse(R"(["compute", 0.0, 0.01, "", 1000])"));
}

TEST(TimelineGroup, ShowsTheSlowestRanksAndSaysSo) {
  doc::Timeline t;
  t.ranks = 8;
  for (int rank = 0; rank < 8; ++rank) {
    t.steps.push_back({rank, 0, 0, (10 + rank) * kMs, ""});
    t.events.push_back(event(TaskKind::forward, rank, 0, 5 * kMs));
  }
  const doc::Json group = group_of(t);
  ASSERT_EQ(group["rows"].size(), 4u);
  EXPECT_EQ(group["rows"][0]["rank"], 4);
  EXPECT_THAT(group["title"].get<std::string>(), HasSubstr("the 4 slowest of 8 ranks"));
}

TEST(TimelineDrawing, AnEmptyTimelineSaysSoAndTheScriptHasAColourForEveryKind) {
  const Drawing drawing = drawing_of_groups("t", {group_of(doc::Timeline{})});
  EXPECT_EQ(drawing.json + drawing.nothing, "No event with a duration to draw");
  for (const std::string_view kind : doc::kTaskKindNames)
    EXPECT_THAT(std::string(kPageScript), HasSubstr(fmt::format("'{}': '", kind)));
}

TEST(TimelineDrawing, ABarHasItsKindTimesAndName) {
  doc::Timeline t;
  t.names = {"<fc>"};
  t.events = {event(TaskKind::backward, 0, 50 * kMs, 100 * kMs),
              event(TaskKind::forward, 0, 0, 50 * kMs, 0)};
  const doc::Json group = doc::Json::parse(drawing_of_groups("t", {group_of(t)}).json)["groups"][0];
  EXPECT_EQ(group["rows"][0]["resource"], "compute");
  EXPECT_EQ(group["rows"][0]["rank"], 0);
  EXPECT_EQ(bar(group, 0), doc::Json::parse(R"(["forward", 0.0, 0.05, "<fc>", 1])"));
  EXPECT_EQ(bar(group, 1), doc::Json::parse(R"(["backward", 0.05, 0.1, "backward", 1])"));
  EXPECT_DOUBLE_EQ(group["length_s"].get<double>(), 0.1);
}

}  // namespace
}  // namespace linerate::report
