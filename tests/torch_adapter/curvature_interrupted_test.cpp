// K-FAC shared among ranks, in steps that do not go as they should: skipped, refused, not finite,
// exchanged twice, not preconditioned; and owners whose inverses fail.
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cmath>
#include <functional>
#include <limits>

#include "linerate/core/error.hpp"
#include "linerate/kfac/kfac_report.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "torch_adapter/curvature_jobs.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

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
  batches();                                                   // before ranks ask for them
  for (const std::string& kfac : strategies_and_dp())
    comm::run_ranks(ranks, [&](Communicator& c) {
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
  batches();
  for (const bool on_all : {true, false})
    for (const std::string& kfac : strategies_and_dp())
      comm::run_ranks(GetParam(), [&](Communicator& c) {
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
  for (const double factor : {kNaN, std::numeric_limits<double>::infinity()})
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
        program.backward(batch, program.rank() == 1 ? kNaN : 1);
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
    EXPECT_EQ(program.step(k, bad ? kNaN : 1).skipped, bad);
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
  batches();
  comm::run_ranks(2, [](Communicator& c) {
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
    comm::run_ranks(2, [&](Communicator& c) {
      EXPECT_LT(largest_difference(weights(&c, "ddp+" + kfac), expected), 1e-9) << kfac;
    });
}

INSTANTIATE_TEST_SUITE_P(KindsOfSteps, ExchangedTwice, ::testing::Values(4, 6, 7));

TEST(NotPreconditioned, IsSaidOnce) {
  const Warnings warnings;
  batches();
  comm::run_ranks(2, [](Communicator& c) {
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
  batches();
  comm::run_ranks(2, [](Communicator& c) {
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
  batches();
  comm::run_ranks(2, [](Communicator& c) {
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
    return rank == 1 && fails(s) ? kNaN : 0.1;
  };
  options.max_failures = 2;
  return options;
}

/// What one owner cannot invert ends the run everywhere, by its name.
TEST(AnOwner, WhoseInversesKeepFailingEndsTheRunOfAllRanks) {
  batches();
  for (const char* kfac : {"kfac(d)", "kfac(mpd)", "kfac(mem)", "kfac(hybrid, fraction=0.5)",
                           "kfac(spd, placement=lpt)", "kfac(dp)"}) {
    std::vector<std::string> messages(2);
    std::vector<std::int64_t> steps(2);
    comm::run_ranks(2, [&](Communicator& c) {
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
  batches();
  for (const char* kfac : {"kfac(mpd)", "kfac(mem)", "kfac(spd, placement=lpt)", "kfac(dp)"})
    comm::run_ranks(2, [&](Communicator& c) {
      Batches program(&c, std::string("ddp+") + kfac,
                      failing(c.rank(), [](std::int64_t s) { return s % 2 == 1; }));
      for (std::int64_t k = 0; k < kSteps; ++k) program.step(k);
      program.parallel->require_same_weights(kfac);
    });
}

}  // namespace
}  // namespace linerate::torch_adapter
