#include "linerate/doc/prediction.hpp"

#include <gmock/gmock.h>

#include "full_documents.hpp"

namespace linerate::doc {
namespace {

// That every value reads back is in fields_test.cpp.
TEST(Prediction, OfAgarwalsModelAloneHasARatioThatIsEnough) {
  Predictions all = full_predictions();
  all.predictions.emplace_back().strategy = "bulk";
  for (const char* preset : {"", "zhang2020", "agarwal2021"}) {
    all.preset = preset;
    const Predictions read = predictions_from_json(to_json(all), "x");
    EXPECT_EQ(to_json(read), to_json(all));
    ASSERT_EQ(read.predictions.size(), 2u);
    EXPECT_EQ(read.predictions[0].encode_budget_s.has_value(), preset == kAgarwal2021);
    const Prediction& q = read.predictions[1];
    EXPECT_FALSE(q.bandwidth_bit_per_s || q.step_s || q.scaling_factor || q.communication_s ||
                 q.exposed_communication_s || q.parts_s);
  }
}

TEST(Prediction, NullIsAbsentAndNeverZero) {
  const auto p = predictions_from_json(
                     R"json({"predictions": [{"strategy": "ddp+codec(ratio=8)", "ranks": 4,
    "bandwidth_bit_per_s": 1e9, "compression_ratio": null, "step_s": null, "interval_s": null,
    "scaling_factor": null}]})json",
                     "x")
                     .predictions;
  ASSERT_EQ(p.size(), 1u);
  EXPECT_EQ(p[0].compression_ratio, 1);
  EXPECT_FALSE(p[0].step_s || p[0].scaling_factor);
  EXPECT_FALSE(p[0].changes_convergence);  // nobody reads a strategy's name here
}

}  // namespace
}  // namespace linerate::doc
