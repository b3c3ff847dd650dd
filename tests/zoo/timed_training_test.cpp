// What evaluate asks of training: rounds that take turns, tests on the way, runs that may diverge.
#include "linerate/zoo/timed_training.hpp"

#include <gmock/gmock.h>

#include <set>

#include "linerate/core/error.hpp"
#include "small_training.hpp"
#include "support/message_of.hpp"
#include "torch_adapter/rank_tests.hpp"

namespace linerate::zoo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::int64_t> tested(const TrainReport& report) {
  std::vector<std::int64_t> steps;
  for (const TestReport& t : report.tests) steps.push_back(t.step);
  return steps;
}

TEST_ON(TimedTraining, TrainingsTakeTurnsOnOneCommunicator, comm::run_ranks, 2) {
  TimedTraining first(mlp(), communicator, "first");
  TrainOptions other = mlp();
  other.strategy = "ddp+topk(density=0.05)";
  TimedTraining second(other, communicator, "second");
  for (int round = 0; round < 2; ++round) {
    const verbs::Round dense = first.run(3), sparse = second.run(3);
    // A ring of two ranks sends every byte of the gradients once, and a few of the step's flags.
    const double bytes = 4.0 * static_cast<double>(first.parameters());
    EXPECT_GE(dense.sent_bytes, bytes);
    EXPECT_LT(dense.sent_bytes, bytes + 1000);
    EXPECT_LT(sparse.sent_bytes, bytes / 4);
    if (communicator.rank() != 0) continue;
    EXPECT_EQ(dense.timeline.steps.size(), 6u);  // 3 of 2 ranks
    std::set<doc::TaskKind> kinds;
    for (const doc::Event& e : sparse.timeline.events) kinds.insert(e.kind);
    for (const auto kind : {doc::TaskKind::forward, doc::TaskKind::backward, doc::TaskKind::encode,
                            doc::TaskKind::decode})
      EXPECT_TRUE(kinds.contains(kind)) << name_of(kind);
  }
}

/// A thousand dense steps are not what is to be timed.
TEST_ON(TimedTraining, TimesTheStepsBehindACompressorsWarmUp, comm::run_ranks, 2) {
  TrainOptions o = mlp();
  o.strategy = "ddp+powersgd(rank=1, warmup=1000)";
  TimedTraining training(o, communicator, "warmed up");
  const double dense = training.run(2).sent_bytes;
  training.warm_up(2);
  const verbs::Round round = training.run(3);
  EXPECT_LT(round.sent_bytes, dense / 4);
  if (communicator.rank() == 0) {
    EXPECT_THAT(round.timeline.steps.front().variant, testing::Not(HasSubstr("dense")));
  }
}

TEST(EvaluatedTraining, IsTestedOnTheWayAndOnceAtTheEndOfAnEpoch) {
  TrainOptions o = mlp();  // 4 steps an epoch of 2 ranks
  o.steps = 8;
  EXPECT_THAT(tested(run(o, 2)), ElementsAre(4, 8));
  const std::uint64_t untested = run(o, 2).weights_hash;
  o.test_every = 2;
  const TrainReport report = run(o, 2);
  EXPECT_THAT(tested(report), ElementsAre(2, 4, 6, 8));
  EXPECT_EQ(report.weights_hash, untested);
  EXPECT_GT(report.tests[1].train_s, report.tests[0].train_s);
}

TEST(EvaluatedTraining, EndsWithWhatThereIsWhereItDivergesAndMay) {
  TrainOptions o = mlp();
  o.steps = 8;
  o.test_every = 1;
  o.schedule = "constant";
  o.rate = 1e30;
  EXPECT_THROW(run(o, 2), InputError);
  o.ends_when_diverged = true;
  const TrainReport report = run(o, 2);
  EXPECT_THAT(report.diverged, HasSubstr("its loss is"));
  EXPECT_LT(report.steps, 8);
}

TEST(EvaluatedTraining, UsesTheFirstSamplesWhereThatIsAsked) {
  TrainOptions o = mlp();
  o.train_samples = 64;
  o.test_samples = 3;
  EXPECT_EQ(run(o, 2).steps, 2);  // 64 samples, 32 a step
  o.train_samples = 101;
  EXPECT_THAT(support::message_of([&] { run(o, 1); }),
              testing::AllOf(HasSubstr("expected 1 to 100"), HasSubstr("found 101")));
}

}  // namespace
}  // namespace linerate::zoo
