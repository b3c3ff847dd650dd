// train() as a whole, with ranks as threads: resuming, recording, and equality with one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/zoo/train.hpp"

namespace linerate::zoo {
namespace {

class Training : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / ("train-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static TrainOptions mlp() {
    TrainOptions o;
    o.model = "mlp";
    o.input = models::Shape{1, 8, 8};
    o.classes = 10;
    o.samples = 100;
    o.batch = 16;
    o.epochs = 3;
    o.threads = 1;
    return o;
  }
  /// Rank 0's report.
  static TrainReport run(const TrainOptions& o, int ranks) {
    TrainReport report;
    comm::run_ranks(ranks, [&](comm::Communicator& c) {
      const TrainReport mine = train(o, c);
      if (c.rank() == 0) report = mine;
    });
    return report;
  }
  std::filesystem::path folder_;
};

TEST_F(Training, ResumedRunsEndInTheSameBits) {
  for (const char* optimizer : {"sgd", "adam"})
    for (const int ranks : {1, 2}) {
      TrainOptions whole = mlp();
      whole.optimizer = optimizer;
      const TrainReport reference = run(whole, ranks);
      TrainOptions part = whole;
      part.checkpoint = folder_ / (optimizer + std::to_string(ranks));
      part.steps = 5;  // in the middle of an epoch
      run(part, ranks);
      part.resume = true;
      part.steps = std::nullopt;
      const TrainReport resumed = run(part, ranks);
      EXPECT_EQ(resumed.weights_hash, reference.weights_hash) << optimizer << " " << ranks;
      EXPECT_EQ(resumed.first_step, 5);
      EXPECT_EQ(resumed.epochs.back().test_loss, reference.epochs.back().test_loss);
    }
}

TEST_F(Training, BuffersOfBatchNormAreResumedToo) {
  TrainOptions whole = mlp();
  whole.model = "resnet18";
  whole.input = models::Shape{1, 16, 16};
  whole.variant = "published";
  whole.samples = 24;
  whole.batch = 4;
  whole.epochs = 1;
  const TrainReport reference = run(whole, 2);
  TrainOptions part = whole;
  part.checkpoint = folder_ / "bn";
  part.steps = 2;
  run(part, 2);
  part.resume = true;
  part.steps = std::nullopt;
  EXPECT_EQ(run(part, 2).weights_hash, reference.weights_hash);
}

// Gradients are sums over the same samples in another order: the curves differ by rounding alone.
// Per step the gradient differs by about 1e-7 of itself; momentum and 20 steps amplify that by a
// factor far below 1000.
TEST_F(Training, TwoRanksFollowTheLossCurveOfOne) {
  TrainOptions one = mlp();
  one.batch = 32;
  const TrainReport alone = run(one, 1), both = run(mlp(), 2);
  ASSERT_EQ(alone.losses.size(), both.losses.size());
  ASSERT_EQ(alone.losses.size(),
            12u);  // 100 samples, 32 a step: three full steps and one of four, three times
  for (std::size_t i = 0; i < alone.losses.size(); ++i)
    EXPECT_NEAR(both.losses[i], alone.losses[i], 1e-4 * alone.losses[i]) << i;
  EXPECT_LT(both.losses.back(), both.losses.front());
}

TEST_F(Training, RecordingLeavesNoTraceInTheModel) {
  const TrainReport plain = run(mlp(), 2);
  TrainOptions o = mlp();
  o.record = folder_ / "run.json";
  o.record_steps = 4;
  const TrainReport recorded = run(o, 2);
  EXPECT_EQ(recorded.weights_hash, plain.weights_hash);

  const doc::Timeline timeline = doc::load_timeline(o.record);
  EXPECT_EQ(timeline.ranks, 2);
  ASSERT_TRUE(timeline.one_rank_step_s.has_value());
  int exchanges = 0, forwards = 0, ranks_seen[2] = {0, 0};
  for (const doc::Event& e : timeline.events) {
    exchanges += e.kind == doc::TaskKind::all_reduce;
    forwards += e.kind == doc::TaskKind::forward;
    ++ranks_seen[e.rank];
  }
  EXPECT_GT(exchanges, 0);
  EXPECT_EQ(forwards % 3, 0);  // three linear layers
  EXPECT_EQ(ranks_seen[0], ranks_seen[1]);

  const doc::Workload w = doc::load_workload(folder_ / "run.workload.json");
  EXPECT_EQ(w.gradients.size(), 6u);
  EXPECT_EQ(w.gradients.front().layer, 2);
  EXPECT_NEAR(*w.forward_s + w.backward_s + *w.update_s + *w.tail_s, *w.step_s, 1e-12);
}

TEST_F(Training, ADifferentRunsCheckpointIsRefused) {
  TrainOptions o = mlp();
  o.checkpoint = folder_ / "seed";
  o.steps = 2;
  run(o, 1);
  o.resume = true;
  o.seed = 2;
  EXPECT_THAT([&] { run(o, 1); }, testing::ThrowsMessage<UsageError>(
                                      testing::HasSubstr("seed 1, this run asks for 2")));
}

}  // namespace
}  // namespace linerate::zoo
