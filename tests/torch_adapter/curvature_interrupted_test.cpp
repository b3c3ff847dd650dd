// K-FAC shared among ranks, in steps that do not go as they should: skipped, refused, not finite,
// exchanged twice, not preconditioned; and owners whose inverses fail.
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"
#include "linerate/doc/plan_index.hpp"
#include "linerate/exec/recorder.hpp"
#include "linerate/kfac/kfac.hpp"
#include "linerate/kfac/kfac_report.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "torch_adapter/curvature_jobs.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using doc::TaskKind;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Names = std::multiset<std::string>;

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

/// Batches are made before any rank draws.
void run_on_batches(int ranks, const std::function<void(Communicator&)>& work) {
  batches();
  comm::run_ranks(ranks, work);
}

/// A training in which a rank takes its parts of batches().
struct Batches : Program<> {
  Batches(Communicator* c, const std::string& strategy, const KfacOptions& options = kfac_options(),
          torch::Dtype dtype = torch::kDouble)
      : Program<>(c, {.strategy = strategy, .options = options}, dtype),
        communicator(c),
        type(dtype) {}

  Data mine(std::int64_t batch) const {
    const Data& all = batches()[static_cast<std::size_t>(batch)];
    return (communicator ? all.of(*communicator) : all).in(type);
  }
  void backward(std::int64_t batch, double factor = 1) { Program<>::backward(mine(batch), factor); }
  KfacStep step(std::int64_t batch, double factor = 1) {
    return Program<>::step(mine(batch), factor);
  }
  int rank() const { return communicator->rank(); }

  Communicator* communicator;
  torch::Dtype type;
};

/// Multiplies by a weight in another way than its layer does.
torch::Tensor not_understood(Batches& program) {
  return torch::matmul(program.net->head->weight, torch::ones({8, 1}, torch::kDouble)).sum();
}

std::vector<std::string> strategies_and_dp() {
  std::vector<std::string> all = strategies();
  all.push_back("kfac(dp, factors=2, inverses=4)");
  return all;
}

/// Some batches of a run count, the others are taken by `interrupt`; the weights are those of a run
/// without them.
void expect_no_trace(int ranks, const std::function<void(Batches&, std::int64_t)>& interrupt,
                     const std::string& exchange = "ddp+", torch::Dtype type = torch::kDouble) {
  const std::vector<std::int64_t> interrupted = {0, 3, 4, 7};  // all kinds of steps
  for (const std::string& kfac : strategies_and_dp())
    run_on_batches(ranks, [&](Communicator& c) {
      const auto weights = [&](bool is_hit) {
        Batches program(&c, exchange + kfac, kfac_options(), type);
        for (std::int64_t k = 0; k < kSteps; ++k)
          if (std::find(interrupted.begin(), interrupted.end(), k) == interrupted.end())
            program.step(k);
          else if (is_hit)
            interrupt(program, k);
        return weights_of(*program.net);
      };
      EXPECT_LT(largest_difference(weights(true), weights(false)),
                type == torch::kDouble ? 1e-12 : 1e-5)
          << exchange << kfac;
    });
}

class CurvatureInterrupted : public ::testing::TestWithParam<int> {};

TEST_P(CurvatureInterrupted, ASkippedStepLeavesNoTrace) {
  expect_no_trace(GetParam(), [](Batches& program, std::int64_t batch) {
    program.backward(batch);
    program.parallel->skip_step();
  });
}

TEST_P(CurvatureInterrupted, ARefusedStepLeavesNoTrace) {
  expect_no_trace(GetParam(), [](Batches& program, std::int64_t batch) {
    program.backward(batch);
    if (program.rank() == 1) program.parallel->refuse_step("a bad batch");
    EXPECT_THROW(program.parallel->finish(), InputError);
  });
}

/// Passes that come to no end on rank 1, which it says; the others' do.
template <typename Pass>
void expect_no_trace_of(int ranks, Pass throwing) {
  expect_no_trace(ranks, [throwing](Batches& program, std::int64_t batch) {
    if (program.rank() != 1) {
      program.backward(batch);
    } else {
      program.optimizer.zero_grad();
      EXPECT_THROW(throwing(*program.net, program.mine(batch)), std::exception);
      program.parallel->refuse_step("a bad batch");
    }
    EXPECT_THROW(program.parallel->finish(), InputError);
  });
}

TEST_P(CurvatureInterrupted, AnExceptionInOneRanksForwardPassLeavesNoTrace) {
  expect_no_trace_of(GetParam(), [](auto& net, const Data& mine) {
    net.conv(mine.inputs);  // its factor may be on its way
    net.hidden(mine.inputs);
  });
}

TEST_P(CurvatureInterrupted, AnExceptionInOneRanksBackwardPassLeavesNoTrace) {
  expect_no_trace_of(GetParam(), [](auto& net, const Data& mine) {
    const torch::Tensor seen = torch::tanh(net.conv(mine.inputs));
    seen.register_hook([](const torch::Tensor&) { throw std::runtime_error("in backward"); });
    loss_of_output(net.head(torch::tanh(net.hidden(seen.flatten(1)))), mine).backward();
  });
}

/// A batch that is thrown away with zero_grad(), on all ranks or on one, and the next in its place.
TEST_P(CurvatureInterrupted, ABatchWhoseGradientsAreThrownAwayLeavesNoTrace) {
  for (const bool on_all : {true, false})
    for (const std::string& kfac : strategies_and_dp())
      run_on_batches(GetParam(), [&](Communicator& c) {
        Batches plain(&c, "ddp+" + kfac), hit(&c, "ddp+" + kfac);
        for (std::int64_t k = 0; k < kSteps; ++k) {
          plain.step(k);
          if ((k == 0 || k % 3 == 1) && (on_all || c.rank() == 1)) hit.backward((k + 5) % kSteps);
          hit.step(k);
        }
        hit.parallel->require_same_weights(kfac);
        EXPECT_LT(largest_difference(weights_of(*hit.net), weights_of(*plain.net)), 1e-12)
            << kfac << on_all;
      });
}

/// Infinities and NaN reach all ranks with the gradients, and those say it alike.
TEST_P(CurvatureInterrupted, ABatchThatIsNotFiniteOnOneRankIsSkippedByAll) {
  for (const double factor : {kNotANumber, std::numeric_limits<double>::infinity()})
    expect_no_trace(GetParam(), [factor](Batches& program, std::int64_t batch) {
      program.backward(batch, program.rank() == 1 ? factor : 1);
      program.parallel->finish();
      const KfacStep done = program.update();
      EXPECT_TRUE(done.skipped);
      for (const torch::Tensor& p : program.net->parameters()) EXPECT_FALSE(p.grad().defined());
    });
}

TEST_P(CurvatureInterrupted, ACompressedStepThatIsNotFiniteIsSkippedByAll) {
  expect_no_trace(
      GetParam(),
      [](Batches& program, std::int64_t batch) {
        program.backward(batch, program.rank() == 1 ? kNotANumber : 1);
        EXPECT_TRUE(program.parallel->step(*program.pre, program.optimizer).infinite);
      },
      "ddp+topk(density=0.1, dense_below=0)+", torch::kFloat);
}

INSTANTIATE_TEST_SUITE_P(Ranks, CurvatureInterrupted, ::testing::Values(2, 4));

/// One rank alone does as several do: `step(program, batch, interrupted)` leaves the same weights
/// with interruptions and without.
template <typename Step>
void expect_no_trace_alone(Step step) {
  const auto weights = [&](bool interrupted) {
    Batches program(nullptr, "");
    for (std::int64_t k = 0; k < kSteps; ++k) step(program, k, interrupted);
    return weights_of(*program.net);
  };
  EXPECT_EQ(largest_difference(weights(true), weights(false)), 0);
}

TEST(CurvatureAlone, ABatchThatIsNotFiniteLeavesNoTrace) {
  expect_no_trace_alone([](Batches& program, std::int64_t k, bool interrupted) {
    const bool bad = k == 0 || k == 3 || k == 4 || k == 7;
    if (bad && !interrupted) return;
    EXPECT_EQ(program.step(k, bad ? kNotANumber : 1).skipped, bad);
  });
}

TEST(CurvatureAlone, ABatchWhoseGradientsAreThrownAwayLeavesNoTrace) {
  expect_no_trace_alone([](Batches& program, std::int64_t k, bool interrupted) {
    if (interrupted) loss_of(program.net, program.mine(kSteps - 1 - k)).backward();
    program.step(k);
    program.optimizer.zero_grad();
  });
}

/// What step() throws about one batch is said of it alone, and the next takes its place.
TEST(CurvatureAlone, ABatchThatIsRefusedLeavesNoTrace) {
  expect_no_trace_alone([](Batches& program, std::int64_t k, bool interrupted) {
    if (interrupted && (k == 0 || k == 4)) {
      program.optimizer.zero_grad();
      (loss_of(program.net, program.mine(k)) + not_understood(program)).backward();
      EXPECT_THROW(program.pre->step(), UsageError);
    }
    program.step(k);
  });
}

/// `passes(program, interrupted)` and a step leave the same state with interruptions and without.
template <typename Model = Net, typename Passes>
void expect_same_state(Passes passes, const KfacOptions& options = kfac_options()) {
  const auto state = [&](bool interrupted) {
    Program<Model> program(nullptr, {.options = options});
    passes(program, interrupted);
    program.pre->step();
    return to_tensors(program.pre->save());
  };
  const auto found = state(true), expected = state(false);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_TRUE(torch::equal(found[i].second, expected[i].second)) << found[i].first;
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

/// A kernel larger than its input.
TEST(CurvatureAlone, AnOperatorThatThrowsLeavesNoTrace) {
  expect_same_state([](Program<>& program, bool interrupted) {
    if (interrupted) {
      EXPECT_THROW(program.net->conv(torch::ones({kSamples, 1, 2, 8}, torch::kDouble)),
                   std::exception);
    }
    loss_of(program.net, batches()[0]).backward();
  });
}

/// A rank's part may be empty: its passes count nothing, whatever the layers make of positions.
TEST(CurvatureAlone, ABatchOfNoSamplesCountsNothing) {
  for (const auto positions : {SharedPositions::expand, SharedPositions::reduce}) {
    KfacOptions options = kfac_options();
    options.shared_positions = positions;
    const auto passes_of = [](const Data& data) {
      return [data](auto& program, bool interrupted) {
        loss_of(program.net, data).backward();
        const Data none{data.inputs.slice(0, 0, 0), data.targets.slice(0, 0, 0)};
        if (interrupted) loss_of(program.net, none).backward();
      };
    };
    expect_same_state<Net>(passes_of(Data::whole()), options);
    expect_same_state<TokenNet>(passes_of(Data::of_tokens()), options);
  }
}

/// What is not understood of one step does not refuse those that follow.
TEST(CurvatureUnknown, RefusesOneStepOnAllRanks) {
  run_on_batches(2, [](Communicator& c) {
    Batches plain(&c, "ddp+kfac(spd)"), hit(&c, "ddp+kfac(spd)");
    for (const std::int64_t k : {0, 1, 3, 4}) plain.step(k);
    for (const std::int64_t k : {0, 1, 2, 3, 4}) {
      if (k != 2) {
        hit.step(k);
        continue;
      }
      hit.optimizer.zero_grad();
      torch::Tensor loss = loss_of(hit.net, hit.mine(k));
      if (c.rank() == 1) loss = loss + not_understood(hit);
      loss.backward();
      EXPECT_THROW(hit.parallel->finish(), UsageError);
    }
    EXPECT_LT(largest_difference(weights_of(*hit.net), weights_of(*plain.net)), 1e-12);
  });
}

/// A second backward pass that nobody announced, in one step: what left under the first is sent
/// once more.
class ExchangedTwice : public ::testing::TestWithParam<std::int64_t> {
 protected:
  static std::vector<torch::Tensor> weights(Communicator* c, const std::string& strategy) {
    Batches program(c, strategy);
    for (std::int64_t k = 0; k < kSteps; ++k) {
      program.backward(k);
      if (k == GetParam()) loss_of(program.net, program.mine(0)).backward();
      if (c) {
        EXPECT_EQ(program.parallel->finish().rounds, k == GetParam() ? 2 : 1) << k;
      }
      program.update();
    }
    return weights_of(*program.net);
  }
};

TEST_P(ExchangedTwice, HasTheCurvatureOfBothBackwardPasses) {
  const std::vector<torch::Tensor> expected = weights(nullptr, "");
  for (const std::string& kfac : strategies())
    run_on_batches(2, [&](Communicator& c) {
      EXPECT_LT(largest_difference(weights(&c, "ddp+" + kfac), expected), 1e-9) << kfac;
    });
}

INSTANTIATE_TEST_SUITE_P(KindsOfSteps, ExchangedTwice, ::testing::Values(4, 6, 7));

TEST(NotPreconditioned, IsSaidOnce) {
  const Warnings warnings;
  run_on_batches(2, [](Communicator& c) {
    Batches program(&c, "ddp+kfac(d)");
    for (std::int64_t k = 0; k < 4; ++k) {
      program.backward(k);
      program.parallel->finish();
      program.optimizer.step();
    }
  });
  EXPECT_THAT(warnings.with("without the preconditioner's step()"), SizeIs(2));  // ranks
}

TEST(NotPreconditioned, IsNotSaidOfStepsThatAre) {
  const Warnings warnings;
  run_on_batches(2, [](Communicator& c) {
    Batches program(&c, "ddp+kfac(d)");
    program.step(0);
    program.backward(1);
    program.parallel->skip_step();
    program.backward(2);
    program.parallel->step(*program.pre, program.optimizer);
    program.step(3);
  });
  EXPECT_THAT(warnings.with("without the preconditioner's step()"), IsEmpty());
}

TEST(APreconditioner, ThatNobodySharesAnyMoreFollowsItsOwnIntervals) {
  run_on_batches(2, [](Communicator& c) {
    KfacOptions options = kfac_options();
    options.factor_interval.reset();  // 10 and 100, unless the strategy says others
    options.inverse_interval.reset();
    Batches program(&c, "kfac(d, factors=3)", options);
    std::vector<bool> factors, inverses;
    for (std::int64_t k = 0; k < 5; ++k) {
      const KfacStep done = program.step(k);
      factors.push_back(done.factors);
      inverses.push_back(done.inverses);
      if (k == 0) program.parallel.reset();
    }
    EXPECT_THAT(factors, ::testing::ElementsAre(true, false, false, false, false));
    EXPECT_THAT(inverses, ::testing::ElementsAre(true, false, false, false, false));
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
    run_on_batches(2, [&](Communicator& c) {
      const auto r = static_cast<std::size_t>(c.rank());
      Batches program(&c, std::string("ddp+") + kfac,
                      failing(c.rank(), [](std::int64_t s) { return s >= 3; }));
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
    run_on_batches(2, [&](Communicator& c) {
      Batches program(&c, std::string("ddp+") + kfac,
                      failing(c.rank(), [](std::int64_t s) { return s % 2 == 1; }));
      for (std::int64_t k = 0; k < kSteps; ++k) program.step(k);
      program.parallel->require_same_weights(kfac);
    });
}

// ---- What K-FAC's state holds where ranks share it: a run that is resumed between two updates
// goes on as the uninterrupted one, also on other ranks.

struct Result {
  std::vector<torch::Tensor> weights;
  KfacState state;
};

/// Steps [0, kSteps), by other objects from `stop` on; in front of it a step with `skipped`.
Result run(Communicator& c, const std::string& strategy, const Data& mine, std::int64_t stop,
           const Data& skipped = {}) {
  const CurvatureJob job{.strategy = strategy, .in_one_call = true};
  Program<> program(&c, job);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    if (step == stop) {
      if (skipped.inputs.defined()) {
        program.backward(skipped);
        program.parallel->skip_step();
      }
      program.resume(c, job);
    }
    program.step(mine);
  }
  return {weights_of(*program.net), program.parallel->curvature_state()};
}

class CurvatureState : public ::testing::TestWithParam<int> {};

TEST_P(CurvatureState, ResumesBetweenUpdatesAsIfNothingHadHappened) {
  const Data data = Data::whole(), other = Data::whole(9);
  std::vector<std::string> all = strategies();
  all.push_back("kfac(dp, placement=round-robin, factors=2, inverses=4)");
  all.push_back("kfac(mem, placement=round-robin, factors=2, inverses=4)");
  for (const std::string& kfac : all)
    comm::run_ranks(GetParam(), [&](Communicator& c) {
      const Data mine = data.of(c);
      const Result whole = run(c, "ddp+" + kfac, mine, kSteps);
      // Before an inverse, behind it, between, behind a factor; behind a step that was skipped,
      // too.
      for (const std::int64_t stop : {4, 5, 6, 7})
        for (const Data& skipped : {Data(), other.of(c)}) {
          const Result resumed = run(c, "ddp+" + kfac, mine, stop, skipped);
          EXPECT_LT(largest_difference(resumed.weights, whole.weights), 1e-12) << kfac << stop;
        }
    });
}

/// Owners hold what no other rank does; the state is that of all of them.
TEST_P(CurvatureState, IsTheSameOnEveryRank) {
  const Data data = Data::whole();
  for (const std::string kfac :
       {"kfac(mem, factors=2, inverses=4)", "kfac(dp, factors=2, inverses=4)",
        "kfac(hybrid, fraction=0.5, factors=2, inverses=4)"}) {
    std::vector<KfacState> states(static_cast<std::size_t>(GetParam()));
    comm::run_ranks(GetParam(), [&](Communicator& c) {
      states[static_cast<std::size_t>(c.rank())] = run(c, "ddp+" + kfac, data.of(c), kSteps).state;
    });
    for (const KfacState& state : states) {
      EXPECT_EQ(state.step, kSteps);
      const auto mine = to_tensors(state), first = to_tensors(states[0]);
      ASSERT_EQ(mine.size(), 2u + 3 * 2 * 2) << kfac;  // step, rate; of each factor two
      ASSERT_EQ(mine.size(), first.size());
      for (std::size_t i = 0; i < mine.size(); ++i) {
        EXPECT_EQ(mine[i].first, first[i].first);
        EXPECT_TRUE(torch::equal(mine[i].second, first[i].second)) << kfac << mine[i].first;
      }
    }
  }
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
  const auto momentum_of = [](Program<> & program, const torch::Tensor& p) -> auto& {
    auto& state = program.optimizer.state()[p.unsafeGetTensorImpl()];
    if (!state) state = std::make_unique<torch::optim::SGDParamState>();
    return static_cast<torch::optim::SGDParamState&>(*state);
  };
  std::vector<torch::Tensor> expected, halfway, momenta;
  KfacState state;
  for (const bool whole : {true, false})
    comm::run_ranks(2, [&](Communicator& c) {
      Program<> program(&c, {.strategy = "kfac(mem, factors=2, inverses=4)", .in_one_call = true});
      for (std::int64_t step = 0; step < (whole ? kSteps : kStop); ++step) program.step(data.of(c));
      const KfacState saved = program.parallel->curvature_state();
      if (c.rank() != 0) return;
      (whole ? expected : halfway) = weights_of(*program.net);
      if (whole) return;
      state = saved;
      for (const auto& p : program.net->parameters())
        momenta.push_back(momentum_of(program, p).momentum_buffer().clone());
    });
  for (const int ranks : {1, 4})
    for (const std::string& kfac : strategies())
      comm::run_ranks(ranks, [&](Communicator& c) {
        Program<> program(&c, {.strategy = "ddp+" + kfac, .in_one_call = true});
        for (std::size_t i = 0; i < halfway.size(); ++i) {
          const torch::NoGradGuard no_grad;
          const torch::Tensor p = program.net->parameters()[i];
          p.copy_(halfway[i]);
          momentum_of(program, p).momentum_buffer(momenta[i].clone());
        }
        program.parallel->load_curvature_state(state);
        for (std::int64_t step = kStop; step < kSteps; ++step) program.step(data.of(c));
        EXPECT_LT(largest_difference(weights_of(*program.net), expected), 1e-9) << kfac << c.size();
      });
}

TEST(CurvatureStateOfOtherRanks, IsRefusedInTheMiddleOfAStepAndWithoutAPreconditioner) {
  comm::run_ranks(2, [](Communicator& c) {
    const auto complaint = [](DataParallel& parallel) {
      return thrown_by([&] { static_cast<void>(parallel.curvature_state()); });
    };
    Net net;
    DataParallel plain(*net, c, {.name = "plain"});
    EXPECT_THAT(complaint(plain), HasSubstr("nothing is preconditioned"));
    KFAC pre(*net, kfac_options());
    DataParallel parallel(*net, c, {.strategy = "kfac(d)", .preconditioner = &pre, .name = "kfac"});
    parallel.set_batch(3);
    EXPECT_THAT(complaint(parallel), HasSubstr("in the middle of step 0"));
    parallel.skip_step();
    EXPECT_THAT(complaint(parallel), ::testing::IsEmpty());
  });
}

// Recorded steps with K-FAC: what the Plan's curvature tasks took.

constexpr int kRecordedSteps = 6;
const std::set kKinds{TaskKind::factor, TaskKind::inverse, TaskKind::precondition};

std::map<int, Names> recorded(const doc::Timeline& timeline) {
  std::map<int, Names> steps;
  for (const doc::Event& e : timeline.events) {
    EXPECT_LT(e.start_ns, e.end_ns);
    if (kKinds.contains(e.kind))
      steps[e.step].insert(timeline.names[static_cast<std::size_t>(e.name)]);
  }
  return steps;
}

/// Of the tasks that a rank has.
Names planned(const doc::Plan& plan, const std::string& variant, int rank) {
  const auto at = std::find_if(plan.variants.begin(), plan.variants.end(),
                               [&](const doc::TaskGraph& g) { return g.name == variant; });
  const doc::TaskGraph& graph = *at;
  const doc::VariantIndex index(plan, graph, rank);
  Names names;
  for (std::size_t i = 0; i < graph.tasks.size(); ++i)
    if (index.has[i] && kKinds.contains(graph.tasks[i].kind))
      names.insert(doc::event_name_of(plan, graph, graph.tasks[i]));
  return names;
}

TEST(CurvatureRecord, HasEveryCurvatureTaskThatThePlanHas) {
  comm::run_ranks(2, [](comm::Communicator& communicator) {
    torch::nn::Sequential net(torch::nn::Linear(5, 7), torch::nn::Tanh(), torch::nn::Linear(7, 3));
    KFAC pre(*net, {.loss_average = LossAverage{}, .learning_rate = [](auto) { return 0.01; }});
    exec::Recorder recorder(communicator, exec::agree_origin(communicator), "trained");
    DataParallel parallel(*net, communicator,
                          {.strategy = "ddp+kfac(mpd, factors=2, inverses=4)",
                           .preconditioner = &pre,
                           .recorder = &recorder});
    torch::optim::SGD optimizer(net->parameters(), 0.01);
    std::vector<StepReport> reports;
    for (int step = 0; step < kRecordedSteps; ++step) {
      recorder.begin_step(step);
      net->forward(torch::ones({4, 5})).square().sum().backward();
      reports.push_back(parallel.step(pre, optimizer));
    }
    const auto steps = recorded(recorder.timeline());
    for (int step = 0; step < kRecordedSteps; ++step) {
      const StepReport& report = reports[static_cast<std::size_t>(step)];
      EXPECT_EQ(steps.at(step), planned(parallel.plan(), report.variant, communicator.rank()))
          << report.variant;
      EXPECT_EQ(report.factors.size(), step % 2 == 0 ? 4u : 0u) << "A and G of two layers";
    }
  });
}

}  // namespace
}  // namespace linerate::torch_adapter
