#include "linerate/doc/evaluation.hpp"

#include <gmock/gmock.h>

#include "compare/sample_evaluation.hpp"

namespace linerate::doc {
namespace {

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

TEST(Evaluation, IsReadAsItWasWritten) {
  const Evaluation all = evaluation_from_json(sample(), "x");
  EXPECT_EQ(to_json(all), sample());
  EXPECT_FALSE(all.setups.at(1).line_rate_bytes_per_s || all.setups[1].target_accuracy);
}

}  // namespace
}  // namespace linerate::doc
