#include "linerate/doc/prediction.hpp"
#include "linerate/core/error.hpp"
#include "support/message_of.hpp"

#include <gmock/gmock.h>

namespace linerate::doc {
namespace {

using testing::HasSubstr;

Predictions sample(const std::string& preset) {
  Prediction p;
  p.strategy = "ddp+codec(ratio=8)", p.ranks = 4, p.bandwidth_bit_per_s = 1e10;
  p.compression_ratio = 8, p.changes_convergence = true;
  p.step_s = Bounded{0.25, 0.2, 0.4};
  p.scaling_factor = 0.4, p.communication_s = 0.1, p.exposed_communication_s = 0.05;
  p.parts_s = StepParts{0.1, 0.05, 0.04, 0.03, 0.035, -0.005};
  Prediction unknown;
  unknown.strategy = "bulk", unknown.ranks = 2;
  if (preset == kAgarwal2021) p.required_ratio = 3, p.encode_budget_s = -0.01;
  return {"net", 12, 4096, 0.1, preset, {p, unknown}, {"extrapolated"}};
}

std::string refusal(const std::string& text) {
  return support::message_of<InputError>([&] { return predictions_from_json(text, "x.json"); });
}

TEST(Prediction, IsReadAsItWasWritten) {
  for (const std::string preset : {"", "zhang2020", "agarwal2021"}) {
    const std::string text = to_json(sample(preset));
    const Predictions all = predictions_from_json(text, "x");
    EXPECT_EQ(to_json(all), text);
    ASSERT_EQ(all.predictions.size(), 2u);
    const Prediction& p = all.predictions[0];
    EXPECT_TRUE(p.changes_convergence);
    EXPECT_EQ(p.step_s->low, 0.2);
    EXPECT_EQ(p.exposed_communication_s, 0.05);
    ASSERT_TRUE(p.parts_s.has_value());
    EXPECT_EQ(*p.parts_s, (StepParts{0.1, 0.05, 0.04, 0.03, 0.035, -0.005}));
    EXPECT_EQ(p.encode_budget_s.has_value(), preset == kAgarwal2021);
    const Prediction& q = all.predictions[1];
    EXPECT_FALSE(q.bandwidth_bit_per_s || q.step_s || q.scaling_factor || q.communication_s ||
                 q.exposed_communication_s || q.parts_s);
    EXPECT_THAT(all.notes, testing::ElementsAre("extrapolated"));
  }
}

TEST(Prediction, PartsThatAreNotAllThereAreRefused) {
  EXPECT_THAT(
      refusal(
          R"json({"predictions": [{"strategy": "ddp+kfac(d)", "ranks": 4, "bandwidth_bit_per_s": null,
      "parts_s": {"forward_backward": 1}}]})json"),
      testing::AllOf(HasSubstr("/predictions/0/parts_s"), HasSubstr("gradient_communication")));
}

TEST(Prediction, ADocumentOfAnotherKindIsRefused) {
  EXPECT_NE(refusal(R"({"document": "timeline", "schema": 1, "predictions": []})"), "no error");
}

TEST(Prediction, SayWhetherTheStrategyChangesConvergence) {
  const auto p = predictions_from_json(
                     R"json({"predictions": [
    {"strategy": "a", "changes_convergence": true, "ranks": 4, "bandwidth_bit_per_s": 1e9},
    {"strategy": "b", "changes_convergence": false, "ranks": 4, "bandwidth_bit_per_s": 1e9},
    {"strategy": "ddp+codec(ratio=8)", "ranks": 4, "bandwidth_bit_per_s": 1e9}]})json",
                     "x")
                     .predictions;
  ASSERT_EQ(p.size(), 3u);
  EXPECT_TRUE(p[0].changes_convergence);
  EXPECT_FALSE(p[1].changes_convergence);
  EXPECT_FALSE(p[2].changes_convergence);  // absent: nobody reads a strategy's name here
}

TEST(Prediction, NullIsAbsentAndNeverZero) {
  const auto p = predictions_from_json(
                     R"({"predictions": [{"strategy": "ddp", "ranks": 4, "bandwidth_bit_per_s": 1e9,
    "compression_ratio": null, "step_s": null, "interval_s": null, "scaling_factor": null}]})",
                     "x")
                     .predictions;
  ASSERT_EQ(p.size(), 1u);
  EXPECT_EQ(p[0].compression_ratio, 1);
  EXPECT_FALSE(p[0].step_s || p[0].scaling_factor);
}

TEST(Prediction, AnIntervalOfOneEndIsRefusedWithItsPlace) {
  EXPECT_THAT(
      refusal(R"({"predictions": [{"strategy": "ddp", "ranks": 4, "bandwidth_bit_per_s": 1e9,
      "step_s": 1, "interval_s": [1]}]})"),
      HasSubstr("x.json: /predictions/0/interval_s"));
}

TEST(Prediction, ImpossibleNumbersAreRefusedWhereTheyStand) {
  const auto error_of = [](const std::string& bandwidth, const std::string& step) {
    return refusal(R"({"predictions": [{"strategy": "ddp", "ranks": 4, "bandwidth_bit_per_s": )" +
                   bandwidth + R"(, "step_s": )" + step + "}]}");
  };
  EXPECT_EQ(error_of("1e9", "1"), "no error");
  EXPECT_THAT(error_of("0", "1"), HasSubstr("/bandwidth_bit_per_s: expected more than 0"));
  EXPECT_THAT(error_of("1e9", "-1"), HasSubstr("/step_s: expected 0 to"));
  EXPECT_EQ(error_of("null", "1"), "no error");  // unknown
}

}  // namespace
}  // namespace linerate::doc
