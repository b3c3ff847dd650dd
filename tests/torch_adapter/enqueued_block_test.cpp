// What a block decides if nobody looks at its values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/convert_parameters.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/kfac/curvature_block.hpp"
#include "linerate/kfac/factor_inverse.hpp"
#include "linerate/kfac/kfac.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "support/sample_workloads.hpp"
#include "torch_adapter/curvature_nets.hpp"
#include "torch_adapter/group_over_communicator.hpp"

namespace linerate::torch_adapter {
namespace {

constexpr double kDecay = 0.95;

std::unique_ptr<CurvatureBlock> linear_block() {
  return make_block({.name = "layer", .weight = torch::zeros({2, 2}, torch::kDouble)}, {});
}

at::Tensor diagonal(double first, double second) {
  return pack_triangles(torch::tensor({first, 0.0, 0.0, second}, torch::kDouble).view({1, 2, 2}));
}

bool enqueue_average(CurvatureBlock& block, FactorSide side, const at::Tensor& packed,
                     bool used = true) {
  const at::Tensor counts = torch::tensor({used ? 1.0 : 0.0, 1.0}, torch::kDouble);
  const CurvatureBlock::Packed sum{{&block, side}, torch::cat({packed, counts})};
  return CurvatureBlock::update_averages({&sum, 1}, kDecay).item<bool>();
}

CurvatureBlock::Inverted invert_a(CurvatureBlock& block, const at::Tensor& damping) {
  const CurvatureBlock::Factor factor{&block, FactorSide::a};
  return CurvatureBlock::invert({&factor, 1}, damping);
}

TEST(EnqueuedBlock, TakesAFactorThatIsUsedAndFinite) {
  const CpuAsDevice as_device;
  const auto block = linear_block();
  const auto average = [&] { return block->average(FactorSide::a); };
  EXPECT_FALSE(enqueue_average(*block, FactorSide::a, diagonal(7, 7), /*used=*/false));
  EXPECT_TRUE(enqueue_average(*block, FactorSide::a,
                              diagonal(1, std::numeric_limits<double>::quiet_NaN())));
  EXPECT_TRUE(average().eq(0).all().item<bool>());
  EXPECT_FALSE(block->save(FactorSide::a).average.defined());
  EXPECT_FALSE(enqueue_average(*block, FactorSide::a, diagonal(2, 4)));  // the first that counts
  EXPECT_TRUE(average().equal(diagonal(2, 4)));
  EXPECT_FALSE(enqueue_average(*block, FactorSide::a, diagonal(4, 8)));
  EXPECT_TRUE(average().equal(diagonal(3, 6)));
  EXPECT_EQ(block->save(FactorSide::a).updates, 2);
}

/// diag(1, -0.5) + gamma I is positive definite from gamma = 0.5 on: gamma is the damping's root,
/// 0.1, then ten times as much.
TEST(EnqueuedBlock, TriesAgainWithMoreDampingAndKeepsTheOldInverseMeanwhile) {
  const auto block = linear_block();
  const at::Tensor damping = torch::tensor(0.01, torch::kDouble);
  const auto inverse = [&] { return invert_a(*block, damping).succeeded.item<bool>(); };
  EXPECT_FALSE(inverse());  // of nothing
  for (const FactorSide side : {FactorSide::a, FactorSide::g})
    enqueue_average(*block, side, diagonal(1, -0.5));
  const CurvatureBlock::Inverted first = invert_a(*block, damping);
  EXPECT_TRUE(first.failed.item<bool>());
  EXPECT_FALSE(first.succeeded.item<bool>());
  EXPECT_FALSE(block->save(FactorSide::a).has_inverse);
  EXPECT_TRUE(inverse());
  EXPECT_TRUE(block->save(FactorSide::a).has_inverse);
  const at::Tensor found = block->packed_inverse(FactorSide::a);
  EXPECT_TRUE(found.allclose(diagonal(0.5, 2)));
  EXPECT_FALSE(inverse());  // a tenth again
  EXPECT_TRUE(block->packed_inverse(FactorSide::a).equal(found));
  EXPECT_FALSE(block->save(FactorSide::g).has_inverse);
}

/// Of each what it finds alone; one that fails holds no other up.
TEST(EnqueuedBlock, InvertsSeveralInOneCall) {
  const at::Tensor damping = torch::tensor(0.01, torch::kDouble);
  const auto blocks = [] {
    std::vector<std::unique_ptr<CurvatureBlock>> made;
    for (int i = 0; i < 3; ++i) {
      made.push_back(linear_block());
      for (const FactorSide side : {FactorSide::a, FactorSide::g})
        enqueue_average(*made.back(), side, i == 1 ? diagonal(1, -0.5) : diagonal(i + 1, i + 3));
    }
    made.push_back(linear_block());  // without an average
    return made;
  };
  const auto together = blocks(), alone = blocks();
  const CpuAsDevice as_device;
  std::vector<CurvatureBlock::Factor> factors;
  for (const auto& block : together) factors.push_back({block.get(), FactorSide::a});
  const CurvatureBlock::Inverted found = CurvatureBlock::invert(factors, damping);
  ASSERT_EQ(found.succeeded.numel(), 4);
  for (std::size_t i = 0; i < 4; ++i) {
    const auto n = static_cast<std::int64_t>(i);
    const CurvatureBlock::Inverted one = invert_a(*alone[i], damping);
    EXPECT_EQ(found.succeeded[n].item<bool>(), i == 0 || i == 2) << i;
    EXPECT_EQ(found.succeeded[n].item<bool>(), one.succeeded.item<bool>()) << i;
    EXPECT_EQ(found.failed[n].item<bool>(), one.failed.item<bool>()) << i;
    EXPECT_TRUE(
        together[i]->packed_inverse(FactorSide::a).equal(alone[i]->packed_inverse(FactorSide::a)))
        << i;
  }
  // The next try of the one that failed has more damping, those of the others what they had.
  const CurvatureBlock::Inverted again = CurvatureBlock::invert(factors, damping);
  EXPECT_TRUE(again.succeeded.narrow(0, 0, 3).all().item<bool>());
}

/// LibTorch throws then, though nobody has asked for the status.
std::tuple<at::Tensor, at::Tensor> does_not_converge(const at::Tensor&, c10::string_view, bool) {
  TORCH_CHECK_LINALG(false, "the algorithm failed to converge");
}

TEST(EnqueuedBlock, KeepsTheOldEigenvectorsIfTheSolverFails) {
  const auto block = make_block({.name = "layer", .weight = torch::zeros({2, 2}, torch::kDouble)},
                                {.method = InverseMethod::eigen});
  const auto inverse = [&] { return invert_a(*block, torch::tensor(0.01, torch::kDouble)); };
  for (const FactorSide side : {FactorSide::a, FactorSide::g})
    enqueue_average(*block, side, diagonal(2, 4));
  EXPECT_TRUE(inverse().succeeded.item<bool>());
  const at::Tensor found = block->packed_inverse(FactorSide::a);
  enqueue_average(*block, FactorSide::a, diagonal(4, 8));
  {
    torch::Library failing(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    failing.impl("_linalg_eigh", does_not_converge);
    const CurvatureBlock::Inverted tried = inverse();
    EXPECT_TRUE(tried.failed.item<bool>());
    EXPECT_FALSE(tried.succeeded.item<bool>());
    EXPECT_TRUE(block->packed_inverse(FactorSide::a).equal(found));
  }
  EXPECT_TRUE(inverse().succeeded.item<bool>());
  EXPECT_FALSE(block->packed_inverse(FactorSide::a).equal(found));
}

TEST(EnqueuedBlock, HasNoEigenvectorsOfWhatIsNotFinite) {
  const at::Tensor broken = torch::full({1, 2, 2}, std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(symmetric_eigen(broken.to(torch::kDouble)).succeeded.item<bool>());
  const Solved found = symmetric_eigen(torch::eye(2, torch::kDouble).unsqueeze(0) * 3);
  EXPECT_TRUE(found.succeeded.item<bool>());
  EXPECT_TRUE(found.values.eq(3).all().item<bool>());
}

// Training by Plans whose inverses share calls of the solver, by both codes.

constexpr const char* kCallsGroup = "of the suite";

/// Factors of 9 and 8 rows, three of each; f32, which calls are measured in.
struct EqualLayersImpl : torch::nn::Module {
  EqualLayersImpl() {
    register_module("a", a), register_module("b", b), register_module("c", c);
    set_weights(*this);
    to(at::kFloat);
  }
  at::Tensor forward(const at::Tensor& x) { return c(torch::tanh(b(torch::tanh(a(x))))); }
  torch::nn::Linear a{8, 8}, b{8, 8}, c{8, 8};
};
TORCH_MODULE(EqualLayers);

doc::Cluster cluster_with_calls(int ranks, bool calls) {
  doc::Cluster cluster = support::two_rank_cluster(1e-5, 1e-10);
  cluster.ranks = ranks;
  cluster.second_order = support::second_order_cost();
  if (calls) cluster.second_order->batches = {{1, 4, 4e-4, 1e-4}, {64, 4, 4e-4, 1e-4}};
  return cluster;
}

struct CallsRun {
  at::Tensor weights;
  std::int64_t with_next = 0;  // tasks of the last Plan
};

CallsRun train_with_calls(comm::Communicator& communicator, const std::string& strategy, bool calls,
                          bool enqueued) {
  std::optional<CpuAsDevice> as_device;
  if (enqueued) as_device.emplace();
  EqualLayers net;
  KFAC pre(*net, {.loss_average = LossAverage{}, .kl_clip = 0.0});
  DataParallel parallel(*net, communicator,
                        {.strategy = strategy,
                         .cluster = cluster_with_calls(communicator.size(), calls),
                         .measured_steps = 2,
                         .preconditioner = &pre,
                         .device_group = enqueued ? kCallsGroup : ""});
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05));
  for (int step = 0; step < 8; ++step) {
    optimizer.zero_grad();
    const at::Tensor x = torch::sin(torch::arange(128, at::kFloat) * 12.9898 +
                                    (10.0 * step + communicator.rank()) * 78.233)
                             .view({16, 8});
    torch::mse_loss(net->forward(x), x.flip(1)).backward();
    parallel.finish();
    pre.step();
    optimizer.step();
  }
  parallel.require_same_weights("at the end");
  CallsRun run{torch::nn::utils::parameters_to_vector(net->parameters()).detach()};
  const doc::Plan plan = parallel.plan();
  for (const doc::TaskGraph& graph : plan.variants)
    run.with_next += std::count_if(graph.tasks.begin(), graph.tasks.end(), [&](const auto& task) {
      return doc::is_inverted_with_next(plan, task);
    });
  return run;
}

TEST(InverseCalls, EndAtTheWeightsOfOneByOne) {
  for (const char* kfac : {"kfac(d, factors=2, inverses=4)", "kfac(spd, factors=2, inverses=2)",
                           "kfac(mem, factors=1, inverses=1)", "kfac(mpd, factors=1, inverses=1)"})
    for (const int ranks : {1, 2})
      comm::run_ranks(ranks, [&](comm::Communicator& c) {
        const GroupOverCommunicator group(kCallsGroup, c);
        const std::string strategy = std::string("ddp+") + kfac;
        const CallsRun alone = train_with_calls(c, strategy, false, false);
        EXPECT_EQ(alone.with_next, 0) << strategy;
        for (const bool enqueued : {false, true}) {
          const CallsRun shared = train_with_calls(c, strategy, true, enqueued);
          EXPECT_TRUE(shared.weights.allclose(alone.weights, 1e-4, 1e-5))
              << strategy << ", " << ranks << " ranks, " << enqueued << ": off by "
              << (shared.weights - alone.weights).abs().max().item<float>();
          // By spd and mpd a rank's inverses are sent, or there one after the other.
          const bool sends = strategy.find("spd") != std::string::npos ||
                             strategy.find("mpd") != std::string::npos;
          if (ranks == 1 || !sends) {
            EXPECT_GT(shared.with_next, 0) << strategy << ", " << ranks << " ranks";
          }
        }
      });
}

}  // namespace
}  // namespace linerate::torch_adapter
