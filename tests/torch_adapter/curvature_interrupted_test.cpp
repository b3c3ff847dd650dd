// K-FAC shared among ranks, in steps that do not go as they should: skipped, refused, not finite,
// exchanged twice, not preconditioned; and owners whose inverses fail.
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>
#include <functional>
#include <set>

#include "linerate/core/error.hpp"
#include "torch_adapter/curvature_jobs.hpp"
#include "torch_adapter/rank_tests.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

/// kSteps batches, of which a rank takes its part.
const std::vector<Data>& batches() {
  static const std::vector<Data> all = [] {
    std::vector<Data> made;
    for (std::int64_t k = 0; k < kSteps; ++k)
      made.push_back(Data::whole(30 + static_cast<std::uint64_t>(k)));
    return made;
  }();
  return all;
}

/// Batches are made before any rank draws. 0 ranks: a K-FAC that nobody shares.
constexpr int kAlone = 0;
void run_on_batches(int ranks, const std::function<void(Communicator*)>& work) {
  batches();
  if (ranks == kAlone) return work(nullptr);
  comm::run_ranks(ranks, [&](Communicator& c) { work(&c); });
}

/// A training in which a rank takes its parts of batches().
struct Batches : Program<> {
  Batches(Communicator* c, const std::string& strategy, const KfacOptions& options = kfac_options(),
          torch::Dtype dtype = torch::kDouble)
      : Program<>(c, {.strategy = strategy, .options = options}, dtype),
        communicator(c),
        type(dtype) {}

  /// Of a K-FAC alone, or of one rank of several.
  bool is_hit() const { return !communicator || communicator->rank() == 1; }
  Data mine(std::int64_t batch) const {
    const Data& all = batches()[static_cast<std::size_t>(batch)];
    return (communicator ? all.of(*communicator) : all).in(type);
  }
  void backward(std::int64_t batch, double factor = 1) { Program<>::backward(mine(batch), factor); }
  KfacStep step(std::int64_t batch, double factor = 1) {
    return Program<>::step(mine(batch), factor);
  }

  Communicator* communicator;
  torch::Dtype type;
};

std::vector<std::string> strategies_and_dp(const std::string& exchange) {
  std::vector<std::string> all = strategies();
  all.push_back("kfac(dp, factors=2, inverses=4)");
  for (std::string& one : all) one = exchange + one;
  return all;
}

/// Batches in front of all kinds of steps, and in front of those that update factors.
const std::set<std::int64_t> kInterrupted = {0, 2, 4, 5, 8}, kBeforeFactors = {0, 3, 4, 7};

/// Some batches of a run count, the others are taken by `interrupt`; the weights are those of a run
/// without them.
void expect_no_trace(int ranks, const std::function<void(Batches&, std::int64_t)>& interrupt,
                     const std::string& exchange = "ddp+", torch::Dtype type = torch::kDouble,
                     const std::set<std::int64_t>& interrupted = kInterrupted) {
  const double bound = ranks == kAlone ? 0 : type == torch::kDouble ? 1e-12 : 1e-5;
  const auto all = ranks == kAlone ? std::vector<std::string>(1) : strategies_and_dp(exchange);
  for (const std::string& strategy : all)
    run_on_batches(ranks, [&](Communicator* c) {
      const auto weights = [&](bool is_hit) {
        Batches program(c, strategy, kfac_options(), type);
        for (std::int64_t k = 0; k < kSteps; ++k)
          if (!interrupted.contains(k))
            program.step(k);
          else if (is_hit)
            interrupt(program, k);
        return program.weights();
      };
      EXPECT_LE(largest_difference(weights(true), weights(false)), bound) << strategy;
    });
}

class CurvatureInterrupted : public ::testing::TestWithParam<int> {};
/// One rank alone does as several do.
class CurvatureDisturbed : public CurvatureInterrupted {};

TEST_P(CurvatureInterrupted, ASkippedStepLeavesNoTrace) {
  expect_no_trace(GetParam(), [](Batches& program, std::int64_t batch) {
    program.backward(batch);
    program.parallel->skip_step();
  });
}

/// A pass that comes to no end on rank 1, which it says, or whose batch is bad; the others' do.
template <typename Pass>
void expect_refused_without_trace(int ranks, Pass pass) {
  expect_no_trace(ranks, [pass](Batches& program, std::int64_t batch) {
    if (!program.is_hit()) {
      program.backward(batch);
    } else {
      program.optimizer.zero_grad();
      pass(program.net, program.mine(batch));
      program.parallel->refuse_step("a bad batch");
    }
    EXPECT_THROW(program.parallel->finish(), InputError);
  });
}

TEST_P(CurvatureInterrupted, ARefusedStepLeavesNoTrace) {
  expect_refused_without_trace(GetParam(),
                               [](Net& net, const Data& mine) { loss_of(net, mine).backward(); });
}

TEST_P(CurvatureInterrupted, AnExceptionInOneRanksForwardPassLeavesNoTrace) {
  expect_refused_without_trace(GetParam(), [](Net& net, const Data& mine) {
    net->conv(mine.inputs);  // its factor may be on its way
    EXPECT_THROW(net->hidden(mine.inputs), std::exception);
  });
}

TEST_P(CurvatureInterrupted, AnExceptionInOneRanksBackwardPassLeavesNoTrace) {
  expect_refused_without_trace(GetParam(), [](Net& net, const Data& mine) {
    const torch::Tensor seen = torch::tanh(net->conv(mine.inputs));
    seen.register_hook([](const torch::Tensor&) { throw std::runtime_error("in backward"); });
    const torch::Tensor output = net->head(torch::tanh(net->hidden(seen.flatten(1))));
    EXPECT_THROW(loss_of_output(output, mine.targets).backward(), std::exception);
  });
}

/// A batch that is thrown away with zero_grad(), on all ranks or on one, and the next in its place.
TEST_P(CurvatureDisturbed, ABatchWhoseGradientsAreThrownAwayLeavesNoTrace) {
  for (const bool on_all : {true, false})
    expect_no_trace(GetParam(), [on_all](Batches& program, std::int64_t batch) {
      if (on_all || program.is_hit()) program.backward(batch);
    });
}

/// Infinities and NaN reach all ranks with the gradients, and those say it alike.
TEST_P(CurvatureDisturbed, ABatchThatIsNotFiniteOnOneRankIsSkippedByAll) {
  for (const double factor : {kNotANumber, HUGE_VAL})
    expect_no_trace(GetParam(), [factor](Batches& program, std::int64_t batch) {
      EXPECT_TRUE(program.step(batch, program.is_hit() ? factor : 1).skipped);
      for (const torch::Tensor& p : program.net->parameters()) EXPECT_FALSE(p.grad().defined());
    });
}

/// A weight is multiplied by in another way than its layer does: what is thrown about one batch is
/// said of it alone, and the next takes its place.
TEST_P(CurvatureDisturbed, ABatchThatIsNotUnderstoodIsRefusedByAll) {
  const auto refused = [](Batches& program, std::int64_t batch) {
    program.optimizer.zero_grad();
    torch::Tensor loss = loss_of(program.net, program.mine(batch));
    const torch::Tensor& weight = program.net->head->weight;
    if (program.is_hit()) loss = loss + torch::matmul(weight, torch::ones_like(weight).t()).sum();
    loss.backward();
    EXPECT_THROW(program.parallel ? static_cast<void>(program.parallel->finish())
                                  : static_cast<void>(program.pre->step()),
                 UsageError);
  };
  expect_no_trace(GetParam(), refused, "ddp+", torch::kDouble, kBeforeFactors);
}

TEST_P(CurvatureInterrupted, ACompressedStepThatIsNotFiniteIsSkippedByAll) {
  expect_no_trace(
      GetParam(),
      [](Batches& program, std::int64_t batch) {
        program.backward(batch, program.is_hit() ? kNotANumber : 1);
        EXPECT_TRUE(program.parallel->step(*program.pre, program.optimizer).infinite);
      },
      "ddp+topk(density=0.1, dense_below=0)+", torch::kFloat);
}

INSTANTIATE_TEST_SUITE_P(Ranks, CurvatureInterrupted, ::testing::Values(2, 4));
INSTANTIATE_TEST_SUITE_P(Ranks, CurvatureDisturbed, ::testing::Values(kAlone, 2, 4));

/// `passes(program, interrupted)` and a step leave the same state with interruptions and without.
template <typename Model = Net, typename Passes>
void expect_same_state(Passes passes, const KfacOptions& options = kfac_options()) {
  const auto state = [&](bool interrupted) {
    Program<Model> program(nullptr, {.options = options});
    passes(program, interrupted);
    program.pre->step();
    return to_tensors(program.state());
  };
  expect_same_tensors(state(true), state(false), "interrupted");
}

/// Gradients by torch::autograd::grad stand in no .grad: nobody has thrown them away.
TEST(CurvatureAlone, GradientsThatNobodyAccumulatedAddUp) {
  expect_same_state([](Program<>& program, bool functional) {
    const auto parameters = program.net->parameters();
    for (std::size_t k = 0; k < 2; ++k) {
      const torch::Tensor loss = loss_of(program.net, batches()[k]);
      if (!functional) {
        loss.backward();
        continue;
      }
      const auto gradients = torch::autograd::grad({loss}, parameters);
      for (std::size_t p = 0; k == 1 && p < parameters.size(); ++p)
        parameters[p].mutable_grad() = gradients[p];
    }
  });
}

/// A rank's part may be empty: its passes count nothing, whatever the layers make of positions.
TEST(CurvatureAlone, ABatchOfNoSamplesCountsNothing) {
  for (const auto positions : {SharedPositions::expand, SharedPositions::reduce}) {
    KfacOptions options = kfac_options();
    options.shared_positions = positions;
    torch::manual_seed(6);
    BranchBatch some = random_batch(5), none = random_batch(0);
    some.uses = none.uses = {1, 1};
    expect_same_state<BranchNet>(
        [&](auto& program, bool interrupted) {
          loss_of(program.net, some).backward();
          if (interrupted) loss_of(program.net, none).backward();
        },
        options);
  }
}

/// A second backward pass that nobody announced, in one step: what left under the first is sent
/// once more.
class ExchangedTwice : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(ExchangedTwice, HasTheCurvatureOfBothBackwardPasses) {
  const auto weights = [](Communicator* c, const std::string& strategy) {
    Batches program(c, strategy);
    for (std::int64_t k = 0; k < kSteps; ++k) {
      program.backward(k);
      if (k == GetParam()) loss_of(program.net, program.mine(0)).backward();
      if (c) {
        EXPECT_EQ(program.parallel->finish().rounds, k == GetParam() ? 2 : 1) << k;
      }
      program.update();
    }
    return program.weights();
  };
  const std::vector<torch::Tensor> expected = weights(nullptr, "");
  for (const std::string& kfac : strategies())
    run_on_batches(2, [&](Communicator* c) {
      EXPECT_LT(largest_difference(weights(c, "ddp+" + kfac), expected), 1e-9) << kfac;
    });
}

INSTANTIATE_TEST_SUITE_P(KindsOfSteps, ExchangedTwice, ::testing::Values(4, 6, 7));

TEST(NotPreconditioned, IsSaidOnceOfStepsThatAreNot) {
  for (const bool is_preconditioned : {false, true}) {
    const Warnings warnings;
    run_on_batches(2, [&](Communicator* c) {
      Batches program(c, "ddp+kfac(d)");
      for (std::int64_t k = 0; k < 4; ++k) {
        program.backward(k);
        if (!is_preconditioned) {
          program.parallel->finish();
          program.optimizer.step();
        } else if (k == 1) {
          program.parallel->skip_step();
        } else if (k == 2) {
          program.parallel->step(*program.pre, program.optimizer);
        } else {
          program.parallel->finish();
          program.update();
        }
      }
    });
    EXPECT_THAT(warnings.with("without the preconditioner's step()"),
                SizeIs(is_preconditioned ? 0 : 2));  // ranks
  }
}

TEST(APreconditioner, ThatNobodySharesAnyMoreFollowsItsOwnIntervals) {
  run_on_batches(2, [](Communicator* c) {
    // 10 and 100, unless the strategy says others.
    Batches program(c, "kfac(d, factors=3)", bare_options());
    for (std::int64_t k = 0; k < 5; ++k) {
      const KfacStep done = program.step(k);
      EXPECT_EQ(done.factors, k == 0) << k;
      EXPECT_EQ(done.inverses, k == 0) << k;
      if (k == 0) program.parallel.reset();
    }
  });
}

/// No damping makes an inverse: of what rank 1 owns in these steps.
KfacOptions failing(int rank, std::function<bool(std::int64_t)> fails) {
  KfacOptions options = kfac_options();
  options.factor_interval = options.inverse_interval = 1;
  options.damping = [rank, fails = std::move(fails)](std::int64_t s) {
    return rank == 1 && fails(s) ? kNotANumber : 0.1;
  };
  options.max_failures = 2;
  return options;
}

/// What one owner cannot invert ends the run everywhere, by its name.
TEST(AnOwner, WhoseInversesKeepFailingEndsTheRunOfAllRanks) {
  for (const char* kfac : {"kfac(d)", "kfac(mpd)", "kfac(mem)", "kfac(hybrid, fraction=0.5)",
                           "kfac(spd, placement=lpt)", "kfac(dp)"}) {
    std::vector<std::string> messages(2);
    std::vector<std::int64_t> steps(2);
    run_on_batches(2, [&](Communicator* c) {
      const auto r = to_index(c->rank());
      Batches program(c, std::string("ddp+") + kfac,
                      failing(c->rank(), [](std::int64_t s) { return s >= 3; }));
      messages[r] = thrown_by<Error>([&] {
        for (; steps[r] < kSteps; ++steps[r]) program.step(steps[r]);
      });
    });
    EXPECT_THAT(messages[0], AllOf(HasSubstr("rank 1"), HasSubstr("layer \""), HasSubstr("factor "),
                                   HasSubstr(" x "), HasSubstr("2 times in a row")))
        << kfac;
    EXPECT_EQ(messages[1], messages[0]) << kfac;
    EXPECT_THAT(steps, ::testing::ElementsAre(5, 5)) << kfac;  // failed in 3 and 4
  }
}

TEST(AnOwner, WhoseInverseFailsOnceGoesOn) {
  for (const char* kfac : {"kfac(mpd)", "kfac(mem)", "kfac(spd, placement=lpt)", "kfac(dp)"})
    run_on_batches(2, [&](Communicator* c) {
      Batches program(c, std::string("ddp+") + kfac,
                      failing(c->rank(), [](std::int64_t s) { return s % 2 == 1; }));
      for (std::int64_t k = 0; k < kSteps; ++k) program.step(k);
      program.parallel->require_same_weights(kfac);
    });
}

// ---- What K-FAC's state holds where ranks share it: a run that is resumed between two updates
// goes on as the uninterrupted one, also on other ranks.

class CurvatureState : public ::testing::TestWithParam<int> {};

TEST_P(CurvatureState, ResumesBetweenUpdatesAsIfNothingHadHappened) {
  const Data data = Data::whole(), other = Data::whole(9);
  std::vector<std::string> all = strategies_and_dp("ddp+");
  all.push_back("ddp+kfac(dp, placement=round-robin, factors=2, inverses=4)");
  all.push_back("ddp+kfac(mem, placement=round-robin, factors=2, inverses=4)");
  for (const std::string& strategy : all)
    comm::run_ranks(GetParam(), [&](Communicator& c) {
      const CurvatureJob job{.strategy = strategy, .in_one_call = true};
      const auto whole = resumed(c, job, job, data.of(c), kSteps);
      // Before an inverse, behind it, between, behind a factor; behind a step that was skipped,
      // too.
      for (const std::int64_t stop : {4, 5, 6, 7})
        for (const Data& skipped : {Data(), other.of(c)}) {
          const auto found = resumed(c, job, job, data.of(c), stop, skipped);
          EXPECT_LT(largest_difference(found, whole), 1e-12) << strategy << stop;
        }
    });
}

/// Each tensor of a state has a name of its own: files by name keep all of them. Files of a
/// linerate that had a rule for the damping are read without it.
TEST(CurvatureStateFile, NamesItsTensorsApart) {
  KfacState state;
  state.step = 3;
  state.layers.push_back({"layer", {.updates = 1, .average = torch::ones({3})}, {}});
  auto tensors = to_tensors(state);
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors) names.insert(name);
  EXPECT_EQ(names.size(), tensors.size());
  const std::size_t own = tensors.size();
  tensors.emplace_back("lm damping", torch::full({1}, 2.0, torch::kDouble));
  tensors.emplace_back("lm update 0", torch::ones({2}));
  const KfacState read = kfac_state_of(tensors, "a file");
  EXPECT_EQ(read.step, 3);
  ASSERT_EQ(read.layers.size(), 1U);
  EXPECT_TRUE(torch::equal(read.layers[0].a.average, torch::ones({3})));
  EXPECT_EQ(to_tensors(read).size(), own);
}

INSTANTIATE_TEST_SUITE_P(Ranks, CurvatureState, ::testing::Values(1, 2, 4));

/// Of two ranks, by one and by four, in other ways to share.
TEST(CurvatureStateOfOtherRanks, GoesOnInAnyOther) {
  const Data data = Data::whole();
  constexpr std::int64_t kStop = 7;
  std::vector<torch::Tensor> expected, halfway, momenta;
  KfacState state;
  comm::run_ranks(2, [&](Communicator& c) {
    Program<> program(&c, {.strategy = "kfac(mem, factors=2, inverses=4)", .in_one_call = true});
    for (std::int64_t step = 0; step < kStop; ++step) program.step(data.of(c));
    const KfacState saved = program.state();
    const auto weights = program.weights();
    if (c.rank() == 0) state = saved, halfway = weights, momenta = program.momenta();
    for (std::int64_t step = kStop; step < kSteps; ++step) program.step(data.of(c));
    if (c.rank() == 0) expected = weights_of(*program.net);
  });
  for (const int ranks : {1, 4})
    for (const std::string& kfac : strategies())
      expect_weights(kfac, ranks, expected, [&](Communicator& c) {
        Program<> program(&c, {.strategy = "ddp+" + kfac, .in_one_call = true});
        for (std::size_t i = 0; i < halfway.size(); ++i) {
          const torch::NoGradGuard no_grad;
          const torch::Tensor p = program.net->parameters()[i];
          p.copy_(halfway[i]);
          program.momentum_of(p).momentum_buffer(momenta[i].clone());
        }
        program.parallel->load_curvature_state(state);
        for (std::int64_t step = kStop; step < kSteps; ++step) program.step(data.of(c));
        return program.weights();
      });
}

TEST_ON(CurvatureStateOfOtherRanks, IsRefusedInTheMiddleOfAStepAndWithoutAPreconditioner,
        comm::run_ranks, 2) {
  const auto complaint = [](DataParallel& parallel) {
    return thrown_by([&] { static_cast<void>(parallel.curvature_state()); });
  };
  Net net;
  DataParallel plain(*net, communicator, {.name = "plain"});
  EXPECT_THAT(complaint(plain), HasSubstr("nothing is preconditioned"));
  KFAC pre(*net, kfac_options());
  DataParallel parallel(*net, communicator,
                        {.strategy = "kfac(d)", .preconditioner = &pre, .name = "kfac"});
  parallel.set_batch(3);
  EXPECT_THAT(complaint(parallel), HasSubstr("in the middle of step 0"));
  parallel.skip_step();
  EXPECT_THAT(complaint(parallel), ::testing::IsEmpty());
}

}  // namespace
}  // namespace linerate::torch_adapter
