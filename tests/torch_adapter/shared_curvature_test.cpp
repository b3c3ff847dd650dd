// K-FAC shared among ranks: every strategy takes the steps that one rank with all samples takes.
#include <gmock/gmock.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <set>

#include "linerate/core/error.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "torch_adapter/curvature_jobs.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using ::testing::HasSubstr;

/// The weights of some steps of one rank that has all samples.
template <typename Model = Net>
std::vector<torch::Tensor> alone(const Data& data, const KfacOptions& options = kfac_options()) {
  Model net;
  KFAC pre(*net, options);
  torch::optim::SGD optimizer = optimizer_of(*net);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    loss_of(net, data).backward();
    EXPECT_TRUE(pre.step().plain.empty());
    optimizer.step();
  }
  return weights_of(*net);
}

template <typename Model = Net>
std::vector<torch::Tensor> shared(Communicator& communicator, const std::string& strategy,
                                  const Data& mine, bool uneven = false,
                                  const KfacOptions& options = kfac_options()) {
  Model net;
  KFAC pre(*net, options);
  DataParallel parallel(*net, communicator, {.strategy = strategy, .preconditioner = &pre});
  torch::optim::SGD optimizer = optimizer_of(*net);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    if (uneven) parallel.set_batch(mine.inputs.size(0));
    loss_of(net, mine).backward();
    parallel.finish();
    EXPECT_TRUE(pre.step().plain.empty()) << strategy;
    optimizer.step();
  }
  parallel.require_same_weights("at the end");
  return weights_of(*net);
}

class SharedCurvature : public ::testing::TestWithParam<int> {};

TEST_P(SharedCurvature, EveryStrategyTakesTheStepsOfOneRankWithAllSamples) {
  const Data data = Data::whole();
  const std::vector<torch::Tensor> expected = alone(data);
  for (const char* exchange : {"ddp+", "ddp(first=64B,bucket=512B)+", "bulk+"})
    for (const std::string& kfac : strategies())
      expect_weights(exchange + kfac, GetParam(), expected,
                     [&](Communicator& c) { return shared(c, exchange + kfac, data.of(c)); });
}

TEST_P(SharedCurvature, WeighsRanksByTheirSamples) {
  const Data data = Data::whole();
  const std::vector<torch::Tensor> expected = alone(data);
  for (const std::string& kfac : strategies())
    expect_weights("ddp+" + kfac + ", uneven", GetParam(), expected, [&](Communicator& c) {
      return shared(c, "ddp+" + kfac, data.of(c, true), true);
    });
}

/// Eigenvectors' signs, and any basis of equal eigenvalues, are the owner's: directions are the
/// same.
TEST_P(SharedCurvature, EigenvectorsTravelAsInversesDo) {
  const Data data = Data::whole();
  const KfacOptions options = kfac_options(InverseMethod::eigen);
  const std::vector<torch::Tensor> expected = alone(data, options);
  EXPECT_GT(largest_difference(expected, alone(data)), 1e-4);
  for (const std::string& kfac : strategies())
    expect_weights("ddp+" + kfac + ", eigen, uneven", GetParam(), expected, [&](Communicator& c) {
      return shared(c, "ddp+" + kfac, data.of(c, true), true, options);
    });
  const std::string dp = "ddp+kfac(dp, inverse=eigen, factors=2, inverses=4)";
  expect_weights(dp + ", the same samples", GetParam(), expected,
                 [&](Communicator& c) { return shared(c, dp, data, false, options); });
}

TEST_P(SharedCurvature, FactorsThatAreNoMatricesAreInvertedToo) {
  const Data data = Data::of_tokens();
  for (const InverseMethod method : {InverseMethod::cholesky, InverseMethod::eigen}) {
    const KfacOptions options = kfac_options(method);
    const std::vector<torch::Tensor> expected = alone<TokenNet>(data, options);
    for (const std::string& kfac : strategies())
      expect_weights("ddp+" + kfac + ", embeddings and norms" +
                         (method == InverseMethod::eigen ? ", eigen" : ""),
                     GetParam(), expected, [&](Communicator& c) {
                       return shared<TokenNet>(c, "ddp+" + kfac, data.of(c), false, options);
                     });
  }
}

/// Owners, messages and their order follow what steps measure; averages and inverses follow them.
TEST_P(SharedCurvature, PlansAgainWithoutChangingTheNumbers) {
  const Data data = Data::whole();
  const std::vector<torch::Tensor> expected = alone(data);
  std::size_t changes = 0;
  for (const std::string& kfac : strategies()) {
    std::vector<std::set<std::uint64_t>> plans(static_cast<std::size_t>(GetParam()));
    expect_weights("ddp+" + kfac + ", planned again", GetParam(), expected, [&](Communicator& c) {
      Net net;
      KFAC pre(*net, kfac_options());
      DataParallel parallel(*net, c,
                            {.strategy = "ddp+" + kfac,
                             .measured_steps = 1,
                             .replan_above = 0,  // whatever departs at all
                             .preconditioner = &pre});
      torch::optim::SGD optimizer = optimizer_of(*net);
      for (int step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        loss_of(net, data.of(c)).backward();
        parallel.step(pre, optimizer);
        plans[static_cast<std::size_t>(c.rank())].insert(parallel.plan().hash());
      }
      EXPECT_FALSE(parallel.plan_is_final());
      parallel.require_same_weights(kfac);
      return weights_of(*net);
    });
    for (const auto& mine : plans) EXPECT_EQ(mine, plans[0]) << kfac;
    changes += plans[0].size() - 1;
  }
  EXPECT_GT(changes, strategies().size());  // each plans by order after the first step
}

/// Each factor sees the samples of one rank alone.
TEST_P(SharedCurvature, DpTakesThemWhereAllRanksSeeTheSame) {
  const Data data = Data::whole();
  const std::vector<torch::Tensor> expected = alone(data);
  const std::string strategy = "ddp+kfac(dp, factors=2, inverses=4)";
  expect_weights(strategy + ", the same samples", GetParam(), expected,
                 [&](Communicator& c) { return shared(c, strategy, data); });
  comm::run_ranks(GetParam(), [&](Communicator& c) {
    const auto other = shared(c, strategy, data.of(c));
    EXPECT_GT(largest_difference(other, expected), 1e-6);
  });
}

/// Of sizes at which products round differently with the layout of their operands (10 and less), or
/// would with solvers' blocks.
torch::nn::Sequential uneven_layers() {
  torch::nn::Sequential net(torch::nn::Linear(9, 64), torch::nn::Tanh(), torch::nn::Linear(64, 10),
                            torch::nn::Tanh(), torch::nn::Linear(10, 130));
  const torch::NoGradGuard no_grad;
  double phase = 0;
  for (torch::Tensor& p : net->parameters())
    p.copy_((torch::arange(p.numel()) * 1.7 + ++phase).sin().view(p.sizes()) * 0.1);
  return net;
}

TEST_P(SharedCurvature, LeavesTheSameBitsOnEveryRank) {
  const torch::Tensor x = torch::randn({32, 9}), y = torch::randn({32, 130});
  for (const std::string& strategy : strategies()) {
    std::vector<torch::Tensor> weights(static_cast<std::size_t>(GetParam()));
    comm::run_ranks(GetParam(), [&](Communicator& communicator) {
      torch::nn::Sequential net = uneven_layers();
      KFAC pre(*net, kfac_options());
      DataParallel parallel(*net, communicator, {.strategy = strategy, .preconditioner = &pre});
      torch::optim::SGD optimizer(net->parameters(), kRate);
      const auto rank = static_cast<std::size_t>(communicator.rank());
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        const at::Tensor mine = x.chunk(GetParam())[rank], target = y.chunk(GetParam())[rank];
        ((net->forward(mine) - target).square().sum() / static_cast<double>(mine.size(0)))
            .backward();
        parallel.step(pre, optimizer);
      }
      for (const torch::Tensor& p : net->parameters())
        weights[rank] = weights[rank].defined() ? torch::cat({weights[rank], p.detach().flatten()})
                                                : p.detach().flatten();
    });
    for (const torch::Tensor& other : weights)
      EXPECT_TRUE(torch::equal(weights[0], other)) << strategy;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, SharedCurvature, ::testing::Values(2, 4));

/// What the options say need not be said in the strategy, nor the other way round; what both say
/// must be the same.
TEST(SharedCurvature, TakesAnOptionFromOneOfTwoPlaces) {
  KfacOptions nothing{.loss_average = LossAverage{},
                      .learning_rate = [](std::int64_t) { return kRate; }};
  const auto with = [&](auto&& change) {
    KfacOptions options = nothing;
    change(options);
    return options;
  };
  const auto five = [](std::int64_t) { return 5.0; };
  struct Case {
    const char* strategy;
    KfacOptions options;
    const char* complaint;
  };
  const std::vector<Case> cases = {
      {"kfac(d, damping=5)", with([](auto& o) { o.damping = 0.03; }), "damping=5"},
      {"kfac(d, damping=5)", with([&](auto& o) { o.damping = five; }), "a function of the step"},
      {"kfac(d, decay=0.5)", with([](auto& o) { o.decay = 0.9; }), "decay=0.5"},
      {"kfac(d, kl=0)", with([](auto& o) { o.kl_clip = 1e-3; }), "kl=0"},
      {"kfac(d, clip=off)", with([](auto& o) { o.kl_clip = 1e-3; }), "kl=0"},
      {"kfac(d, kl=0.1)", with([](auto& o) { o.kl_clip = 0; }), "kl=0.1"},
      {"kfac(d, factors=3)", with([](auto& o) { o.factor_interval = 2; }), "factors=3"},
      {"kfac(d, inverses=6)", with([](auto& o) { o.inverse_interval = 4; }), "inverses=6"},
      {"kfac(d)", with([&](auto& o) { o.factor_interval = five; }), "needs a number of steps"},
      {"kfac(d, subsample=2)", nothing, "subsample=2"},
      {"kfac(d, fisher=mc)", nothing, "fisher=mc"},
      {"kfac(d, inverse=eigen)", nothing, "inverse=eigen"},
      {"kfac(d, largest=100)", nothing, "largest=100"},
      {"kfac(d, norms=on)", with([](auto& o) { o.norms = false; }), "norms=on"},
      {"kfac(d, damping=5, kl=0.1, inverses=6)", nothing, ""},
      {"kfac(d, damping=5)", with([](auto& o) { o.damping = 5; }), ""},
      {"kfac(d)", with([](auto& o) { o.factor_interval = 2, o.inverse_interval = 6; }), ""}};
  comm::run_ranks(2, [&](Communicator& c) {
    for (const Case& one : cases) {
      Net net;
      KFAC pre(*net, one.options);
      try {
        DataParallel parallel(*net, c, {.strategy = one.strategy, .preconditioner = &pre});
        EXPECT_STREQ(one.complaint, "") << one.strategy;
      } catch (const UsageError& e) {
        EXPECT_STRNE(one.complaint, "") << one.strategy << ": " << e.what();
        EXPECT_THAT(e.what(), HasSubstr(one.complaint)) << one.strategy;
      }
    }
  });
}

/// Damping, clip and intervals of the strategy are those of the options.
TEST(SharedCurvature, ComputesWithWhatTheStrategySays) {
  const Data data = Data::whole();
  KfacOptions filled = kfac_options();
  filled.damping = 0.5, filled.decay = 0.6, filled.kl_clip = 1e-4;
  KfacOptions bare{.loss_average = LossAverage{},
                   .learning_rate = [](std::int64_t) { return kRate; }};
  const std::vector<torch::Tensor> expected = alone(data, filled);
  EXPECT_GT(largest_difference(expected, alone(data)), 1e-4);
  for (const std::string strategy :
       {"kfac(spd)", "kfac(spd, factors=2, inverses=4, damping=0.5, decay=0.6, kl=0.0001)"})
    expect_weights(strategy, 2, expected, [&](Communicator& c) {
      return shared(c, strategy, data.of(c), false, strategy == "kfac(spd)" ? filled : bare);
    });
}

TEST(SharedCurvature, OfAPreconditionerThatNobodySharesIsRefused) {
  comm::run_ranks(2, [](Communicator& c) {
    Net net;
    KFAC pre(*net, kfac_options());
    const auto refused = [&](const std::string& strategy, KFAC* given) -> std::string {
      try {
        DataParallel parallel(*net, c, {.strategy = strategy, .preconditioner = given});
      } catch (const UsageError& e) {
        return e.what();
      }
      return "";
    };
    EXPECT_THAT(refused("ddp", &pre), HasSubstr("+kfac(spd)"));
    EXPECT_THAT(refused("ddp+kfac(spd)", nullptr), HasSubstr("construct a KFAC"));
  });
}

}  // namespace
}  // namespace linerate::torch_adapter
