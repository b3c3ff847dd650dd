#include "linerate/doc/evaluation.hpp"

#include <gmock/gmock.h>

#include "compare/sample_evaluation.hpp"
#include "linerate/core/error.hpp"
#include "support/message_of.hpp"

namespace linerate::doc {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string sample() {
  doc::Setup s = compare::sample_setup();
  s.line_rate_bytes_per_s = 1.25e8;
  s.target_accuracy = 0.8;
  s.notes = {"a note"};
  s.trained[1].budget = Budget::time;
  s.trained[3].diverged = "the loss is nan";
  s.trained[3].points.clear();
  doc::Setup rehearsed;
  rehearsed.model = "resnet50", rehearsed.mode = kRehearsed, rehearsed.network = "1.00 Gbit/s";
  return to_json(Evaluation{{s, rehearsed}});
}

/// The message for the sample with `old` replaced by `damaged`, once.
std::string message(const std::string& old, const std::string& damaged) {
  std::string text = sample();
  const std::size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  text.replace(at, old.size(), damaged);
  return support::message_of<InputError>(
      [&] { return evaluation_from_json(text, "results.json"); });
}

TEST(Evaluation, IsReadAsItWasWritten) {
  const Evaluation all = evaluation_from_json(sample(), "x");
  EXPECT_EQ(to_json(all), sample());
  ASSERT_EQ(all.setups.size(), 2u);
  const doc::Setup& s = all.setups[0];
  EXPECT_EQ(s.timed[1].role, Role::sixteen_bit);
  EXPECT_EQ(s.timed[3].options, std::vector<std::string>{"density"});
  EXPECT_FALSE(s.timed[3].is_summable);
  EXPECT_EQ(s.trained[1].budget, Budget::time);
  EXPECT_EQ(s.trained[0].points[2].step, 30);
  EXPECT_EQ(s.line_rate_bytes_per_s, 1.25e8);
  EXPECT_FALSE(all.setups[1].line_rate_bytes_per_s || all.setups[1].target_accuracy);
}

TEST(Evaluation, DamageIsNamedWithItsPlaceExpectedAndFound) {
  const std::string at = "results.json: /setups/0/";
  EXPECT_THAT(message("\"role\": \"fp32\"", "\"role\": \"fp64\""),
              AllOf(HasSubstr(at + "timed/0/role"), HasSubstr("fp32, 16-bit, repeat, candidate"),
                    HasSubstr("\"fp64\"")));
  EXPECT_THAT(message("\"budget\": \"time\"", "\"budget\": \"money\""),
              AllOf(HasSubstr(at + "trained/1/budget"), HasSubstr("steps, time")));
  EXPECT_THAT(message("\"mode\": \"measured\"", "\"mode\": \"guessed\""),
              AllOf(HasSubstr(at + "mode"), HasSubstr("measured, rehearsed")));
  EXPECT_THAT(message("\"ranks\": 2", "\"ranks\": 0"), HasSubstr(at + "ranks"));
  EXPECT_THAT(message("\"encode_s\": 0.2", "\"encode_s\": -1"), HasSubstr(at + "timed/3/encode_s"));
  EXPECT_THAT(message("\"sent_bytes\": 1000000.0", "\"sent_bytes\": -1"),
              HasSubstr(at + "timed/0/sent_bytes"));
  EXPECT_THAT(message("\"test_accuracy\": 0.5", "\"test_accuracy\": 50"),
              AllOf(HasSubstr(at + "trained/0/points/0/test_accuracy"), HasSubstr("from 0 to 1")));
  EXPECT_THAT(message("\"step\": 20", "\"step\": 10"),
              AllOf(HasSubstr(at + "trained/0/points/1/step"), HasSubstr("more than 10")));
  EXPECT_THAT(message("\"learning_rate\": 0.05", "\"learning_rate\": 0"),
              HasSubstr(at + "trained/0/learning_rate"));
  EXPECT_THAT(message("\"target_accuracy\": 0.8", "\"target_accuracy\": 80"),
              HasSubstr(at + "target_accuracy"));
  EXPECT_THAT(message("\"document\": \"evaluation\"", "\"document\": \"plan\""),
              HasSubstr("evaluation"));
  EXPECT_THAT(message("\"schema\": 1", "\"schema\": 9"), HasSubstr("schema"));
  EXPECT_THAT(message("\"is_summable\"", "\"summable\""), HasSubstr("is_summable"));
}

TEST(Evaluation, StepsTakeTimeAndEveryRunHasAsManyRounds) {
  const std::string rounds = "     0.8,\n";
  EXPECT_THAT(message(rounds, ""), AllOf(HasSubstr("/setups/0/timed/1/round_step_s"),
                                         HasSubstr("3 rounds"), HasSubstr("found 2")));
  EXPECT_THAT(message(rounds, "     0,\n"), HasSubstr("more than 0 s"));
}

TEST(Evaluation, ARunWithoutAPointMustHaveDiverged) {
  EXPECT_THAT(message("\"diverged\": \"the loss is nan\"", "\"diverged\": \"\""),
              AllOf(HasSubstr("/setups/0/trained/3/points"), HasSubstr("expected a point")));
}

}  // namespace
}  // namespace linerate::doc
