#include "linerate/trace/job/job.hpp"

#include <gtest/gtest.h>

namespace linerate::trace {
namespace {

StepPhase at(const std::vector<PhaseSpan>& phases, std::int64_t ns) {
  for (const PhaseSpan& p : phases)
    if (p.span.start_ns <= ns && ns < p.span.end_ns) return p.phase;
  return StepPhase::unknown;
}

/// Two steps of 100 ns: forward 20 to 30, backward 50 to 60, optimizer 80 to 85 of each.
std::vector<PhaseSpan> two_steps(std::vector<PhaseSpan> more = {}) {
  for (const std::int64_t s : {0, 100}) {
    more.push_back({{s + 20, s + 30}, StepPhase::forward});
    more.push_back({{s + 50, s + 60}, StepPhase::backward});
    more.push_back({{s + 80, s + 85}, StepPhase::optimizer});
  }
  return with_pauses(more, {0, 100});
}

TEST(Pauses, BelongToWhatTheyFollowWithinAStep) {
  const auto phases = two_steps();
  EXPECT_EQ(at(phases, 40), StepPhase::forward);         // the loss
  EXPECT_EQ(at(phases, 70), StepPhase::optimizer);       // backward has returned
  EXPECT_EQ(at(phases, 90), StepPhase::optimizer);       // the step is not over
  EXPECT_EQ(at(phases, 110), StepPhase::between_steps);  // the next one has begun
  EXPECT_EQ(at(phases, 190), StepPhase::unknown);        // behind everything
}

TEST(Pauses, BehindGradientsSetToZeroFirstInAStepBelongToTheForwardPass) {
  const auto phases = two_steps({{{105, 107}, StepPhase::optimizer}});
  EXPECT_EQ(at(phases, 102), StepPhase::between_steps);  // not the optimizer: zero_grad comes later
  EXPECT_EQ(at(phases, 115), StepPhase::forward);
  EXPECT_EQ(at(phases, 90), StepPhase::optimizer);
}

TEST(Pauses, BehindGradientsSetToZeroLastInAStepBelongToTheOptimizer) {
  EXPECT_EQ(at(two_steps({{{90, 92}, StepPhase::optimizer}}), 95), StepPhase::optimizer);
}

TEST(Pauses, BetweenTwoBackwardPassesBelongToTheForwardPassThatFollows) {
  const auto phases = with_pauses({{{0, 10}, StepPhase::forward},
                                   {{10, 20}, StepPhase::backward},
                                   {{50, 60}, StepPhase::forward},
                                   {{60, 70}, StepPhase::backward},
                                   {{75, 80}, StepPhase::backward}},
                                  {0});
  EXPECT_EQ(at(phases, 30), StepPhase::forward);
  EXPECT_EQ(at(phases, 72), StepPhase::backward);
}

TEST(Pauses, BehindLoadingBelongToWhatComesNext) {
  EXPECT_EQ(at(two_steps({{{2, 10}, StepPhase::data_loading}}), 15), StepPhase::forward);
}

}  // namespace
}  // namespace linerate::trace
