// train() as a whole, with ranks as threads: resuming, recording, and equality with one rank.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <set>

#include "folder.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/zoo/checkpoint.hpp"
#include "small_training.hpp"
#include "support/message_of.hpp"
#include "torch_adapter/noting_communicator.hpp"

namespace linerate::zoo {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Training : public InFolder {
 protected:
  static TrainOptions mlp() { return zoo::mlp(/*epochs=*/3); }
  /// Batch norm keeps buffers, which are no parameters.
  static TrainOptions with_batch_norm() {
    TrainOptions o = mlp();
    o.model = "resnet18";
    o.input = models::Shape{1, 16, 16};
    o.variant = "published";
    o.samples = 24;
    return o;
  }
  /// Against a run that nothing interrupts: ends after some steps, resumes, has the same bits.
  void expect_resumes(const TrainOptions& whole, int ranks, std::int64_t steps) const {
    SCOPED_TRACE(whole.strategy + ", " + whole.optimizer + ", " + std::to_string(ranks));
    const TrainReport reference = run(whole, ranks);
    TrainOptions part = whole;
    part.checkpoint = folder_ / (whole.strategy + whole.optimizer + std::to_string(ranks));
    part.steps = steps;
    run(part, ranks);
    part.resume = true;
    part.steps = std::nullopt;
    const TrainReport resumed = run(part, ranks);
    EXPECT_EQ(resumed.weights_hash, reference.weights_hash);
    EXPECT_EQ(resumed.first_step, steps);
    EXPECT_EQ(resumed.epochs.back().test_loss, reference.epochs.back().test_loss);
  }
  /// What train() throws on each rank; "" where nothing.
  template <typename Error>
  static std::vector<std::string> errors_of(const std::function<void(comm::Communicator&)>& work,
                                            int ranks = 2) {
    std::vector<std::string> errors(static_cast<std::size_t>(ranks));
    comm::run_ranks(ranks, [&](comm::Communicator& c) {
      try {
        work(c);
      } catch (const Error& e) {
        errors[static_cast<std::size_t>(c.rank())] = e.what();
      }
    });
    return errors;
  }
};

// In the middle of an epoch, and of both intervals of K-FAC, in every way to share. Compressors
// resume residuals, warm-started factors and stages of a fit, of both ranks.
TEST_F(Training, ResumedRunsEndInTheSameBits) {
  TrainOptions adam = mlp();
  adam.optimizer = "adam";
  for (const int ranks : {1, 2}) {
    expect_resumes(adam, ranks, 5);
    for (const char* strategy :
         {"ddp", "kfac(d, factors=2, inverses=4)", "kfac(mpd, factors=2, inverses=4)",
          "kfac(mem, factors=2, inverses=4)", "kfac(hybrid, fraction=0.5, factors=2, inverses=4)",
          "kfac(spd, factors=2, inverses=4, fisher=mc)",
          "kfac(dp, placement=round-robin, factors=2, inverses=4)", "ddp+topk(density=0.05)",
          "ddp+powersgd(rank=2)", "dear+fp16", "bulk+sidco"}) {
      TrainOptions o = mlp();
      o.strategy = strategy;
      if (ranks == 2 || o.strategy.find('+') == std::string::npos) expect_resumes(o, ranks, 5);
    }
  }
}

TEST_F(Training, BuffersOfBatchNormAreResumedToo) {
  TrainOptions o = with_batch_norm();
  o.batch = 4;
  o.epochs = 1;
  expect_resumes(o, 2, 2);
}

// Weights stay where they are: running averages still move with every step, those found anew are
// the weights' own.
TEST_F(Training, NormSamplesTestWithAveragesOfTheWeightsAlone) {
  TrainOptions o = with_batch_norm();
  o.batch = 24;
  o.rate = 1e-30;
  std::vector<TrainReport> running, anew;
  for (const std::int64_t epochs : {1, 3}) {
    o.epochs = epochs;
    o.norm_samples = std::nullopt;
    running.push_back(run(o, 1));
    o.norm_samples = 20;
    anew.push_back(run(o, 1));
    EXPECT_EQ(anew.back().weights_hash, running.back().weights_hash);  // buffers among them
  }
  EXPECT_NE(running[0].epochs.back().test_loss, running[1].epochs.back().test_loss);
  EXPECT_EQ(anew[0].epochs.back().test_loss, anew[1].epochs.back().test_loss);
}

TEST_F(Training, CompressorsWithMomentumRefuseAnother) {
  TrainOptions o = mlp();
  o.strategy = "ddp+dgc";
  EXPECT_THAT(support::message_of([&] { run(o, 1); }), HasSubstr("--momentum 0"));
  o.momentum = 0;
  EXPECT_NO_THROW(run(o, 2));
  // Its means are a first moment: neither SGD nor Adam steps by that as 1-bit Adam does.
  o = mlp();
  for (const char* optimizer : {"sgd", "adam"})
    for (const char* strategy :
         {"ddp+onebit-adam", "bulk+onebit-adam(freeze_step=10)", "ddp+auto(onebit-adam)"}) {
      o.optimizer = optimizer;
      o.strategy = strategy;
      EXPECT_THAT(support::message_of([&] { run(o, 1); }),
                  HasSubstr("take a compressor that sends gradients"))
          << strategy;
    }
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
  // Never above 1: on a busy machine a note says why there is none.
  EXPECT_LE(recorded.scaling_factor.value_or(0), 1.001);
  EXPECT_EQ(!recorded.scaling_factor.has_value(),
            std::any_of(recorded.notes.begin(), recorded.notes.end(), [](const std::string& note) {
              return note.find("measured under different load") != std::string::npos;
            }));
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
  EXPECT_LT(w.step_low_s, w.step_high_s);  // no two steps take the same time
}

// Checkpoints of linerate 0.1 held these settings and no others.
TEST_F(Training, ACheckpointThatKnowsFewerSettingsIsResumedWithANote) {
  const TrainReport reference = run(mlp(), 2);
  TrainOptions o = mlp();
  o.checkpoint = folder_ / "old";
  o.steps = 5;
  run(o, 2);
  const std::filesystem::path file = o.checkpoint / "checkpoint";
  const std::string content = read_file(file);
  Checkpoint c = decode(content, file.string());
  EXPECT_FALSE(c.settings.contains("last step"));  // it is free to change
  const std::set<std::string> known = {"model",   "input",        "classes",   "data",
                                       "samples", "global batch", "optimizer", "seed"};
  std::erase_if(c.settings, [&](const auto& entry) { return !known.contains(entry.first); });
  EXPECT_EQ(c.settings.size(), known.size());
  write_file_atomically(file, encode(c));
  o.steps = std::nullopt;
  o.resume = true;
  const TrainReport resumed = run(o, 2);
  EXPECT_EQ(resumed.weights_hash, reference.weights_hash);
  EXPECT_THAT(resumed.notes,
              testing::ElementsAre(AllOf(HasSubstr("learning rate"), HasSubstr("momentum")),
                                   HasSubstr("resumed")));
}

TEST_F(Training, PlacesAreMadeBeforeTheFirstStepAndNamedOnEveryRankWhereTheyCannotBe) {
  std::ofstream(folder_ / "file") << "x";
  int places = 0;
  using Place = std::filesystem::path TrainOptions::*;
  for (const Place place :
       {&TrainOptions::checkpoint, &TrainOptions::losses, &TrainOptions::record})
    for (const int ranks : {1, 2}) {
      TrainOptions o = mlp();
      o.*place = folder_ / "file" / "below";
      TrainObserver observer;
      observer.on_step = [](auto...) { ADD_FAILURE() << "a step"; };
      EXPECT_THAT(
          errors_of<InputError>([&](comm::Communicator& c) { train(o, c, observer); }, ranks),
          testing::Each(HasSubstr((folder_ / "file").string())));
      o.*place = folder_ / "missing" / std::to_string(++places) / "below";
      run(o, ranks);
      EXPECT_TRUE(std::filesystem::exists(o.*place));
    }
}

TEST_F(Training, EveryRankLearnsOfAFailedSaveAndTheCheckpointBeforeItStays) {
  TrainOptions o = mlp();
  o.checkpoint = folder_ / "full";
  o.checkpoint_every = 2;
  std::optional<SmallFiles> full;
  const auto errors = errors_of<InputError>([&](comm::Communicator& c) {
    TrainObserver observer;  // from step 3 on files may not be larger
    observer.on_step = [&](std::int64_t step, auto...) {
      if (step == 3) full.emplace(1000);
    };
    train(o, c, observer);
  });
  full.reset();
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_THAT(errors[0],
              AllOf(HasSubstr("cannot write"), HasSubstr("the checkpoint before it is whole")));
  const std::string content = read_file(o.checkpoint / "checkpoint");
  EXPECT_EQ(decode(content, "x").step, 2);
  o.resume = true;
  EXPECT_EQ(run(o, 2).weights_hash, run(mlp(), 2).weights_hash);
}

/// Rank 1 gets another first element of the first gradients: what a broken network, memory or a bug
/// may do.
class LyingCommunicator : public torch_adapter::NotingCommunicator {
 public:
  using NotingCommunicator::NotingCommunicator;
  comm::WorkPtr submit(comm::Submission what) override {
    const comm::Buffer b = what.output;
    const bool sums = what.call == comm::CollectiveCall::all_reduce && !what.pieces;
    comm::WorkPtr work = NotingCommunicator::submit(std::move(what));
    if (rank() != 1 || !sums || b.dtype != DType::f32 || lied_.exchange(true)) return work;
    work->wait();
    *static_cast<float*>(b.data) += 1.0f;
    return work;
  }

 private:
  std::atomic<bool> lied_ = false;
};

// 100 samples, 32 a step: an epoch has four steps.
TEST_F(Training, RanksThatDivergeStopAtTheNextCheckpointEpochOrEnd) {
  struct Case {
    std::optional<std::int64_t> checkpoint_every, steps;
    int noticed;
  };
  for (const Case& one : {Case{3, {}, 3}, Case{{}, {}, 4}, Case{{}, 2, 2}}) {
    TrainOptions o = mlp();
    o.checkpoint = folder_ / ("parted-" + std::to_string(one.noticed));
    o.checkpoint_every = one.checkpoint_every;
    o.steps = one.steps;
    const auto errors = errors_of<CommError>([&](comm::Communicator& inner) {
      LyingCommunicator c(inner);
      train(o, c);
    });
    EXPECT_EQ(errors[0], errors[1]);
    EXPECT_THAT(errors[0],
                AllOf(HasSubstr("training state after step " + std::to_string(one.noticed)),
                      HasSubstr("ranks differ in \"model."), HasSubstr("rank 1 has 0x")));
    EXPECT_FALSE(std::filesystem::exists(o.checkpoint / "checkpoint"));
  }
}

/// What a strategy says of K-FAC and changes its numbers. Another way to share does not.
TEST_F(Training, AResumedPreconditionerKeepsItsMethod) {
  struct Case {
    const char *first, *other, *refused;  // nullptr: it goes on
  };
  constexpr const char *kSpd = "kfac(spd, factors=1, inverses=2)",
                       *kMem = "kfac(mem, factors=2, inverses=4)";
  int number = 0;
  for (const Case& one :
       {Case{kSpd, "ddp", "preconditioner"},
        Case{kSpd, "kfac(spd, factors=1, inverses=2, inverse=eigen)",
             "inverses of factors cholesky, this run asks for eigen"},
        Case{kSpd, "kfac(spd, factors=1, inverses=2, largest=20)",
             "largest factor 4097, this run asks for 20"},
        Case{kSpd, "kfac(spd, factors=1, inverses=2, damping=0.5)", "damping=0.5"},
        Case{kSpd, "kfac(spd, factors=1, inverses=2, clip=off)", "kl=0"},
        Case{kMem, "kfac(spd, factors=2, inverses=8)", "preconditioner"},
        Case{kMem, "kfac(dp, factors=2, inverses=4)", "preconditioner"},
        Case{kMem, "bulk+kfac(spd, factors=2, inverses=4)", nullptr},
        Case{"kfac(dp, factors=1, inverses=2)",
             "kfac(dp, placement=round-robin, factors=1, inverses=2)", "samples of factors"}}) {
    SCOPED_TRACE(one.other);
    TrainOptions o = mlp();
    o.strategy = one.first;
    o.checkpoint = folder_ / fmt::format("method-{}", number++);
    o.steps = 3;
    run(o, 2);
    o.steps = 5;
    o.resume = true;
    o.strategy = one.other;
    if (one.refused)
      EXPECT_THAT(support::message_of([&] { run(o, 2); }),
                  AllOf(HasSubstr("--resume"), HasSubstr(one.refused)));
    else
      EXPECT_EQ(run(o, 2).first_step, 3);
  }
}

TEST_F(Training, TwoRunsDoNotWriteIntoOneFolder) {
  TrainOptions o = mlp();
  o.checkpoint = folder_ / "shared";
  std::string refused;
  comm::run_ranks(1, [&](comm::Communicator& c) {
    TrainObserver observer;
    observer.on_step = [&](std::int64_t step, auto...) {
      if (step != 1) return;
      TrainOptions second = o;
      second.resume = true;
      refused = support::message_of<InputError>([&] { run(second, 1); });
    };
    train(o, c, observer);
  });
  EXPECT_THAT(refused, HasSubstr("another run keeps its checkpoints here (process " +
                                 std::to_string(::getpid())));
}

}  // namespace
}  // namespace linerate::zoo
