#include "linerate/report/sections.hpp"

#include <gmock/gmock.h>

#include "linerate/report/inputs.hpp"

namespace linerate::report {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

// 10 ms of computing, then an all-reduce: as many steps as a comparison asks for.
NamedTimeline job(const std::string& label, const std::string& mode, const std::string& strategy,
                  int all_reduce_ms, int ranks = 1) {
  doc::Timeline t;
  t.mode = mode, t.workload = "net", t.strategy = strategy, t.ranks = ranks;
  t.names = {"fc"};
  const std::int64_t ms = 1'000'000, computed = 10 * ms, length = computed + all_reduce_ms * ms;
  for (std::int32_t step = 0; step < 20; ++step)
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      const std::int64_t begin = step * length;
      t.events.push_back({doc::TaskKind::backward, doc::Resource::compute, rank, step, 0, -1, -1,
                          begin, begin + computed, -1});
      t.events.push_back({doc::TaskKind::all_reduce, doc::Resource::network, rank, step, 0, -1, -1,
                          begin + computed, begin + length, 4096});
      t.steps.push_back({rank, step, begin, begin + length, ""});
    }
  return {label + ".json", label, t};
}

doc::Advice advice(const std::string& current, const std::string& other, doc::Bounded step) {
  doc::Advice a;
  a.workload = "net", a.ranks = 1, a.current = current, a.best = other;
  a.candidates.resize(1);
  a.candidates[0].strategy = other;
  a.candidates[0].step_s = step;
  return a;
}

// ddp takes 10 + 40 ms, dear 10 + 10 ms, for which 10 + 8 ms were predicted.
Inputs before_and_after() {
  Inputs inputs;
  inputs.timelines = {job("before", "trained", "ddp", 40), job("after", "trained", "dear", 10),
                      job("predicted", "predicted", "dear", 8)};
  inputs.advice = {advice("ddp", "dear", {0.018, 0.017, 0.021})};
  return inputs;
}

TEST(Change, ThePageHasTheAnswersNameThePredictionAndEachJobsVerdict) {
  Inputs inputs = before_and_after();
  const Page page = page_of(inputs, "", "");
  EXPECT_EQ(page.title, "net on 1 rank: a step of 20.0 ms instead of 50.0 ms");
  const Section section = page.sections.front();
  EXPECT_EQ(section.title, page.title);
  EXPECT_THAT(
      section.paragraphs,
      ElementsAre(
          "A step takes 20.0 ms with dear instead of 50.0 ms with ddp, 2.5 times as fast.",
          "Before dear ran, its step was predicted to take 18.0 ms (90 % interval 17.0 ms .. "
          "21.0 ms), 10 % less than measured. The measured step lies inside the interval.",
          AllOf(StartsWith("With ddp the job is network-bound"), HasSubstr(", because ")),
          StartsWith("With dear the job is network-bound")));
  EXPECT_THAT(section.table->rows.front(), ElementsAre("step", "18.0 ms", "20.0 ms", "-10 %"));
  inputs.advice[0].candidates[0].step_s->high = 0.019;
  EXPECT_THAT(change_section(inputs)->paragraphs[1], HasSubstr("lies outside the interval"));
  inputs.timelines.pop_back();
  EXPECT_FALSE(change_section(inputs)->table.has_value());
}

TEST(Change, TheJobBeforeItIsTheOneThatTheAdviceSaysIsInUse) {
  Inputs inputs = before_and_after();
  std::swap(inputs.timelines[0], inputs.timelines[1]);
  EXPECT_EQ(change_section(inputs)->paragraphs.front(),
            "A step takes 20.0 ms with dear instead of 50.0 ms with ddp, 2.5 times as fast.");
  inputs.advice.clear();  // else the first one given
  EXPECT_EQ(change_section(inputs)->paragraphs.front(),
            "A step takes 50.0 ms with ddp instead of 20.0 ms with dear, 2.5 times as long.");
}

TEST(Change, OneMeasuredStrategyAnotherWorkloadOrOtherRanksAreNoChange) {
  Inputs inputs = before_and_after();
  NamedTimeline other = inputs.timelines[1];
  other.timeline.workload = "other";
  for (const NamedTimeline& after :
       {other, job("after", "trained", "dear", 10, 2), job("after", "trained", "ddp", 10),
        job("after", "predicted", "dear", 10)}) {
    inputs.timelines[1] = after;
    EXPECT_FALSE(change_section(inputs).has_value());
  }
}

TEST(Change, LossesAreComparedAtEqualSteps) {
  Inputs inputs = before_and_after();
  inputs.losses = {{"before", 0, std::vector<double>(200, 2.0)},
                   {"after", 0, std::vector<double>(100, 2.1)}};
  const Section section = *change_section(inputs);
  EXPECT_THAT(
      section.paragraphs,
      testing::Contains("After 100 steps the loss is 2 with ddp and 2.1 with dear (+5.0 %), "
                        "as the mean of the last 10 steps."));
  ASSERT_EQ(section.figures.size(), 3u);
  EXPECT_THAT(section.figures[1].data->rows.front(), ElementsAre("10", "2", "2.1"));
  EXPECT_EQ(section.figures[1].data->rows.size(), 10u);
}

// 100 steps in blocks of 3; the last block has one.
TEST(Change, ALineOfLossesHasABlockOfStepsAPoint) {
  Inputs inputs = before_and_after();
  inputs.losses = {{"after", 0, {}}};
  for (int i = 0; i < 100; ++i) inputs.losses[0].values.push_back(i);
  const Series steps = loss_chart(inputs, false).series.at(0);
  EXPECT_EQ(steps.name, "dear");
  ASSERT_EQ(steps.points.size(), 34u);
  EXPECT_EQ(steps.points[0].x, 1.5);
  EXPECT_EQ(*steps.points[0].y, 1.0);
  EXPECT_EQ(steps.points[33].x, 99.5);
  EXPECT_EQ(*steps.points[33].y, 99.0);
  const Series time = loss_chart(inputs, true).series.at(0);
  EXPECT_DOUBLE_EQ(time.points[0].x, 1.5 * 0.02);  // a step of 20 ms
  inputs.losses[0].label = "unknown";
  EXPECT_EQ(loss_chart(inputs, false).series.at(0).name, "unknown");
  EXPECT_THAT(loss_chart(inputs, true).series, IsEmpty());
}

TEST(Change, LossesAloneAreASection) {
  Inputs inputs;
  add_document(inputs, "step,loss\n5,0.5\n6,0.25\n", "folder/run.csv");
  ASSERT_EQ(inputs.losses.size(), 1u);
  EXPECT_EQ(inputs.losses[0].label, "run");
  EXPECT_EQ(inputs.losses[0].first_step, 5);
  EXPECT_THAT(inputs.losses[0].values, ElementsAre(0.5, 0.25));
  EXPECT_EQ(page_of(inputs, "", "").title, "Training loss");
}

}  // namespace
}  // namespace linerate::report
