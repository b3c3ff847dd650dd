#include "linerate/advise/advise_options.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "compare/sample_evaluation.hpp"
#include "support/message_of.hpp"

namespace linerate::advise {
namespace {

using testing::AllOf;
using testing::DoubleEq;
using testing::HasSubstr;
using testing::Optional;

std::string results(const std::string& runs) {
  return R"json({"document": "steps-to-target", "schema": 1, "runs": [)json" + runs + "]}";
}

/// Of measured runs, {strategy, steps}; "null": the run ended without the target.
std::vector<StepsToTarget> from_runs(
    const std::vector<std::pair<const char*, const char*>>& strategies) {
  std::string runs;
  for (const auto& [strategy, steps] : strategies)
    runs += fmt::format(R"({}{{"strategy": "{}", "steps": {}}})", runs.empty() ? "" : ", ",
                        strategy, steps);
  return steps_to_target_from_json(results(runs), "r.json");
}

TEST(StepsToTarget, ReadsRatioAndInterval) {
  const StepsToTarget s = parse_steps_to_target("codec(ratio=8)=1.1[1.05, 1.2]");
  EXPECT_TRUE(s.anywhere);
  EXPECT_DOUBLE_EQ(s.ratio.value, 1.1);
  EXPECT_THAT(s.ratio.low, Optional(DoubleEq(1.05)));
  EXPECT_THAT(s.ratio.high, Optional(DoubleEq(1.2)));
  EXPECT_FALSE(parse_steps_to_target("ddp(wire=fp16)=1").ratio.low.has_value());
}

TEST(StepsToTarget, RefusesWhatIsNoRatio) {
  for (const char* text :
       {"codec(ratio=8)", "codec=fast", "codec=0", "codec=1.1[1.2,1.3]", "codec=1[2", "codec=-1"})
    EXPECT_THROW(static_cast<void>(parse_steps_to_target(text)), UsageError) << text;
}

TEST(StepsToTarget, AKeySpeaksForEveryStrategyWithItsOptionsAndTheOneWithMostWins) {
  const auto ratio_of = [](const char* strategy, const std::vector<const char*>& keys) {
    std::vector<StepsToTarget> known;
    for (const char* key : keys) known.push_back(parse_steps_to_target(key));
    const StepsToTarget* found = find_steps(known, doc::parse_strategy(strategy));
    return found == nullptr ? 0 : found->ratio.value;
  };
  EXPECT_EQ(ratio_of("ddp+codec(ratio=8, encode=10GB/s)", {"codec(ratio=8)=1.1"}), 1.1);
  EXPECT_EQ(ratio_of("optimal+codec(ratio=8)", {"codec(ratio=8)=1.1"}), 1.1);
  EXPECT_EQ(ratio_of("ddp+codec(ratio=16)", {"codec(ratio=8)=1.1"}), 0);
  EXPECT_EQ(ratio_of("ddp", {"codec(ratio=8)=1.1"}), 0);
  const std::vector<const char*> keys = {"codec=2", "codec(ratio=8)=3", "dear+codec(ratio=8)=4"};
  EXPECT_EQ(ratio_of("ddp+codec(ratio=8)", keys), 3);
  EXPECT_EQ(ratio_of("dear+codec(ratio=8)", keys), 4);
  EXPECT_EQ(ratio_of("ddp+codec(ratio=4)", keys), 2);
}

TEST(StepsToTarget, MeasuredRunsGiveTheRatioOfMediansAndTheExtremePairs) {
  // Dense 100, 110, 120: median 110. Codec 121, 132: median 126.5, ratio 1.15; pairs from 121/120
  // to 132/100.
  const auto known = from_runs({{"ddp", "100"},
                                {"ddp", "110"},
                                {"bulk", "120"},
                                {"ddp+codec(ratio=8)", "121"},
                                {"ddp+codec(ratio=8)", "132"}});
  ASSERT_EQ(known.size(), 1u);
  EXPECT_DOUBLE_EQ(known[0].ratio.value, 1.15);
  EXPECT_THAT(known[0].ratio.low, Optional(DoubleEq(121.0 / 120)));
  EXPECT_THAT(known[0].ratio.high, Optional(DoubleEq(1.32)));
}

TEST(StepsToTarget, OneRunOfEachHasNoIntervalAndANarrowWireIsNoUncompressedRun) {
  for (const char* strategy : {"ddp+codec(ratio=8)", "ddp(wire=fp16)"}) {
    const auto known = from_runs({{"ddp", "100"}, {strategy, "110"}});
    ASSERT_EQ(known.size(), 1u) << strategy;
    EXPECT_DOUBLE_EQ(known[0].ratio.value, 1.1) << strategy;
    EXPECT_FALSE(known[0].ratio.low || known[0].ratio.high) << strategy;
  }
  // One that never arrived is counted.
  EXPECT_EQ(from_runs({{"ddp", "100"}, {"ddp+codec(ratio=8)", "null"}}).at(0).missed, 1);
}

TEST(StepsToTarget, AFileThatSaysNothingOfACompressorIsRefused) {
  doc::Setup untrained = compare::sample_setup();
  untrained.trained.clear();
  const std::vector<std::pair<std::string, const char*>> cases = {
      {results(R"json({"strategy": "ddp+codec(ratio=8)", "steps": 120})json"),
       "no uncompressed run"},
      {results(R"({"strategy": "ddpp", "steps": 120})"), "did you mean \"ddp\"?"},
      {results(R"({"strategy": "ddpp", "steps": 120})"), "r.json: /runs/0/strategy"},
      {doc::to_json(doc::Evaluation{{untrained}}),
       "r.json: expected trainings of compressed strategies"}};
  for (const auto& [text, says] : cases)
    EXPECT_THAT(
        support::message_of<InputError>([&] { return steps_to_target_from_json(text, "r.json"); }),
        AllOf(HasSubstr("r.json"), HasSubstr(says)));
}

TEST(StepsToTarget, AnEvaluationIsReadByTheSameRule) {
  // 40 steps against 40 and 30: evaluate/accuracy_test.cpp; one of two runs missed.
  const auto known = steps_to_target_from_json(
      doc::to_json(doc::Evaluation{{compare::sample_setup()}}), "results.json");
  ASSERT_EQ(known.size(), 1u);
  EXPECT_DOUBLE_EQ(known[0].ratio.value, 40.0 / 35);
  EXPECT_THAT(known[0].ratio.low, Optional(DoubleEq(1)));
  EXPECT_THAT(known[0].ratio.high, Optional(DoubleEq(40.0 / 30)));
  EXPECT_EQ(known[0].missed, 1);
  EXPECT_EQ(known[0].source, "results.json");
  // Whatever exchange and bucket size stand in front of the compressor.
  EXPECT_TRUE(find_steps(known, doc::parse_strategy("dear(bucket=5MiB)+topk(density=0.01)")));
  EXPECT_FALSE(find_steps(known, doc::parse_strategy("ddp+topk(density=0.1)")));
}

TEST(StepsToTarget, SeveralSetupsGiveTheMedianAndAnIntervalOfAll) {
  doc::Evaluation evaluation{{compare::sample_setup(), compare::sample_setup()}};
  for (const std::size_t run : {2u, 3u})  // both seeds reach 0.87 after 30 steps: 30 / 35
    evaluation.setups[1].trained[run].points[2].test_accuracy = 0.89;
  evaluation.setups[1].trained[2].strategy = "ddp(bucket=5MiB)+topk(density=0.01)";
  evaluation.setups[1].trained[3].strategy = "ddp(bucket=5MiB)+topk(density=0.01)";
  const auto known = steps_to_target_from_json(doc::to_json(evaluation), "r.json");
  ASSERT_EQ(known.size(), 1u);
  EXPECT_DOUBLE_EQ(known[0].ratio.value, (40.0 / 35 + 30.0 / 35) / 2);
  EXPECT_THAT(known[0].ratio.low, Optional(DoubleEq(30.0 / 40)));
  EXPECT_THAT(known[0].ratio.high, Optional(DoubleEq(40.0 / 30)));
}

}  // namespace
}  // namespace linerate::advise
