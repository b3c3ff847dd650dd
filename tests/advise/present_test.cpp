#include <gmock/gmock.h>

#include "advise/advise_jobs.hpp"
#include "linerate/advise/advise.hpp"
#include "linerate/plan/registry.hpp"
#include "linerate/report/advice_text.hpp"

namespace linerate::advise {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

doc::Workload recorded(double step_s, int ranks = 4) {
  doc::Workload w = workload();
  w.recorded = doc::RecordedStep{step_s, ranks};
  return w;
}

// Whatever strategy was measured, on networks with and without a known error: a step as predicted
// changes no advice, a step beyond the interval makes none certain.
TEST(Present, AStepOutsideItsPredictionLowersTheVoice) {
  int changes = 0;
  for (const auto& line : plan::exchanges().lines())
    for (const doc::Cluster& c : {measured(1, 0.1), measured(10, 0.1), cluster(10)}) {
      AdviseOptions options;
      options.current = doc::parse_strategy(line.name);
      const doc::Advice unmeasured = advise(workload(), c, options);
      EXPECT_EQ(unmeasured.confidence, doc::Confidence::unchecked);
      EXPECT_EQ(unmeasured.present, "");
      const doc::Bounded step = *find(unmeasured, std::string(line.name)).step_s;
      const doc::Advice good = advise(recorded(step.value), c, options);
      EXPECT_EQ(good.confidence, doc::Confidence::checked);
      EXPECT_EQ(good.sentence, unmeasured.sentence);
      EXPECT_EQ(good.verdict, unmeasured.verdict);
      EXPECT_THAT(report::to_text(good, false),
                  StartsWith("Present strategy " + std::string(line.name) + ": measured "));
      changes += good.verdict == doc::AdviceVerdict::change;
      for (const double times : {0.2, 5.0}) {
        const doc::Advice missed = advise(recorded(step.value * times), c, options);
        EXPECT_EQ(missed.confidence, doc::Confidence::low);
        EXPECT_NE(missed.verdict, doc::AdviceVerdict::change);
        EXPECT_THAT(report::to_text(missed, true),
                    AllOf(StartsWith("Present strategy "), Not(HasSubstr("Change "))));
        EXPECT_THAT(missed.present, HasSubstr("misses what was measured"));
        EXPECT_EQ(missed.measured_step_s, step.value * times);
      }
    }
  EXPECT_GT(changes, 3);
}

TEST(Present, AnotherJobThanTheRecordedOneIsNotComparedWithIt) {
  AdviseOptions other;
  other.ranks = 8;
  EXPECT_EQ(advise(recorded(1), cluster(10), other).present, "");
  other = {};
  other.bandwidth = BytesPerSecond{kGbit};
  EXPECT_EQ(advise(recorded(1), cluster(10), other).present, "");
  EXPECT_FALSE(doc::scaled(recorded(1), 2).recorded.has_value());
}

TEST(Present, AnUnknownStrategyIsNotTakenForDdp) {
  AdviseOptions options;
  options.current_is_known = false;
  const doc::Advice unmeasured = advise(workload(), cluster(10), options);
  const double ddp_s = find(unmeasured, "ddp").step_s->value;
  // The recorded step is what others are compared with: what changes is judged by it, and not by
  // what ddp would take.
  int changes = 0;
  for (const double times : {0.1, 2.0}) {
    const double step_s = times * ddp_s;
    const doc::Advice a = advise(recorded(step_s), cluster(10), options);
    EXPECT_EQ(a.current, "the exchange as recorded");
    EXPECT_EQ(a.confidence, doc::Confidence::unchecked);
    EXPECT_THAT(a.present, StartsWith("No strategy of linerate's is known to exchange as the job"));
    const double best_s = a.candidates.front().step_s->value;
    EXPECT_EQ(a.verdict == doc::AdviceVerdict::change, best_s < 0.98 * step_s);
    EXPECT_NEAR(a.candidates.front().over_current->value, best_s / step_s, 1e-9);
    EXPECT_THAT(a.sentence, StartsWith(a.verdict == doc::AdviceVerdict::change
                                           ? "Change the exchange as recorded to "
                                           : "Do nothing: "));
    changes += a.verdict == doc::AdviceVerdict::change;
    EXPECT_EQ(report::to_text(a, true).find("from ddp"), std::string::npos);
    EXPECT_TRUE(a.ceilings.empty());
  }
  EXPECT_EQ(changes, 1);
}

}  // namespace
}  // namespace linerate::advise
