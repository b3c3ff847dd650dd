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
  EXPECT_FALSE(all.setups.at(1).line_rate_bytes_per_s || all.setups[1].target_accuracy);
}

TEST(Evaluation, DamageIsNamedWithItsPlaceExpectedAndFound) {
  const std::string at = "results.json: /setups/0/";
  struct Damage {
    const char *old, *damaged, *place, *said;
  };
  for (const auto& [old, damaged, place, said] : std::initializer_list<Damage>{
           {"\"fp32\"", "\"fp64\"", "timed/0/role",
            "fp32, 16-bit, repeat, candidate; found \"fp64\""},
           {"\"time\"", "\"money\"", "trained/1/budget", "steps, time"},
           {"\"measured\"", "\"guessed\"", "mode", "measured, rehearsed"},
           {"\"ranks\": 2", "\"ranks\": 0", "ranks", "expected 1 to"},
           {"\"encode_s\": 0.2", "\"encode_s\": -1", "timed/3/encode_s", "expected 0 to"},
           {"\"sent_bytes\": 1000000.0", "\"sent_bytes\": -1", "timed/0/sent_bytes", "at least 0"},
           {"\"test_accuracy\": 0.5", "\"test_accuracy\": 50", "trained/0/points/0/test_accuracy",
            "from 0 to 1"},
           {"\"step\": 20", "\"step\": 10", "trained/0/points/1/step", "more than 10"},
           {"\"learning_rate\": 0.05", "\"learning_rate\": 0", "trained/0/learning_rate",
            "more than 0"},
           {"\"target_accuracy\": 0.8", "\"target_accuracy\": 80", "target_accuracy",
            "from 0 to 1"}})
    EXPECT_THAT(message(old, damaged), AllOf(HasSubstr(at + place), HasSubstr(said)));
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
