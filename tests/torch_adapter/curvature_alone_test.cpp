// The bound on momentum under a clip, where a program calls the steps one by one: of a K-FAC alone,
// and of one that ranks share.
#include <gmock/gmock.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include "linerate/kfac/preconditioner.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "torch_adapter/curvature_jobs.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

/// A step by the program's own calls: of a K-FAC alone, or with the ranks of `parallel`.
struct Manual : Program<> {
  Manual(comm::Communicator* c, bool names_optimizer, double kappa = 1e-2)
      : Program<>(c, {.strategy = c ? "kfac(d)" : "", .options = options(&rate, kappa)}) {
    if (names_optimizer) KfacInside::preconditioner(*pre).set_optimizer(optimizer);
  }
  static KfacOptions options(const double* rate, double kappa) {
    KfacOptions o{.loss_average = LossAverage{}, .factor_interval = 1, .inverse_interval = 1};
    o.kl_clip = kappa;
    o.learning_rate = [rate](std::int64_t) { return *rate; };
    return o;
  }
  std::vector<torch::Tensor> momentum() {
    std::vector<torch::Tensor> all;
    for (const auto& p : net->parameters())
      all.push_back(
          static_cast<torch::optim::SGDParamState&>(*optimizer.state().at(p.unsafeGetTensorImpl()))
              .momentum_buffer()
              .clone());
    return all;
  }
  /// Up to the optimizer's.
  void precondition(double at) {
    rate = at;
    for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
    static const Data data = Data::whole();
    backward(data);
    if (parallel) parallel->finish();
    pre->step();
  }

  double rate = 0;
};

/// For a K-FAC alone, then on one and two ranks.
template <typename Run>
void alone_and_on_ranks(Run&& run) {
  run(nullptr);
  for (const int ranks : {1, 2}) comm::run_ranks(ranks, [&](comm::Communicator& c) { run(&c); });
}

TEST(MomentumBound, HoldsWhereStepsAreCalledOneByOne) {
  alone_and_on_ranks([](comm::Communicator* c) {
    Manual program(c, /*names_optimizer=*/true);
    program.precondition(0.05);
    program.optimizer.step();
    const auto before = program.momentum();
    program.precondition(0.2);
    const auto after = program.momentum();
    for (std::size_t p = 0; p < before.size(); ++p)
      EXPECT_TRUE(torch::equal(after[p], before[p] * (0.05 / 0.2))) << p;
    program.optimizer.step();
    const auto kept = program.momentum();
    program.precondition(0.1);
    EXPECT_EQ(largest_difference(program.momentum(), kept), 0);
  });
}

TEST(MomentumBound, WarnsWhereNobodyNamesTheOptimizer) {
  const Warnings warnings;
  alone_and_on_ranks([](comm::Communicator* c) {
    for (const auto& [names, kappa] : {std::pair{false, 1e-2}, {true, 1e-2}, {false, 0.0}}) {
      Manual program(c, names, kappa);
      for (const double rate : {0.05, 0.2, 0.4, 0.1}) {
        program.precondition(rate);
        program.optimizer.step();
      }
    }
  });
  EXPECT_THAT(warnings.with("the clip does not hold"), ::testing::SizeIs(1 + 1 + 2));
}

}  // namespace
}  // namespace linerate::torch_adapter
