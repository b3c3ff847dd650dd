// Training by Plans whose inverses share calls of the solver, by both codes.
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/convert_parameters.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <optional>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "linerate/torch_adapter/kfac/factor_inverse.hpp"
#include "linerate/torch_adapter/kfac/kfac.hpp"
#include "support/sample_workloads.hpp"
#include "torch_adapter/curvature_nets.hpp"
#include "torch_adapter/group_over_communicator.hpp"

namespace linerate::torch_adapter {
namespace {

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
