#include "linerate/doc/timeline.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "linerate/core/random.hpp"
#include "small_documents.hpp"

namespace linerate::doc {
namespace {

/// Documents of before are of processors, and those of processors are as before.
TEST(Timeline, NamesItsDeviceIfThatIsNoProcessor) {
  EXPECT_THAT(to_json(small_timeline()), testing::Not(testing::HasSubstr("\"device\"")));
}

TEST(Timeline, NanosecondsAreTheNearest) {
  const auto check = [](double seconds) {
    EXPECT_EQ(nanoseconds(seconds), std::llround(seconds * 1e9)) << seconds;
  };
  for (const double s :
       {0., .5e-9, -.5e-9, .49999999999999994e-9, 1.5e-9, 2.5e-9, -2.5e-9, 9e9, -9e9})
    check(s);
  for (std::uint64_t i = 0; i < 100'000; ++i)
    check((random_unit(1, i) - .5) * std::pow(10, 18 * random_unit(2, i) - 9));
}

TEST(Timeline, WhatIsUnknownStaysUnknown) {
  Timeline t = small_timeline();
  t.events[0].rank = -1;
  const Timeline back = timeline_from_json(to_json(t), "t.json");
  EXPECT_EQ(back.events[0].rank, -1);
  EXPECT_EQ(back.device, "");
  EXPECT_FALSE(back.line_rate_bytes_per_s || back.computation_slowed);
}

TEST(Timeline, EventsOfOlderDocumentsAreOfTheWholeJob) {
  std::string text = to_json(small_timeline());
  const std::size_t group = text.find(",400,0]");
  ASSERT_NE(group, std::string::npos);
  text.replace(group, 7, ",400]");
  EXPECT_EQ(timeline_from_json(text, "t.json").events.at(0).group, -1);
}

}  // namespace
}  // namespace linerate::doc
