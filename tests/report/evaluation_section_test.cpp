#include "linerate/report/sections.hpp"

#include <gmock/gmock.h>

#include "compare/sample_evaluation.hpp"
#include "linerate/core/error.hpp"
#include "linerate/report/inputs.hpp"

namespace linerate::report {
namespace {

using testing::DoubleNear;
using testing::HasSubstr;
using testing::Optional;

TEST(EvaluationSection, DrawsStepsBesideMarkedBaselines) {
  const doc::Json rows = doc::Json::parse(step_chart(compare::sample_setup()).json).at("rows");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0]["name"], "ddp (fp32)");
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(rows[i]["emphasised"], i < 3);
  EXPECT_EQ(rows[3]["name"], "ddp+topk(density=0.01)");
  EXPECT_EQ(rows[3]["value_s"], 0.9);
  EXPECT_EQ(rows[3]["high_s"], 2.0);
}

TEST(EvaluationSection, DrawsTheMeanOverSeedsWithTheirRange) {
  doc::Setup s = compare::sample_setup();
  const LineChart chart = accuracy_chart(s, false);
  ASSERT_EQ(chart.series.size(), 2u);
  ASSERT_EQ(chart.series[0].points.size(), 4u);
  const Point last = chart.series[0].points[3];  // 0.9 and 0.88 after 40 steps
  EXPECT_EQ(last.x, 40);
  EXPECT_THAT(last.y, Optional(DoubleNear(89, 1e-9)));
  EXPECT_THAT(last.low, Optional(DoubleNear(88, 1e-9)));
  s.trained[0].points[3].train_s = 6;  // the other seed: 4 s
  EXPECT_EQ(accuracy_chart(s, true).series[0].points[3].x, 5);
  s.trained[2].diverged = s.trained[3].diverged = "nan";
  EXPECT_EQ(accuracy_chart(s, false).series.size(), 1u);
}

TEST(EvaluationSection, ThePageOfAResultsFileHasTheCountTheChartsAndTheTables) {
  Inputs inputs;
  add_document(inputs, doc::to_json(doc::Evaluation{{compare::sample_setup()}}), "results.json");
  const std::string page = to_html(page_of(inputs, "linerate report", "1"));
  EXPECT_THAT(page, HasSubstr("1 of 1 setups gain over tuned fp32"));
  EXPECT_THAT(page, HasSubstr("lenet 1x28x28 fashion-mnist, batch 32, 2 ranks, host"));
  EXPECT_THAT(page, HasSubstr("noise floor (A/A): 2.0 %"));
  EXPECT_THAT(page, HasSubstr("Step time by strategy"));
  EXPECT_THAT(page, HasSubstr("Test accuracy over time"));
  EXPECT_THAT(page, HasSubstr("<td>1: density</td>"));
}

TEST(EvaluationSection, ADamagedResultsFileIsNamed) {
  Inputs inputs;
  try {
    add_document(inputs, R"({"document": "evaluation", "schema": 1, "setups": [{}]})", "r.json");
    FAIL();
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), HasSubstr("r.json: /setups/0"));
  }
}

}  // namespace
}  // namespace linerate::report
