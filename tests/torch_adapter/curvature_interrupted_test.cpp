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
#include "linerate/torch_adapter/data_parallel.hpp"
#include "linerate/torch_adapter/kfac/kfac_report.hpp"
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

/// One rank of a training.
struct Program {
  Program(Communicator& c, const std::string& strategy, const KfacOptions& options = kfac_options(),
          torch::Dtype dtype = torch::kDouble)
      : communicator(c),
        type(dtype),
        pre((net->to(dtype), *net), options),
        parallel(*net, c, {.strategy = strategy, .preconditioner = &pre}),
        optimizer(optimizer_of(*net)) {}

  Data mine(std::int64_t batch) const {
    const Data& all = batches()[static_cast<std::size_t>(batch)];
    const Data part = all.of(communicator);
    return {part.inputs.to(type), part.targets.to(type)};
  }
  void backward(std::int64_t batch, double factor = 1) {
    optimizer.zero_grad();
    (loss_of(net, mine(batch)) * factor).backward();
  }
  KfacStep update() {
    const KfacStep done = pre.step();
    optimizer.step();
    return done;
  }
  KfacStep step(std::int64_t batch) {
    backward(batch);
    parallel.finish();
    return update();
  }

  Communicator& communicator;
  const torch::Dtype type;
  Net net;
  KFAC pre;
  DataParallel parallel;
  torch::optim::SGD optimizer;
};

std::vector<std::string> strategies_and_dp() {
  std::vector<std::string> all = strategies();
  all.push_back("kfac(dp, factors=2, inverses=4)");
  return all;
}

/// Some batches of a run count, the others are taken by `interrupt`; the weights are those of a run
/// without them.
void expect_no_trace(int ranks, const std::function<void(Program&, std::int64_t)>& interrupt,
                     const std::string& exchange = "ddp+", torch::Dtype type = torch::kDouble) {
  const std::vector<std::int64_t> interrupted = {0, 3, 4, 7};  // all kinds of steps
  batches();                                                   // before ranks ask for them
  for (const std::string& kfac : strategies_and_dp())
    comm::run_ranks(ranks, [&](Communicator& c) {
      Program plain(c, exchange + kfac, kfac_options(), type);
      for (std::int64_t k = 0; k < kSteps; ++k)
        if (std::find(interrupted.begin(), interrupted.end(), k) == interrupted.end())
          plain.step(k);
      Program hit(c, exchange + kfac, kfac_options(), type);
      for (std::int64_t k = 0; k < kSteps; ++k)
        if (std::find(interrupted.begin(), interrupted.end(), k) == interrupted.end())
          hit.step(k);
        else
          interrupt(hit, k);
      EXPECT_LT(largest_difference(weights_of(*hit.net), weights_of(*plain.net)),
                type == torch::kDouble ? 1e-12 : 1e-5)
          << exchange << kfac;
    });
}

class CurvatureInterrupted : public ::testing::TestWithParam<int> {};

TEST_P(CurvatureInterrupted, ASkippedStepLeavesNoTrace) {
  expect_no_trace(GetParam(), [](Program& program, std::int64_t batch) {
    program.backward(batch);
    program.parallel.skip_step();
  });
}

TEST_P(CurvatureInterrupted, ARefusedStepLeavesNoTrace) {
  expect_no_trace(GetParam(), [](Program& program, std::int64_t batch) {
    program.backward(batch);
    if (program.communicator.rank() == 1) program.parallel.refuse_step("a bad batch");
    EXPECT_THROW(program.parallel.finish(), InputError);
  });
}

/// Passes that come to no end on rank 1, which it says; the others' do.
template <typename Pass>
void expect_no_trace_of(int ranks, Pass throwing) {
  expect_no_trace(ranks, [throwing](Program& program, std::int64_t batch) {
    if (program.communicator.rank() != 1) {
      program.backward(batch);
    } else {
      program.optimizer.zero_grad();
      EXPECT_THROW(throwing(*program.net, program.mine(batch)), std::exception);
      program.parallel.refuse_step("a bad batch");
    }
    EXPECT_THROW(program.parallel.finish(), InputError);
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
        Program plain(c, "ddp+" + kfac), hit(c, "ddp+" + kfac);
        for (std::int64_t k = 0; k < kSteps; ++k) {
          plain.step(k);
          if ((k == 0 || k % 3 == 1) && (on_all || c.rank() == 1)) hit.backward((k + 5) % kSteps);
          hit.step(k);
        }
        hit.parallel.require_same_weights(kfac);
        EXPECT_LT(largest_difference(weights_of(*hit.net), weights_of(*plain.net)), 1e-12)
            << kfac << on_all;
      });
}

/// Infinities and NaN reach all ranks with the gradients, and those say it alike.
TEST_P(CurvatureInterrupted, ABatchThatIsNotFiniteOnOneRankIsSkippedByAll) {
  for (const double factor : {kNaN, std::numeric_limits<double>::infinity()})
    expect_no_trace(GetParam(), [factor](Program& program, std::int64_t batch) {
      program.backward(batch, program.communicator.rank() == 1 ? factor : 1);
      program.parallel.finish();
      const KfacStep done = program.update();
      EXPECT_TRUE(done.skipped);
      for (const torch::Tensor& p : program.net->parameters()) EXPECT_FALSE(p.grad().defined());
    });
}

TEST_P(CurvatureInterrupted, ACompressedStepThatIsNotFiniteIsSkippedByAll) {
  expect_no_trace(
      GetParam(),
      [](Program& program, std::int64_t batch) {
        program.backward(batch, program.communicator.rank() == 1 ? kNaN : 1);
        EXPECT_TRUE(program.parallel.step(program.pre, program.optimizer).infinite);
      },
      "ddp+topk(density=0.1, dense_below=0)+", torch::kFloat);
}

INSTANTIATE_TEST_SUITE_P(Ranks, CurvatureInterrupted, ::testing::Values(2, 4));

/// One rank alone does as several do.
TEST(CurvatureAlone, ABatchThatIsNotFiniteLeavesNoTrace) {
  const auto run = [](bool interrupted) {
    Net net;
    KFAC pre(*net, kfac_options());
    torch::optim::SGD optimizer = optimizer_of(*net);
    for (std::int64_t k = 0; k < kSteps; ++k) {
      const bool bad = k == 0 || k == 3 || k == 4 || k == 7;
      if (bad && !interrupted) continue;
      optimizer.zero_grad();
      (loss_of(net, batches()[static_cast<std::size_t>(k)]) * (bad ? kNaN : 1)).backward();
      EXPECT_EQ(pre.step().skipped, bad);
      optimizer.step();
    }
    return weights_of(*net);
  };
  EXPECT_EQ(largest_difference(run(true), run(false)), 0);
}

TEST(CurvatureAlone, ABatchWhoseGradientsAreThrownAwayLeavesNoTrace) {
  const auto run = [](bool interrupted) {
    Net net;
    KFAC pre(*net, kfac_options());
    torch::optim::SGD optimizer = optimizer_of(*net);
    for (std::int64_t k = 0; k < kSteps; ++k) {
      if (interrupted) loss_of(net, batches()[static_cast<std::size_t>(kSteps - 1 - k)]).backward();
      optimizer.zero_grad();
      loss_of(net, batches()[static_cast<std::size_t>(k)]).backward();
      pre.step();
      optimizer.step();
      optimizer.zero_grad();
    }
    return weights_of(*net);
  };
  EXPECT_EQ(largest_difference(run(true), run(false)), 0);
}

using Named = std::vector<std::pair<std::string, at::Tensor>>;
void expect_same(const Named& found, const Named& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_TRUE(torch::equal(found[i].second, expected[i].second)) << found[i].first;
}

/// Gradients by torch::autograd::grad stand in no .grad: nobody has thrown them away.
TEST(CurvatureAlone, GradientsThatNobodyAccumulatedAddUp) {
  const auto run = [](bool functional) {
    Net net;
    KFAC pre(*net, kfac_options());
    const auto parameters = net->parameters();
    for (std::size_t k = 0; k < 2; ++k) {
      const torch::Tensor loss = loss_of(net, batches()[k]);
      if (!functional) {
        loss.backward();
        continue;
      }
      const auto gradients = torch::autograd::grad({loss}, parameters);
      if (k == 0) continue;
      for (std::size_t p = 0; p < parameters.size(); ++p)
        parameters[p].mutable_grad() = gradients[p];
    }
    pre.step();
    return to_tensors(pre.save());
  };
  expect_same(run(true), run(false));
}

/// A kernel larger than its input.
TEST(CurvatureAlone, AnOperatorThatThrowsLeavesNoTrace) {
  const auto run = [](bool interrupted) {
    Net net;
    KFAC pre(*net, kfac_options());
    if (interrupted) {
      EXPECT_THROW(net->conv(torch::ones({kSamples, 1, 2, 8}, torch::kDouble)), std::exception);
    }
    loss_of(net, batches()[0]).backward();
    pre.step();
    return to_tensors(pre.save());
  };
  expect_same(run(true), run(false));
}

/// A rank's part may be empty: its passes count nothing, whatever the layers make of positions.
template <typename Model>
void expect_empty_counts_nothing(const Data& data) {
  for (const auto positions : {SharedPositions::expand, SharedPositions::reduce}) {
    const auto run = [&](bool interrupted) {
      Model net;
      KfacOptions options = kfac_options();
      options.shared_positions = positions;
      KFAC pre(*net, options);
      const Data none{data.inputs.slice(0, 0, 0), data.targets.slice(0, 0, 0)};
      loss_of(net, data).backward();
      if (interrupted) loss_of(net, none).backward();
      pre.step();
      return to_tensors(pre.save());
    };
    expect_same(run(true), run(false));
  }
}
TEST(CurvatureAlone, ABatchOfNoSamplesCountsNothing) {
  expect_empty_counts_nothing<Net>(Data::whole());
  expect_empty_counts_nothing<TokenNet>(Data::of_tokens());
}

/// What step() throws about one batch is said of it alone, and the next takes its place.
TEST(CurvatureAlone, ABatchThatIsRefusedLeavesNoTrace) {
  const auto run = [](bool interrupted) {
    Net net;
    KFAC pre(*net, kfac_options());
    torch::optim::SGD optimizer = optimizer_of(*net);
    for (std::int64_t k = 0; k < kSteps; ++k) {
      const Data& data = batches()[static_cast<std::size_t>(k)];
      if (interrupted && (k == 0 || k == 4)) {
        optimizer.zero_grad();
        (loss_of(net, data) +
         torch::matmul(net->head->weight, torch::ones({8, 1}, torch::kDouble)).sum())
            .backward();
        EXPECT_THROW(pre.step(), UsageError);
      }
      optimizer.zero_grad();
      loss_of(net, data).backward();
      pre.step();
      optimizer.step();
    }
    return weights_of(*net);
  };
  EXPECT_EQ(largest_difference(run(true), run(false)), 0);
}

/// What is not understood of one step does not refuse those that follow.
TEST(CurvatureUnknown, RefusesOneStepOnAllRanks) {
  batches();
  comm::run_ranks(2, [](Communicator& c) {
    Program plain(c, "ddp+kfac(spd)"), hit(c, "ddp+kfac(spd)");
    for (const std::int64_t k : {0, 1, 3, 4}) plain.step(k);
    for (const std::int64_t k : {0, 1, 2, 3, 4}) {
      if (k != 2) {
        hit.step(k);
        continue;
      }
      hit.optimizer.zero_grad();
      torch::Tensor loss = loss_of(hit.net, hit.mine(k));
      if (c.rank() == 1)
        loss =
            loss + torch::matmul(hit.net->head->weight, torch::ones({8, 1}, torch::kDouble)).sum();
      loss.backward();
      EXPECT_THROW(hit.parallel.finish(), UsageError);
    }
    EXPECT_LT(largest_difference(weights_of(*hit.net), weights_of(*plain.net)), 1e-12);
  });
}

/// A second backward pass that nobody announced: what left under the first is sent once more.
class ExchangedTwice : public ::testing::TestWithParam<std::int64_t> {
 protected:
  /// In one step.
  static bool twice(std::int64_t batch) { return batch == GetParam(); }
  static std::vector<torch::Tensor> alone() {
    Net net;
    KFAC pre(*net, kfac_options());
    torch::optim::SGD optimizer = optimizer_of(*net);
    for (std::int64_t k = 0; k < kSteps; ++k) {
      optimizer.zero_grad();
      loss_of(net, batches()[static_cast<std::size_t>(k)]).backward();
      if (twice(k)) loss_of(net, batches()[0]).backward();
      pre.step();
      optimizer.step();
    }
    return weights_of(*net);
  }
};

TEST_P(ExchangedTwice, HasTheCurvatureOfBothBackwardPasses) {
  const std::vector<torch::Tensor> expected = alone();
  for (const std::string& kfac : strategies())
    comm::run_ranks(2, [&](Communicator& c) {
      Program program(c, "ddp+" + kfac);
      for (std::int64_t k = 0; k < kSteps; ++k) {
        program.backward(k);
        if (twice(k)) loss_of(program.net, program.mine(0)).backward();
        EXPECT_EQ(program.parallel.finish().rounds, twice(k) ? 2 : 1) << k;
        program.update();
      }
      EXPECT_LT(largest_difference(weights_of(*program.net), expected), 1e-9) << kfac;
    });
}

INSTANTIATE_TEST_SUITE_P(KindsOfSteps, ExchangedTwice, ::testing::Values(4, 6, 7));

TEST(NotPreconditioned, IsSaidOnce) {
  const Warnings warnings;
  batches();
  comm::run_ranks(2, [](Communicator& c) {
    Program program(c, "ddp+kfac(d)");
    for (std::int64_t k = 0; k < 4; ++k) {
      program.backward(k);
      program.parallel.finish();
      program.optimizer.step();
    }
  });
  EXPECT_THAT(warnings.with("without the preconditioner's step()"), SizeIs(2));  // ranks
}

TEST(NotPreconditioned, IsNotSaidOfStepsThatAre) {
  const Warnings warnings;
  batches();
  comm::run_ranks(2, [](Communicator& c) {
    Program program(c, "ddp+kfac(d)");
    program.step(0);
    program.backward(1);
    program.parallel.skip_step();
    program.backward(2);
    program.parallel.step(program.pre, program.optimizer);
    program.step(3);
  });
  EXPECT_THAT(warnings.with("without the preconditioner's step()"), IsEmpty());
}

TEST(APreconditioner, ThatNobodySharesAnyMoreFollowsItsOwnIntervals) {
  batches();
  comm::run_ranks(2, [](Communicator& c) {
    Net net;
    KfacOptions options = kfac_options();
    options.factor_interval.reset();  // 10 and 100, unless the strategy says others
    options.inverse_interval.reset();
    KFAC pre(*net, options);
    std::vector<bool> factors, inverses;
    const auto note = [&](const KfacStep& done) {
      factors.push_back(done.factors);
      inverses.push_back(done.inverses);
    };
    {
      DataParallel parallel(*net, c, {.strategy = "kfac(d, factors=3)", .preconditioner = &pre});
      loss_of(net, batches()[0]).backward();
      parallel.finish();
      note(pre.step());
    }
    for (std::size_t k = 1; k < 5; ++k) {
      net->zero_grad();
      loss_of(net, batches()[k]).backward();
      note(pre.step());
    }
    EXPECT_THAT(factors, ::testing::ElementsAre(true, false, false, false, false));
    EXPECT_THAT(inverses, ::testing::ElementsAre(true, false, false, false, false));
  });
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
      KfacOptions options = kfac_options();
      // No damping makes an inverse: of what rank 1 owns from step 3 on.
      options.factor_interval = options.inverse_interval = 1;
      options.damping = [rank = c.rank()](std::int64_t s) {
        return rank == 1 && s >= 3 ? kNaN : 0.1;
      };
      options.max_failures = 2;
      Program program(c, std::string("ddp+") + kfac, options);
      try {
        for (; steps[r] < kSteps; ++steps[r]) program.step(steps[r]);
      } catch (const Error& e) {
        messages[r] = e.what();
      }
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
      KfacOptions options = kfac_options();
      options.factor_interval = options.inverse_interval = 1;
      options.damping = [rank = c.rank()](std::int64_t s) {
        return rank == 1 && s % 2 == 1 ? kNaN : 0.1;
      };
      options.max_failures = 2;
      Program program(c, std::string("ddp+") + kfac, options);
      for (std::int64_t k = 0; k < kSteps; ++k) program.step(k);
      program.parallel.require_same_weights(kfac);
    });
}

}  // namespace
}  // namespace linerate::torch_adapter
