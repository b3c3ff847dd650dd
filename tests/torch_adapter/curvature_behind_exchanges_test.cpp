// K-FAC behind every kind of exchange: decoupled ones, compressed ones, without its clip.
#include <gmock/gmock.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cmath>

#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "torch_adapter/curvature_jobs.hpp"
#include "torch_adapter/registered_compressors.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

KfacOptions without_clip(InverseMethod method = InverseMethod::cholesky) {
  return {.loss_average = LossAverage{},
          .method = method,
          .factor_interval = 2,
          .inverse_interval = 4,
          .damping = [](std::int64_t step) { return 0.1 / (1.0 + static_cast<double>(step)); },
          .kl_clip = 0};
}

template <typename Model = Net>
std::vector<torch::Tensor> one_rank_weights(const Data& data, const KfacOptions& options) {
  Model net;
  net->to(data.targets.scalar_type());
  KFAC pre(*net, options);
  torch::optim::SGD optimizer = optimizer_of(*net);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    loss_of(net, data).backward();
    pre.step();
    optimizer.step();
  }
  return weights_of(*net);
}

struct Shared {
  std::string strategy;
  KfacOptions options = without_clip();
  bool uneven = false;
  bool in_one_call = true;  // parallel.step(pre, optimizer), else finish() and both steps
};

template <typename Model = Net>
std::vector<torch::Tensor> shared(Communicator& c, const Data& whole, const Shared& job) {
  const Data mine = whole.of(c, job.uneven);
  Model net;
  net->to(whole.targets.scalar_type());
  KFAC pre(*net, job.options);
  DataParallel parallel(*net, c, {.strategy = job.strategy, .preconditioner = &pre});
  torch::optim::SGD optimizer = optimizer_of(*net);
  auto& options = static_cast<torch::optim::SGDOptions&>(optimizer.param_groups()[0].options());
  options.momentum(momentum_beside(job.strategy, options.momentum()));
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    if (job.uneven) parallel.set_batch(mine.inputs.size(0));
    loss_of(net, mine).backward();
    if (job.in_one_call) {
      parallel.step(pre, optimizer);
      continue;
    }
    parallel.finish();
    pre.step();
    optimizer.step();
  }
  parallel.settle();
  parallel.require_same_weights("after " + job.strategy);
  return weights_of(*net);
}

class CurvatureBehind : public ::testing::TestWithParam<int> {};

TEST_P(CurvatureBehind, UnderDdpWithoutClipTakesTheStepsOfOneRank) {
  const Data data = Data::whole();
  const auto expected = one_rank_weights(data, without_clip());
  for (const char* strategy : {"ddp+kfac(spd, clip=off, factors=2, inverses=4)",
                               "bulk+kfac(mem, kl=0, factors=2, inverses=4)"})
    expect_weights(strategy, GetParam(), expected,
                   [&](Communicator& c) { return shared(c, data, {.strategy = strategy}); });
}

/// Directions and updates wait for the first operator that reads a weight.
TEST_P(CurvatureBehind, UnderDearTakesTheStepsOfOneRank) {
  const Data data = Data::whole();
  for (const InverseMethod method : {InverseMethod::cholesky, InverseMethod::eigen}) {
    const auto expected = one_rank_weights(data, without_clip(method));
    for (const char* exchange : {"dear", "dear(layers=1)", "dear(bucket=64B)"})
      for (const char* kfac : {"d", "mpd", "spd"})
        for (const bool in_one_call : {true, false}) {
          const std::string strategy =
              std::string(exchange) + "+kfac(" + kfac + ", kl=0, factors=2, inverses=4)";
          const std::string how = std::string(method == InverseMethod::eigen ? ", eigen" : "") +
                                  (in_one_call ? ", uneven, step(pre, optimizer)" : ", finish()");
          expect_weights(strategy + how, GetParam(), expected, [&](Communicator& c) {
            return shared(c, data,
                          {strategy, without_clip(method), /*uneven=*/in_one_call, in_one_call});
          });
        }
  }
}

TEST_P(CurvatureBehind, UnderDearWithEmbeddingsAndNormsTakesTheStepsOfOneRank) {
  const Data data = Data::of_tokens();
  const auto expected = one_rank_weights<TokenNet>(data, without_clip());
  const std::string strategy = "dear(bucket=64B)+kfac(spd, clip=off, factors=2, inverses=4)";
  expect_weights(strategy + ", embeddings and norms", GetParam(), expected, [&](Communicator& c) {
    return shared<TokenNet>(c, data, {.strategy = strategy});
  });
}

/// Codes every gradient and loses nothing: what arrives is decoded before it is preconditioned.
TEST_P(CurvatureBehind, UnderALosslessCompressorEndsAtDenseWeights) {
  const Data data = Data::whole().in(torch::kFloat);
  for (const char* kfac : {"d", "mem", "spd"}) {
    const std::string behind = std::string("+kfac(") + kfac + ", kl=0, factors=2, inverses=4)";
    comm::run_ranks(GetParam(), [&](Communicator& c) {
      const auto dense = shared(c, data, {.strategy = "ddp" + behind});
      const auto coded =
          shared(c, data, {.strategy = "ddp+threshold(tau=1e-30, dense_below=0)" + behind});
      EXPECT_LT(largest_difference(coded, dense), 1e-5) << kfac;
    });
  }
}

TEST_P(CurvatureBehind, UnderEveryCompressorRanksEndAtTheSameWeights) {
  const Data data = Data::whole().in(torch::kFloat);
  for (const std::string& name : compress::compressors().names())
    comm::run_ranks(GetParam(), [&](Communicator& c) {
      const std::string strategy =
          "ddp+" + small_enough(name) + "+kfac(spd, kl=0, factors=2, inverses=4)";
      const auto weights = shared(c, data, {.strategy = strategy});  // the same on every rank
      for (const torch::Tensor& w : weights) EXPECT_TRUE(w.isfinite().all().item<bool>()) << name;
    });
}

/// finish() has waited for all gradients: the step is skipped as behind other exchanges.
TEST_P(CurvatureBehind, UnderDearABatchThatIsNotFiniteIsSkipped) {
  const Data data = Data::whole();
  for (const char* kfac : {"d", "mpd", "spd"}) {
    const std::string strategy =
        std::string("dear+kfac(") + kfac + ", kl=0, factors=2, inverses=4)";
    const auto run = [&](Communicator& c, bool interrupted) {
      Net net;
      KFAC pre(*net, without_clip());
      DataParallel parallel(*net, c, {.strategy = strategy, .preconditioner = &pre});
      torch::optim::SGD optimizer = optimizer_of(*net);
      for (int step = 0; step < kSteps; ++step)
        for (const bool bad : {true, false}) {
          if (bad && (!interrupted || step % 2 != 0)) continue;
          optimizer.zero_grad();
          const bool here = bad && c.rank() == 1;
          (loss_of(net, data.of(c)) * (here ? std::nan("") : 1)).backward();
          parallel.finish();
          EXPECT_EQ(pre.step().skipped, bad);
          optimizer.step();
        }
      parallel.settle();
      return weights_of(*net);
    };
    comm::run_ranks(GetParam(), [&](Communicator& c) {
      EXPECT_LT(largest_difference(run(c, true), run(c, false)), 1e-12) << strategy;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CurvatureBehind, ::testing::Values(2, 4));

TEST(CurvatureBehindDear, RefusesBroadcastDirectionsAndAClip) {
  comm::run_ranks(2, [](Communicator& c) {
    Net net;
    KFAC pre(*net, without_clip()), clipped(*net, kfac_options());
    const auto refused = [&](const std::string& strategy, KFAC& given) -> std::string {
      try {
        DataParallel parallel(*net, c, {.strategy = strategy, .preconditioner = &given});
      } catch (const UsageError& e) {
        return e.what();
      }
      return "";
    };
    EXPECT_THAT(refused("dear+kfac(spd)", clipped), HasSubstr("clip=off"));
    EXPECT_THAT(refused("dear+kfac(mem, kl=0)", pre), HasSubstr("directions would travel"));
    EXPECT_THAT(refused("dear+kfac(spd, kl=0)", pre), IsEmpty());
    EXPECT_THAT(refused("dear+kfac(spd)", pre), IsEmpty());  // its options say so
  });
}

TEST(DpKfac, WarnsWhereRanksExceedLayers) {
  const Warnings warnings;
  for (const int ranks : {3, 4})
    comm::run_ranks(ranks, [](Communicator& c) {
      Net net;
      KFAC pre(*net, without_clip());
      const DataParallel parallel(*net, c, {.strategy = "ddp+kfac(dp)", .preconditioner = &pre});
    });
  EXPECT_THAT(warnings.with("ranks share"), SizeIs(1));
  EXPECT_THAT(warnings.with("4 ranks share 3 layers, so 1 have no curvature"), SizeIs(1));
}

}  // namespace
}  // namespace linerate::torch_adapter
