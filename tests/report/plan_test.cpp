// A Plan as text and as a graph.
#include <gmock/gmock.h>

#include "linerate/report/texts.hpp"

namespace linerate::report {
namespace {

using testing::HasSubstr;

// Two variants of three tasks and three edges, the first one reaching into the second.
doc::Plan plan_of(const std::string& gradient) {
  doc::Plan plan;
  plan.strategy = "ddp";
  plan.workload = "tiny";
  plan.ranks = 2;
  plan.gradient_names = {gradient};
  for (const char* name : {"first-step", "steady"}) {
    doc::TaskGraph& g = plan.variants.emplace_back();
    g.name = name;
    g.members = {0};
    g.payloads = {{.begin = 0, .end = 1, .elements = 1001, .padded = 1002}};
    const auto backward = g.add({.kind = doc::TaskKind::backward,
                                 .origin = doc::Origin::observed,
                                 .resource = doc::Resource::compute,
                                 .subject = doc::Subject::gradients,
                                 .operation = plan.operation({"autograd", {}}),
                                 .first = 0,
                                 .last = 0,
                                 .seconds = 0.25});
    const auto exchange = g.add({.kind = doc::TaskKind::all_reduce,
                                 .resource = doc::Resource::network,
                                 .subject = doc::Subject::payloads,
                                 .operation = plan.operation({"sum", {}}),
                                 .first = 0,
                                 .last = 0,
                                 .bytes = 4008},
                                backward);
    g.add({.kind = doc::TaskKind::update, .resource = doc::Resource::compute}, backward, exchange);
  }
  plan.variants[0].next_step = {{2, 0, 1}};
  plan.warm_up = {0};
  plan.cycle = {1};
  return plan;
}

int occurrences(const std::string& text, const std::string& word) {
  int found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    ++found;
  return found;
}

TEST(PlanDot, HasANodeATaskAndAnArrowAnEdge) {
  const std::string dot = to_dot(plan_of("w"));
  EXPECT_EQ(
      occurrences(dot, "t0 [label") + occurrences(dot, "t1 [label") + occurrences(dot, "t2 [label"),
      2 * 3);
  EXPECT_EQ(occurrences(dot, " -> "), 2 * 3 + 1);
  EXPECT_EQ(occurrences(dot, "style=dashed"), 1);
  EXPECT_THAT(dot, HasSubstr("v0t2 -> v1t0 [style=dashed"));
  EXPECT_EQ(occurrences(dot, "style=rounded"), 2);  // autograd's
}

TEST(PlanDot, FramesVariantsAndTheLanesThatHaveTasks) {
  const std::string dot = to_dot(plan_of("w"));
  EXPECT_EQ(occurrences(dot, "subgraph "), 2 * (1 + 2));
  EXPECT_EQ(occurrences(dot, "label=\"compute\""), 2);
  EXPECT_EQ(occurrences(dot, "label=\"codec\""), 0);
  EXPECT_EQ(occurrences(dot, "{"), occurrences(dot, "}"));
}

TEST(PlanDot, QuotesOddNames) {
  EXPECT_THAT(to_dot(plan_of("a \"b\"\\")),
              HasSubstr(R"dot([label="backward a \"b\"\\ (autograd)", style=rounded];)dot"));
  EXPECT_THAT(to_dot(plan_of("two\nlines")), HasSubstr("backward two lines"));
}

TEST(PlanDot, IsTheSameForTheSamePlan) { EXPECT_EQ(to_dot(plan_of("w")), to_dot(plan_of("w"))); }

TEST(PlanText, NamesTheScheduleAndTheHash) {
  const std::string text = text_of(plan_of("w"));
  EXPECT_THAT(text, HasSubstr("schedule: step 0: first-step, then: steady\n"));
  EXPECT_THAT(text, HasSubstr("tiny: ddp on 2 ranks, hash "));
  EXPECT_THAT(text, HasSubstr("group whole: every rank\n"));
  EXPECT_THAT(text, HasSubstr("task 0 of the next step, where it is steady, waits for task 2\n"));
}

TEST(PlanText, SchedulesOfEveryKind) {
  doc::Plan plan = plan_of("w");
  plan.warm_up.clear();
  EXPECT_EQ(schedule_of(plan), "every step: steady");
  plan.cycle = {1, 0};
  EXPECT_EQ(schedule_of(plan), "every step: steady, first-step, in turn");
  // What repeats is said once, however long the cycle is.
  plan.cycle = {1, 0, 0, 1, 0, 0, 1, 0, 0, 0};
  plan.warm_up = {0, 0, 1, 0, 1, 0};
  EXPECT_EQ(schedule_of(plan),
            "steps 0 to 1: first-step, steps 2 to 5: 2 times (steady, first-step), "
            "then: 2 times (steady, first-step 2 times), steady, first-step 3 times, in turn");
}

TEST(PlanText, NamesVariantsThatARunnerChooses) {
  doc::Plan plan = plan_of("w");
  EXPECT_THAT(text_of(plan), testing::Not(HasSubstr("run time")));
  plan.variants.push_back(plan.variants.back());
  plan.variants.back().name = "steady-weighted";
  EXPECT_THAT(text_of(plan), HasSubstr("chosen at run time: steady-weighted\n"));
}

TEST(PlanText, ListsPayloadsAndTasks) {
  const std::string text = text_of(plan_of("w"));
  // 1002 elements of f32 are 4008 bytes, of one gradient.
  EXPECT_THAT(text, testing::ContainsRegex("0  gradients  f32 +1001 +1002 +4008 +1\n"));
  EXPECT_THAT(text, testing::ContainsRegex("0  backward +w +autograd +compute +whole +observed "
                                           "+- +250 ms  -\n"));
  EXPECT_THAT(text, testing::ContainsRegex("1  all-reduce +bucket 0 +sum +network +whole +executed "
                                           "+4008 +-  0\n"));
  EXPECT_THAT(text,
              testing::ContainsRegex("2  update +- +- +compute +whole +executed +- +-  0 1\n"));
}

TEST(PlanText, AsksForTheTimeOfEachTask) {
  const std::string text = text_of(
      plan_of("w"), [](const doc::Task& t) { return is_communication(t.kind) ? 1e-3 : 0.0; });
  EXPECT_THAT(text, testing::ContainsRegex("1  all-reduce .* 1.00 ms  0\n"));
}

}  // namespace
}  // namespace linerate::report
