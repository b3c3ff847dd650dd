// Synchronisation cannot be lost: whatever a program does between two finish(), all ranks hold the
// same bits afterwards, or every rank throws.
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>
#include <torch/utils.h>

#include <memory>
#include <mutex>
#include <sstream>

#include "linerate/core/error.hpp"
#include "torch_adapter/noting_communicator.hpp"
#include "torch_adapter/parity.hpp"
#include "torch_adapter/rank_tests.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using testing::AllOf;
using testing::Each;
using testing::Ge;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Le;
using testing::SizeIs;
using testing::StartsWith;

/// Several buckets for the Mlp, so that some leave before backward ends.
const std::string kBuckets = "ddp(first=64B,bucket=512B)";

/// Two loose tensors under one strategy.
struct TwoTensors {
  Communicator& communicator;
  std::string strategy;
  std::int64_t of_b = 3;
  at::Tensor a = torch::ones({3}, torch::requires_grad());
  at::Tensor b = torch::ones({of_b}, torch::requires_grad());
  DataParallel parallel{{{"a", a}, {"b", b}}, {}, communicator, {.strategy = strategy}};

  void clear() { a.mutable_grad().reset(), b.mutable_grad().reset(); }
};

// Loaded, moved, retyped

TEST_BY_STEPS(Changed, WeightsLoadedAfterWrappingGoOnBeingExchanged, 2, 5) {
  if (step == 2) {
    Mlp other;
    other.to(at::kDouble);
    seed_weights(other, 3.25);
    std::stringstream saved;
    torch::serialize::OutputArchive out;
    other.save(out);
    out.save_to(saved);
    torch::serialize::InputArchive in;
    in.load_from(saved);
    pair.model.load(in);
  }
  pair.step(parallel);
}

TEST_WITH_PAIR(Changed, ARetypedModelIsPlannedAnew, 2) {
  for (int step = 0; step < 2; ++step) pair.step(parallel);
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    pair.model.zero_grad();
    for (Mlp* m : {&pair.model, &pair.reference}) m->to(type);
    for (int step = 0; step < 4; ++step) {
      EXPECT_EQ(pair.step(parallel).rounds, step == 0 ? 2 : 1);
      EXPECT_EQ(pair.model.a->weight.grad().scalar_type(), type);
      pair.expect_equal(c10::toString(type) + (", step " + std::to_string(step)));
    }
  }
}

/// Once the ranks agree again, it goes on.
TEST(Changed, WeightsTypeOrTrainingOnOneRankAloneAreAnErrorOnEveryRank) {
  struct Row {
    void (*set)(bool changed, Mlp&);
    std::vector<std::string> words;
  };
  for (const Row& row :
       {Row{[](bool changed, Mlp&m) {
              m.b->weight.set_data(torch::full({16, 16}, changed ? 0.0 : 1.0, at::kDouble));
            },
            {"\"net\"", "b.weight", "rank 1"}},
        Row{[](bool changed, Mlp&m) { m.to(changed ? at::kFloat : at::kDouble); },
            {"Float", "Double", "rank 1"}},
        Row{[](bool changed, Mlp&m) { m.b->weight.set_requires_grad(changed); }, {"b.weight"}}})
    ranks(3, [&row](Communicator& communicator) {
      PairedMlp pair(communicator);
      for (Mlp* m : {&pair.model, &pair.reference}) row.set(false, *m);
      DataParallel parallel(pair.model, communicator, {.strategy = kBuckets, .name = "net"});
      for (int i = 0; i < 2; ++i) pair.step(parallel);
      if (communicator.rank() == 1) row.set(true, pair.model);
      pair.model.zero_grad();
      pair.model_loss().backward();
      const std::string said = thrown_by<CommError>([&] { parallel.finish(); });
      for (const std::string& word : row.words) EXPECT_THAT(said, HasSubstr(word));
      row.set(false, pair.model);
      pair.step(parallel);
      pair.expect_equal("after all ranks agree again");
    });
}

TEST_ON(Changed, AThawedParameterIsExchangedFromItsFirstGradientOn, ranks, 2) {
  PairedMlp pair(communicator);
  for (Mlp* m : {&pair.model, &pair.reference}) m->b->weight.set_requires_grad(false);
  DataParallel parallel(pair.model, communicator, {.strategy = kBuckets});
  for (int step = 0; step < 5; ++step) {
    if (step == 2)
      for (Mlp* m : {&pair.model, &pair.reference}) m->b->weight.set_requires_grad(true);
    pair.step(parallel);
    EXPECT_EQ(pair.model.b->weight.grad().defined(), step >= 2);
    pair.expect_equal("step " + std::to_string(step));
  }
}

TEST_ON(Changed, AParameterOfAnotherSizeIsPlannedAnewOrRefused, ranks, 2) {
  for (const int when : {1, 2, 3}) {  // before the second plan, and behind it
    TwoTensors two{communicator, "ddp", 4};
    at::Tensor& b = two.b;
    const auto step = [&] {
      two.clear();
      ((two.a.sum() + b.sum()) * (communicator.rank() + 1)).backward();
      return two.parallel.finish();
    };
    for (int i = 0; i < when; ++i) step();
    b.set_data(torch::ones({1000}));
    EXPECT_EQ(step().rounds, 2);
    EXPECT_TRUE(torch::equal(b.grad(), torch::full({1000}, 1.5f)));
    EXPECT_EQ(step().rounds, 1);
    if (communicator.rank() == 1) b.set_data(torch::ones({7}));
    EXPECT_THAT(thrown_by<CommError>(step), AllOf(HasSubstr("1000"), HasSubstr("rank 1")));
  }
}

TEST_ON(Changed, BuffersMayGetOtherMemory, ranks, 2) {
  torch::nn::BatchNorm1d model(6);
  DataParallel parallel(*model, communicator);
  for (int step = 0; step < 4; ++step) {
    if (step == 2) model->running_mean.set_data(torch::zeros({6}));
    const at::Tensor x = numbers({kBatch, 6}, communicator.rank() + step, at::kFloat);
    model->forward(x).square().mean().backward();
    // Freed between backward and finish(): nothing may keep where it was.
    if (step == 3) model->running_var.set_data(torch::ones({6}));
    parallel.finish();
    require_bitwise_equal(communicator, *model);
  }
}

TEST_ON(Changed, BuffersOfAnotherSizeArePlannedAnewOrRefused, ranks, 2) {
  torch::nn::BatchNorm1d model(6);
  const at::Tensor extra = torch::zeros({4});
  model->register_buffer("extra", extra);
  DataParallel parallel(*model, communicator);
  const auto backward = [&] {
    model->forward(numbers({kBatch, 6}, 1, at::kFloat)).square().mean().backward();
  };
  backward();
  parallel.finish();
  extra.set_data(torch::full({100}, communicator.rank()));
  backward();
  parallel.finish();
  EXPECT_EQ(extra.sum().item<int>(), 0);  // rank 0's
  if (communicator.rank() == 1) extra.set_data(torch::zeros({100000}));
  backward();
  EXPECT_THAT(thrown_by<CommError>([&] { parallel.finish(); }), HasSubstr("100000"));
}

// Backward passes

TEST(Backward, ARankWithoutOneCountsAsZeroAndIsWarnedOnce) {
  const Warnings warnings;
  with_pair_step_by_step(3, 5, [](PairedMlp& pair, DataParallel& parallel, int step) {
    pair.begin_step();
    ++pair.batch;
    // The mean over ranks of what two of them computed.
    for (int r = 0; r < 3; ++r)
      if (step < 2 || r != 1) (pair.reference_loss_of(r) / 3).backward();
    if (step < 2 || pair.communicator.rank() != 1) pair.model_loss().backward();
    parallel.finish();
  });
  EXPECT_THAT(warnings.with("without a backward pass"),
              AllOf(SizeIs(Le(1u)),  // none in the processes of other ranks
                    Each(AllOf(HasSubstr("rank 1 finishes step 2"), HasSubstr("set_batch(0)")))));
}

/// Gives no gradient at all for its input, as a custom function may.
struct Severed : torch::autograd::Function<Severed> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list&) {
    return {at::Tensor()};
  }
};

TEST_ON(Backward, AnUndefinedGradientOnOneRankCountsAsZeroThere, ranks, 2) {
  TwoTensors two{communicator, "bulk"};
  for (int step = 0; step < 3; ++step) {
    two.clear();
    const at::Tensor used = communicator.rank() == 0 ? two.b : Severed::apply(two.b);
    (two.a * 2 + used * 4).sum().backward();
    two.parallel.finish();
    EXPECT_TRUE(torch::equal(two.a.grad(), torch::full({3}, 2.0f)));
    EXPECT_TRUE(torch::equal(two.b.grad(), torch::full({3}, 2.0f)));  // (4 + 0) / 2
  }
}

TEST(Backward, GradientsThatTheProgramWritesAreExchangedAndThoseLeftStandingAreNot) {
  const Warnings warnings;
  ranks(2, [](Communicator& communicator) {
    const at::Tensor a = torch::ones({3}, torch::requires_grad()),
                     b = torch::ones({4}, torch::requires_grad());
    b.mutable_grad() = torch::full({4}, 7.0f);  // before wrapping: none of a step's
    DataParallel parallel({{"a", a}, {"b", b}}, {}, communicator, {.strategy = "ddp"});
    const auto number = static_cast<float>(communicator.rank() + 1);
    for (int step = 0; step < 4; ++step) {
      a.mutable_grad() = torch::full({3}, number);
      if (step >= 2 && communicator.rank() == 1) b.mutable_grad() = torch::full({4}, number);
      if (step >= 2 && communicator.rank() == 0) b.mutable_grad().reset();
      EXPECT_EQ(parallel.finish().unused_everywhere, step < 2 ? 1 : 0);
      EXPECT_TRUE(torch::equal(a.grad(), torch::full({3}, 1.5f)));
      EXPECT_TRUE(torch::equal(b.grad(), torch::full({4}, step < 2 ? 7.0f : 1.0f)));
    }
    a.grad().zero_(), b.grad().mul_(2);
    EXPECT_EQ(parallel.finish().unused_everywhere, 2);
    EXPECT_TRUE(torch::equal(b.grad(), torch::full({4}, 2.0f)));
  });
  EXPECT_THAT(warnings.with("without a backward pass"), Each(HasSubstr("finishes step 4")));
}

TEST(Backward, AccumulatingBehindTheExchangingOneCountsToo) {
  for (const bool early : {false, true})
    with_pair_step_by_step(2, 4, [early](PairedMlp& pair, DataParallel& parallel, int step) {
      pair.begin_step();
      if (early) parallel.accumulate([&] { pair.backward(); });
      pair.backward();
      parallel.accumulate([&] { pair.backward(); });
      EXPECT_EQ(parallel.finish().rounds, step == 0 ? 1 : 2);
    });
}

TEST_BY_STEPS(Backward, AccumulatingOnOneRankAloneKeepsAllInStep, 2, 4) {
  pair.begin_step_with_pass();
  if (pair.communicator.rank() == 1) parallel.accumulate([&] { pair.model_loss().backward(); });
  (pair.reference_loss_of(1) / 2).backward();  // what rank 1 adds
  parallel.finish();
}

TEST_ON(Backward, WhatWasAccumulatedAndClearedCountsAsUnused, ranks, 2) {
  TwoTensors two{communicator, "bulk"};
  for (int step = 0; step < 3; ++step) {
    two.parallel.accumulate([&] { (two.a + two.b).sum().backward(); });
    two.clear();
    (two.a * 2).sum().backward();
    EXPECT_EQ(two.parallel.finish().unused_everywhere, 1);
    EXPECT_TRUE(torch::equal(two.a.grad(), torch::full({3}, 2.0f)));
    EXPECT_FALSE(two.b.grad().defined());
    two.clear();
  }
}

TEST_ON(Backward, MoreOrFewerThanLearnedAreRightAtOnceAndLearnedAgain, ranks, 2) {
  PairedMlp pair(communicator);
  NotingCommunicator noting(communicator);
  DataParallel parallel(pair.model, noting, {.strategy = kBuckets});
  const auto run = [&](int passes) {
    pair.begin_step();
    for (int i = 0; i < passes; ++i) pair.backward();
    const StepReport report = parallel.finish();
    pair.expect_equal(std::to_string(passes) + " passes");
    return report.rounds;
  };
  EXPECT_EQ(run(1), 1);
  EXPECT_EQ(run(1), 1);
  EXPECT_EQ(run(3), 2);  // the first pass had left
  EXPECT_EQ(run(3), 1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run(1), 1);  // waits for finish()
  static_cast<void>(noting.take());
  pair.begin_step();
  pair.backward();
  EXPECT_THAT(noting.take(), testing::Not(IsEmpty()));  // buckets leave early again
  parallel.finish();
  pair.expect_equal("learned again");
}

TEST(Backward, GradientsChangedAfterTheyLeftAreSentAgainWithOneWarning) {
  const Warnings warnings;
  with_pair_step_by_step(2, 6, [](PairedMlp& pair, DataParallel& parallel, int step) {
    pair.begin_step_with_pass();
    if (step == 5) {  // cleared and computed anew
      pair.begin_step_with_pass();
    } else {
      const torch::NoGradGuard no_grad;
      for (Mlp* m : {&pair.model, &pair.reference}) m->c->weight.mutable_grad().mul_(3);
    }
    EXPECT_EQ(parallel.finish().rounds, step == 0 ? 1 : 2);
  });
  if (testing::Test::IsSkipped()) return;
  EXPECT_THAT(warnings.with("after it was sent"),
              AllOf(SizeIs(AllOf(Ge(1u), Le(2u))), Each(HasSubstr("in step 1"))));  // once a rank
}

TEST_BY_STEPS(Backward, AnExceptionInOneRanksPassLosesNothing, 2, 6) {
  const int rank = pair.communicator.rank();
  pair.begin_step();
  if (step % 3 == 2 && (step == 5 || rank == 1)) {
    // In the middle of backward: c's gradients have come and their buckets have left.
    const at::Tensor hidden = torch::tanh(pair.model.a->forward(rows(pair.input(), rank)));
    hidden.register_hook(
        [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("out of luck"); });
    const at::Tensor out = pair.model.c->forward(torch::tanh(pair.model.b->forward(hidden)));
    EXPECT_THROW(out.sum().backward(), std::runtime_error);
    pair.model.zero_grad();  // and begins the step anew
  }
  pair.backward();
  parallel.finish();
}

TEST_WITH_PAIR(Backward, NaNsAreTheSameBitsEverywhereAndPass, 3) {
  for (int step = 0; step < 4; ++step) {
    pair.begin_step();
    const double poison = step == 2 && pair.communicator.rank() == 1 ? std::nan("") : 1.0;
    (pair.model_loss() * poison).backward();
    parallel.finish();
    EXPECT_EQ(torch::isnan(pair.model.a->weight.grad()).any().item<bool>(), step == 2);
    require_bitwise_equal(pair.communicator, pair.model);
  }
}

TEST_ON(Backward, ASparseGradientIsRefusedOnEveryRank, ranks, 2) {
  const at::Tensor table = torch::ones({5, 2}, torch::requires_grad());
  DataParallel parallel({{"table", table}}, {}, communicator);
  const bool sparse = communicator.rank() == 1;
  torch::embedding(table, torch::tensor({1, 3}), -1, false, sparse).sum().backward();
  EXPECT_THAT(thrown_by([&] { parallel.finish(); }),
              AllOf(HasSubstr("rank 1"), HasSubstr("\"table\" is sparse")));
  table.mutable_grad().reset();
  torch::embedding(table, torch::tensor({1, 3}), -1, false, false).sum().backward();
  parallel.finish();  // the object is usable
  EXPECT_EQ(table.grad().sum().item<float>(), 4);
}

// finish()

TEST(Finish, ForgottenIsSaidByTheNextBackward) {
  for (const int finished : {0, 2})  // steps before
    with_pair(2, [finished](PairedMlp& pair, DataParallel& parallel) {
      torch::optim::SGD optimizer(pair.model.parameters(), 0.1);
      for (int step = 0; step < finished; ++step) pair.step(parallel), optimizer.step();
      optimizer.zero_grad();
      pair.model_loss().backward();
      optimizer.step();  // without finish()
      optimizer.zero_grad();
      EXPECT_THAT(thrown_by([&] { pair.model_loss().backward(); }),
                  AllOf(HasSubstr("\"net\" of Mlp: finish() was not called"),
                        HasSubstr("step " + std::to_string(finished))));
      EXPECT_THAT(thrown_by([&] { parallel.finish(); }), HasSubstr("finish() was not called"));
    });
}

TEST(Finish, ForgottenAtTheEndIsSaidByTheDestructor) {
  const Warnings warnings;
  ranks(2, [](Communicator& communicator) {
    PairedMlp pair(communicator);
    {
      DataParallel parallel(pair.model, communicator, {.strategy = kBuckets});
      for (int step = 0; step < 2; ++step) pair.step(parallel);
      pair.model_loss().backward();  // buckets are under way when the object goes
    }
    communicator.barrier("behind it")->wait();
    Mlp other;
    DataParallel again(other, communicator);  // the communicator is fit for another
  });
  if (testing::Test::IsSkipped()) return;
  EXPECT_THAT(warnings.with("destroyed before finish()"),
              AllOf(SizeIs(Ge(1u)), Each(HasSubstr("step 2"))));
}

TEST_BY_STEPS(Finish, LocalStepsInsideAccumulateAreNoMistake, 2, 3) {
  torch::optim::SGD optimizer(pair.model.parameters(), 0.0);
  for (int local = 0; local < 2; ++local) {
    optimizer.zero_grad();
    parallel.accumulate([&] { pair.model_loss().backward(); });
    optimizer.step();
  }
  pair.step(parallel);
}

TEST_WITH_PAIR(Finish, ReasonsToRefuseReachEveryRankAndTheNextStepRuns, 3) {
  for (int step = 0; step < 6; ++step) {
    pair.begin_step_with_pass();
    if (step % 3 == 2) {
      const at::Tensor own = pair.model.a->weight.grad().clone();
      if (pair.communicator.rank() == 2) parallel.refuse_step("the loss is nan");
      EXPECT_THAT(
          thrown_by<InputError>([&] { parallel.finish(); }),
          AllOf(HasSubstr("rank 2"), HasSubstr("\"net\" of Mlp: step " + std::to_string(step)),
                HasSubstr("the loss is nan")));
      EXPECT_TRUE(torch::equal(pair.model.a->weight.grad(), own));
    } else {
      parallel.finish();
      pair.expect_equal("step " + std::to_string(step));
    }
  }
}

TEST_BY_STEPS(SkipStep, DrainsAndDiscardsWhateverHadLeft, 3, 8) {
  pair.begin_step();
  // Some ranks have computed, others not; also in the very first step.
  if (step % 4 == 0) {
    if (pair.communicator.rank() != 1) pair.model_loss().backward();
    parallel.skip_step();
    for (const at::Tensor& p : pair.model.parameters()) EXPECT_FALSE(p.grad().defined());
  }
  pair.step(parallel);
}

TEST_WITH_PAIR(SkipStep, OnSomeRanksOnlyIsAnErrorOnAll, 3) {
  for (int step = 0; step < 2; ++step) pair.step(parallel);
  pair.begin_step_with_pass();
  EXPECT_THAT(thrown_by([&] {
                pair.communicator.rank() == 1 ? parallel.skip_step() : void(parallel.finish());
              }),
              AllOf(HasSubstr("rank 0: finish()"), HasSubstr("rank 1: skip_step()")));
  pair.step(parallel);
  pair.expect_equal("after the disagreement");
}

TEST_ON(Step, OfASmallModelIsOneCollective, ranks, 2) {
  NotingCommunicator noting(communicator);
  PairedMlp pair(communicator);
  DataParallel parallel(pair.model, noting, {.name = "net"});
  for (int step = 0; step < 2; ++step) pair.step(parallel);
  static_cast<void>(noting.take());
  pair.step(parallel);
  const std::vector<std::string> sent = noting.take();
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_THAT(sent[0], HasSubstr("net step 2: all-reduce bucket 0"));
}

/// Two models whose parameters have the same names.
struct Generator : Mlp {};
struct Discriminator : Mlp {};

TEST_ON(SeveralObjects, SayWhoseParameterIsMeantWithoutANameToo, ranks, 2) {
  Generator generator;
  Discriminator first, second;
  DataParallel g(generator, communicator), d(first, communicator), e(second, communicator);
  const auto differs = [&](DataParallel& parallel, Mlp& model) {
    const torch::NoGradGuard no_grad;
    if (communicator.rank() == 1) model.a->bias[0] += 1;
    return thrown_by<CommError>([&] { parallel.require_same_weights("now"); });
  };
  EXPECT_THAT(differs(g, generator), HasSubstr("DataParallel of Generator: now"));
  EXPECT_THAT(differs(d, first), HasSubstr("DataParallel (2) of Discriminator: now"));
  EXPECT_THAT(differs(e, second), HasSubstr("DataParallel (3) of Discriminator: now"));
  Mlp named, loose;
  DataParallel n(named, communicator, {.name = "net"});
  EXPECT_THAT(differs(n, named), HasSubstr("DataParallel \"net\" of Mlp: now"));
  // What a constructor refuses has the name of the object that is not made.
  if (communicator.rank() == 1) loose.a->bias.set_requires_grad(false);
  EXPECT_THAT(thrown_by<CommError>([&] { DataParallel refused(loose, communicator); }),
              AllOf(HasSubstr("DataParallel (4): model"), HasSubstr("a.bias")));
}

TEST_ON(SeveralObjects, WithoutANameHaveCollectivesOfTheirOwnNames, ranks, 2) {
  NotingCommunicator noting(communicator);
  Mlp one, two;
  DataParallel first(one, noting), second(two, noting);
  static_cast<void>(noting.take());
  const auto names = [&](Mlp& model, DataParallel& parallel) {
    loss_of(model, 1, 2).backward();
    parallel.finish();
    return noting.take().at(0);  // the bucket; then what a first step learns
  };
  EXPECT_THAT(names(one, first), StartsWith("step 0: all-reduce"));
  EXPECT_THAT(names(two, second), StartsWith("DataParallel (2) step 0: all-reduce"));
}

TEST_ON(Warnings, ReachStandardErrorOfAProgramThatSetNoSink, ranks, 2) {
  static std::mutex one_at_a_time;  // ranks may be threads, and share standard error
  PairedMlp pair(communicator, at::kFloat);
  auto parallel = std::make_unique<DataParallel>(pair.model, communicator);
  pair.model_loss().backward();
  const std::lock_guard lock(one_at_a_time);
  testing::internal::CaptureStderr();
  parallel.reset();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(StartsWith("linerate: warning: DataParallel of Mlp: destroyed before finish()"),
                    HasSubstr("step 0")));
}

TEST_ON(Step, ThatRanksCountDifferentlyIsSeenInCheckedMode, ranks, 2) {
  communicator.set_checked(true);
  Mlp generator, discriminator;
  DataParallel g(generator, communicator, {.name = "G"}),
      d(discriminator, communicator, {.name = "D"});
  const auto step = [](Mlp& model, DataParallel& parallel) {
    loss_of(model, 1, 2).backward();
    parallel.finish();
  };
  step(discriminator, d);
  step(generator, g);
  // One rank trains the discriminator twice, the other the generator.
  const bool first = communicator.rank() == 0;
  EXPECT_THAT(thrown_by<CommError>([&] { step(first ? generator : discriminator, first ? g : d); }),
              AllOf(HasSubstr("G step 1"), HasSubstr("D step 1")));
}

TEST_ON(Options, AClusterOfOnesOwnIsHeldToTheRulesOfItsFileOnEveryRank, ranks, 2) {
  Mlp model;
  DataParallelOptions options;
  options.cluster.emplace();
  options.cluster->network = {.bandwidth_bytes_per_s = 1e9,
                              .latency_s = communicator.rank() == 1 ? -1.0 : 1e-5};
  EXPECT_THAT(thrown_by<InputError>([&] { DataParallel(model, communicator, options); }),
              AllOf(HasSubstr("option cluster: /network/latency_s: "), HasSubstr("found -1")));
}

}  // namespace
}  // namespace linerate::torch_adapter
