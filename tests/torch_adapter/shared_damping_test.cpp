// Levenberg-Marquardt damping over ranks: one update and one damping, those of the joined batch.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <mutex>
#include <set>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "linerate/torch_adapter/kfac/kfac.hpp"
#include "linerate/torch_adapter/kfac/kfac_state.hpp"
#include "torch_adapter/curvature_jobs.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using ::testing::HasSubstr;

constexpr double kStart = 5;

}
/// One sample fewer on every rank but the last where parts are `uneven`.
Data of(const Communicator& c, bool uneven) const {
  const std::int64_t each = kSamples / c.size() - (uneven ? 1 : 0);
  const std::int64_t end = c.rank() == c.size() - 1 ? kSamples : (c.rank() + 1) * each;
  return {inputs.slice(0, c.rank() * each, end), targets.slice(0, c.rank() * each, end)};
}
};

KfacOptions options() {
  return {
      .loss_average = LossAverage{},
      .factor_interval = 1,
      .inverse_interval = 2,
      .levenberg_marquardt = LevenbergMarquardtOptions{.start = kStart, .every = 2, .l2 = 1e-3}};
}

struct Outcome {
  std::vector<torch::Tensor> weights;
  double damping = 0;
};

/// `step` takes the step behind backward.
template <typename Begin, typename Step>
Outcome train(Net& net, KFAC& pre, const Data& data, Begin&& begin, Step&& step) {
  for (int k = 0; k < kSteps; ++k) {
    net->zero_grad();
    begin();
    const torch::Tensor output = net(data.inputs);
    pre.loss_of(output, LossKind::squared_error);
    const torch::Tensor loss = loss_of_output(output, data);
    loss.backward({}, /*retain_graph=*/true);
    step();
    if (!pre.wants_loss()) continue;
    const torch::NoGradGuard no_grad;
    pre.observe_loss(loss.item<double>(), loss_of(net, data).item<double>());
  }
  return {weights_of(*net), pre.save().lm_damping};
}

Outcome alone(const Data& data) {
  Net net;
  KFAC pre(*net, options());
  torch::optim::SGD optimizer(net->parameters(), 1.0);
  return train(
      net, pre, data, [] {},
      [&] {
        pre.step();
        optimizer.step();
      });
}

Outcome shared(Communicator& c, const std::string& strategy, const Data& whole, bool uneven) {
  const Data mine = whole.of(c, uneven);
  Net net;
  KFAC pre(*net, options());
  DataParallel parallel(*net, c, {.strategy = strategy, .preconditioner = &pre});
  torch::optim::SGD optimizer(net->parameters(), 1.0);
  const Outcome outcome = train(
      net, pre, mine,
      [&] {
        if (uneven) parallel.set_batch(mine.inputs.size(0));
      },
      [&] { parallel.step(pre, optimizer); });
  parallel.require_same_weights("after " + strategy);
  return outcome;
}

class SharedDamping : public ::testing::TestWithParam<int> {};

TEST_P(SharedDamping, IsThatOfOneRankWithTheJoinedBatch) {
  const Data data = Data::whole();
  const Outcome expected = alone(data);
  EXPECT_NE(expected.damping, kStart);
  for (const char* kfac : {"d", "mpd", "mem", "hybrid, fraction=0.5", "spd"})
    for (const bool uneven : {false, true}) {
      const std::string strategy = std::string("ddp+kfac(") + kfac + ", inverses=2)";
      std::set<double> dampings;
      std::mutex mutex;
      comm::run_ranks(GetParam(), [&](Communicator& c) {
        const Outcome outcome = shared(c, strategy, data, uneven);
        EXPECT_LT(largest_difference(outcome.weights, expected.weights), 1e-9) << strategy;
        EXPECT_DOUBLE_EQ(outcome.damping, expected.damping) << strategy;
        const std::lock_guard lock(mutex);
        dampings.insert(outcome.damping);
      });
      EXPECT_EQ(dampings.size(), 1U) << strategy;
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, SharedDamping, ::testing::Values(2, 4));

/// What travels for it is in the Plan.
TEST(SharedDampingPlan, NamesItsSums) {
  comm::run_ranks(2, [](Communicator& c) {
    Net net;
    KFAC pre(*net, options());
    const DataParallel parallel(*net, c, {.strategy = "kfac(spd)", .preconditioner = &pre});
    for (const doc::TaskGraph& g : parallel.plan().variants) {
      std::multiset<std::string> sums;
      for (const doc::Task& t : g.tasks) {
        if (t.kind != doc::TaskKind::all_reduce) continue;
        const auto content = g.payloads[static_cast<std::size_t>(t.first)].content;
        if (content == doc::Content::losses || content == doc::Content::quadratic)
          sums.insert(std::string(name_of(content)));
      }
      EXPECT_EQ(sums, (std::multiset<std::string>{"losses", "quadratic"})) << g.name;
    }
  });
}

template <typename Run>
std::string complaint(Run&& run) {
  try {
    run();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(SharedDampingErrors, SayWhatIsMissing) {
  const Data data = Data::whole();
  comm::run_ranks(2, [&](Communicator& c) {
    const auto refused = [&](const std::string& strategy, const KfacOptions& chosen) {
      return complaint([&] {
        Net net;
        KFAC pre(*net, chosen);
        DataParallel parallel(*net, c, {.strategy = strategy, .preconditioner = &pre});
      });
    };
    EXPECT_THAT(refused("dear+kfac(spd)", options()), HasSubstr("layer by layer"));
    KfacOptions fixed{.loss_average = LossAverage{}, .kl_clip = 0};
    EXPECT_THAT(refused("ddp+kfac(spd, lm=on)", fixed), HasSubstr("levenberg_marquardt"));
    EXPECT_THAT(complaint([&] {
                  Net net;
                  KFAC pre(*net, options());
                  DataParallel parallel(*net, c, {.strategy = "kfac(d)", .preconditioner = &pre});
                  torch::optim::SGD optimizer(net->parameters(), 1.0);
                  loss_of(net, data).backward();
                  parallel.step(pre, optimizer);
                }),
                HasSubstr("call loss_of(output, loss)"));
    Net net;
    KFAC pre(*net, options());
    DataParallel parallel(*net, c, {.strategy = "kfac(d)", .preconditioner = &pre});
    torch::optim::SGD optimizer(net->parameters(), 1.0);
    const auto step = [&] {
      net->zero_grad();
      const torch::Tensor output = net(data.inputs);
      pre.loss_of(output, LossKind::squared_error);
      loss_of_output(output, data).backward({}, /*retain_graph=*/true);
      parallel.step(pre, optimizer);
    };
    step();
    if (c.rank() == 0) pre.observe_loss(2, 1);
    EXPECT_THAT(complaint(step), HasSubstr("on 1 of 2 ranks"));
  });
}

}  // namespace
}  // namespace linerate::torch_adapter
