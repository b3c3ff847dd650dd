#include "linerate/trace/job/phase.hpp"

#include <gtest/gtest.h>

namespace linerate::trace {
namespace {

Phase at(const std::vector<PhaseSpan>& phases, std::int64_t ns) {
  for (const PhaseSpan& p : phases)
    if (p.span.start_ns <= ns && ns < p.span.end_ns) return p.phase;
  return Phase::unknown;
}

/// Two steps of 100 ns: forward 20 to 30, backward 50 to 60, optimizer 80 to 85 of each.
std::vector<PhaseSpan> two_steps(std::vector<PhaseSpan> more = {}) {
  for (const std::int64_t s : {0, 100}) {
    more.push_back({{s + 20, s + 30}, Phase::forward});
    more.push_back({{s + 50, s + 60}, Phase::backward});
    more.push_back({{s + 80, s + 85}, Phase::optimizer});
  }
  return with_pauses(more, {0, 100});
}

TEST(Pauses, BelongToWhatTheyFollowWithinAStep) {
  const auto phases = two_steps();
  EXPECT_EQ(at(phases, 40), Phase::forward);         // the loss
  EXPECT_EQ(at(phases, 70), Phase::optimizer);       // backward has returned
  EXPECT_EQ(at(phases, 90), Phase::optimizer);       // the step is not over
  EXPECT_EQ(at(phases, 110), Phase::between_steps);  // the next one has begun
  EXPECT_EQ(at(phases, 190), Phase::unknown);        // behind everything
}

TEST(Pauses, BehindGradientsSetToZeroFirstInAStepBelongToTheForwardPass) {
  const auto phases = two_steps({{{105, 107}, Phase::optimizer}});
  EXPECT_EQ(at(phases, 102), Phase::between_steps);  // not the optimizer: zero_grad comes later
  EXPECT_EQ(at(phases, 115), Phase::forward);
  EXPECT_EQ(at(phases, 90), Phase::optimizer);
}

TEST(Pauses, BehindGradientsSetToZeroLastInAStepBelongToTheOptimizer) {
  EXPECT_EQ(at(two_steps({{{90, 92}, Phase::optimizer}}), 95), Phase::optimizer);
}

TEST(Pauses, BetweenTwoBackwardPassesBelongToTheForwardPassThatFollows) {
  const auto phases = with_pauses({{{0, 10}, Phase::forward},
                                   {{10, 20}, Phase::backward},
                                   {{50, 60}, Phase::forward},
                                   {{60, 70}, Phase::backward},
                                   {{75, 80}, Phase::backward}},
                                  {0});
  EXPECT_EQ(at(phases, 30), Phase::forward);
  EXPECT_EQ(at(phases, 72), Phase::backward);
}

TEST(Pauses, BehindLoadingBelongToWhatComesNext) {
  EXPECT_EQ(at(two_steps({{{2, 10}, Phase::data_loading}}), 15), Phase::forward);
}

}  // namespace
}  // namespace linerate::trace
