#include "linerate/doc/timeline.hpp"

#include <gmock/gmock.h>

#include "linerate/core/error.hpp"

namespace linerate::doc {
namespace {

Timeline small() {
  Timeline t;
  t.mode = "trained";
  t.ranks = 2;
  t.names = {"conv1"};
  t.parameter_names = {"w", "b"};
  t.parameter_sets = {{0, 1}};
  t.events = {{TaskKind::all_reduce, Resource::network, 1, 3, 0, 0, 5, 10, 30, 400}};
  t.steps = {{1, 3, 0, 100, "steady"}};
  t.counters = {{"cpu_share", 1, 0.1, {{0, 0.5}, {100, 0.75}}}};
  t.one_rank_step_s = 0.1;
  return t;
}

TEST(Timeline, RoundTripsThroughJson) {
  const std::string text = to_json(small());
  EXPECT_EQ(to_json(timeline_from_json(text, "t.json")), text);
}

TEST(Timeline, UnknownRatesStayAbsent) {
  EXPECT_FALSE(timeline_from_json(to_json(small()), "t").line_rate_bytes_per_s.has_value());
}

TEST(Timeline, AnEventThatEndsBeforeItStartsIsRefusedWithItsPlace) {
  Timeline t = small();
  t.events[0].end_ns = 9;
  try {
    timeline_from_json(to_json(t), "t.json");
    FAIL();
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("t.json: /events/0"));
  }
}

TEST(Timeline, AnIndexOutOfRangeIsRefused) {
  Timeline t = small();
  t.events[0].set = 7;
  EXPECT_THROW(timeline_from_json(to_json(t), "t.json"), InputError);
}

}  // namespace
}  // namespace linerate::doc
