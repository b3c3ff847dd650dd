// Levenberg-Marquardt damping over ranks: one update and one damping, those of the joined batch.
#include <gmock/gmock.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cmath>
#include <fstream>
#include <iomanip>
#include <memory>
#include <mutex>
#include <set>

#include "linerate/core/error.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "linerate/torch_adapter/kfac/kfac_state.hpp"
#include "torch_adapter/curvature_jobs.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using ::testing::HasSubstr;

constexpr double kStart = 5;

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

KfacOptions options(int passes) {
  KfacOptions all = options();
  if (passes > 1) all.accumulate = passes;
  return all;
}

/// `step` takes the step behind backward, of so many passes.
template <typename Begin, typename Step>
Outcome train(Net& net, KFAC& pre, const Data& data, Begin&& begin, Step&& step, int passes = 1) {
  for (int k = 0; k < kSteps; ++k) {
    net->zero_grad();
    begin();
    const auto inputs = data.inputs.chunk(passes), targets = data.targets.chunk(passes);
    torch::Tensor loss = torch::zeros({}, torch::kDouble);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const torch::Tensor output = net(inputs[i]);
      pre.loss_of(output, LossKind::squared_error);
      const torch::Tensor part = loss_of_output(output, {inputs[i], targets[i]}) / passes;
      part.backward({}, /*retain_graph=*/true);
      loss += part.detach();
    }
    step();
    if (!pre.wants_loss()) continue;
    const torch::NoGradGuard no_grad;
    pre.observe_loss(loss.item<double>(), loss_of(net, data).item<double>());
  }
  return {weights_of(*net), pre.save().lm_damping};
}

Outcome alone(const Data& data, int passes = 1) {
  Net net;
  KFAC pre(*net, options(passes));
  torch::optim::SGD optimizer(net->parameters(), 1.0);
  return train(
      net, pre, data, [] {},
      [&] {
        pre.step();
        optimizer.step();
      },
      passes);
}

TEST(Damping, OfAccumulatedPassesIsThatOfTheJoinedBatch) {
  const Data data = Data::whole();
  const Outcome joined = alone(data);
  for (const int passes : {2, 4}) {
    const Outcome accumulated = alone(data, passes);
    EXPECT_LT(largest_difference(accumulated.weights, joined.weights), 1e-11) << passes;
    EXPECT_DOUBLE_EQ(accumulated.damping, joined.damping);
  }
}

/// Inputs and targets by a formula that another language can repeat.
Data by_formula() {
  const auto wave = [](std::int64_t count, double phase) {
    return (torch::arange(count, torch::kDouble) * 0.7 + phase).sin();
  };
  return {wave(kSamples * 64, 1).view({kSamples, 1, 8, 8}),
          wave(kSamples * 4, 2).view({kSamples, 4})};
}

/// The damping, and each parameter's sum of squares, as tests/python_torch/uses.py has to find
/// them.
TEST(Damping, OfOneRankIsTheFilesAsPythonsIs) {
  const Outcome outcome = alone(by_formula());
  std::vector<double> found{outcome.damping};
  for (const torch::Tensor& w : outcome.weights) found.push_back(w.square().sum().item<double>());
  std::ifstream file(TORCH_ADAPTER_TESTS "/marquardt_golden.txt");
  std::vector<double> golden;
  for (double value = 0; file >> value;) golden.push_back(value);
  ASSERT_EQ(golden.size(), found.size());
  EXPECT_NE(golden.front(), kStart);
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], golden[i], 1e-9 * std::abs(golden[i]))
        << i << ": " << std::setprecision(17) << found[i];
}

Outcome shared(Communicator& c, const std::string& strategy, const Data& whole, bool uneven,
               int passes = 1) {
  const Data mine = whole.of(c, uneven);
  Net net;
  KFAC pre(*net, options(passes));
  DataParallel parallel(*net, c, {.strategy = strategy, .preconditioner = &pre});
  torch::optim::SGD optimizer(net->parameters(), 1.0);
  Outcome outcome = train(
      net, pre, mine,
      [&] {
        if (uneven) parallel.set_batch(mine.inputs.size(0));
      },
      [&] { parallel.step(pre, optimizer); }, passes);
  parallel.require_same_weights("after " + strategy);
  outcome.damping = parallel.curvature_state().lm_damping;  // with what the last step's losses say
  return outcome;
}

class SharedDamping : public ::testing::TestWithParam<int> {};

TEST_P(SharedDamping, IsThatOfOneRankWithTheJoinedBatch) {
  const Data data = Data::whole();
  const Outcome expected = alone(data);
  EXPECT_NE(expected.damping, kStart);
  for (const char* kfac : {"d", "mpd", "mem", "hybrid, fraction=0.5", "spd"})
    for (const auto& [uneven, passes] : {std::pair{false, 1}, {true, 1}, {false, 2}}) {
      const std::string strategy = std::string("ddp+kfac(") + kfac + ", inverses=2)";
      std::set<double> dampings;
      std::mutex mutex;
      const std::string what = strategy + ", lm" + (uneven ? ", uneven" : "") +
                               (passes > 1 ? fmt::format(", {} passes", passes) : "");
      expect_weights(what, GetParam(), expected.weights,
                     [&, uneven = uneven, passes = passes](Communicator& c) {
                       const Outcome outcome = shared(c, strategy, data, uneven, passes);
                       EXPECT_DOUBLE_EQ(outcome.damping, expected.damping) << strategy;
                       const std::lock_guard lock(mutex);
                       dampings.insert(outcome.damping);
                       return outcome.weights;
                     });
      EXPECT_EQ(dampings.size(), 1U) << strategy;
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, SharedDamping, ::testing::Values(2, 4));

enum class Interruption { nothing, skipped, refused, not_finite };

/// Steps of which some are interrupted once before they count; every one of the others is judged,
/// and a program that asks is told that nothing else is.
Outcome interrupted(Communicator& c, const std::string& strategy, const Data& whole,
                    Interruption kind, bool resumes = false) {
  const Data mine = whole.of(c);
  Net net;
  auto pre = std::make_unique<KFAC>(*net, options());
  auto parallel = std::make_unique<DataParallel>(
      *net, c, DataParallelOptions{.strategy = strategy, .preconditioner = pre.get()});
  torch::optim::SGD optimizer(net->parameters(), 1.0);
  const auto pass = [&](double factor) {
    net->zero_grad();
    const torch::Tensor output = net(mine.inputs);
    pre->loss_of(output, LossKind::squared_error);
    (loss_of_output(output, mine) * factor).backward({}, /*retain_graph=*/true);
  };
  const auto interrupt = [&] {
    pass(kind == Interruption::not_finite && c.rank() == 1 ? std::nan("") : 1);
    if (kind == Interruption::skipped) {
      parallel->skip_step();
    } else if (kind == Interruption::refused) {
      if (c.rank() == 1) parallel->refuse_step("a bad batch");
      EXPECT_THROW(parallel->finish(), InputError);
    } else {
      parallel->finish();
      EXPECT_TRUE(pre->step().skipped);
      optimizer.step();
      EXPECT_FALSE(pre->wants_loss());
      pre->observe_loss(1, 2);  // of no update
    }
  };
  for (int k = 0; k < kSteps; ++k) {
    if (kind != Interruption::nothing && k % 3 != 1) interrupt();
    if (resumes && k == 5) {  // behind what was observed of step 3 on
      const KfacState state = kfac_state_of(to_tensors(parallel->curvature_state()), "a file");
      parallel.reset();
      pre = std::make_unique<KFAC>(*net, options());
      parallel = std::make_unique<DataParallel>(
          *net, c, DataParallelOptions{.strategy = strategy, .preconditioner = pre.get()});
      parallel->load_curvature_state(state);
      EXPECT_FALSE(pre->wants_loss());
    }
    pass(1);
    parallel->step(*pre, optimizer);
    if (!pre->wants_loss()) continue;
    const torch::NoGradGuard no_grad;
    pre->observe_loss(10, 10 - 1e-3 * (k + 1));  // no ratio that the rule would let pass
  }
  parallel->require_same_weights("after " + strategy);
  return {weights_of(*net), parallel->curvature_state().lm_damping};
}

TEST_P(SharedDamping, IsThatOfTheStepsThatCounted) {
  const Data data = Data::whole();
  for (const char* kfac : {"kfac(d, inverses=2)", "kfac(mem, inverses=2)", "kfac(spd, inverses=2)"})
    comm::run_ranks(GetParam(), [&](Communicator& c) {
      const Outcome plain = interrupted(c, kfac, data, Interruption::nothing);
      EXPECT_NE(plain.damping, kStart);
      for (const auto kind :
           {Interruption::skipped, Interruption::refused, Interruption::not_finite}) {
        const Outcome hit = interrupted(c, kfac, data, kind);
        EXPECT_LT(largest_difference(hit.weights, plain.weights), 1e-12) << kfac;
        EXPECT_DOUBLE_EQ(hit.damping, plain.damping) << kfac << static_cast<int>(kind);
      }
    });
}

/// In mid-interval, also behind a step that was skipped: damping, last update, factors.
TEST_P(SharedDamping, IsPartOfTheState) {
  const Data data = Data::whole();
  for (const char* kfac : {"kfac(d, inverses=2)", "kfac(mem, inverses=2)", "kfac(spd, inverses=2)"})
    comm::run_ranks(GetParam(), [&](Communicator& c) {
      const Outcome plain = interrupted(c, kfac, data, Interruption::nothing);
      for (const auto kind : {Interruption::nothing, Interruption::skipped}) {
        const Outcome resumed = interrupted(c, kfac, data, kind, /*resumes=*/true);
        EXPECT_LT(largest_difference(resumed.weights, plain.weights), 1e-12) << kfac;
        EXPECT_DOUBLE_EQ(resumed.damping, plain.damping) << kfac;
      }
    });
}

/// Forward and backward, the loss shown to `pre`; a graph that is not kept cannot be looked at.
void pass(Net& net, KFAC& pre, const Data& data, bool keeps_graph = true) {
  net->zero_grad();
  const torch::Tensor output = net(data.inputs);
  pre.loss_of(output, LossKind::squared_error);
  loss_of_output(output, data).backward({}, keeps_graph);
}

/// Of a state that is saved between the losses and the step that would have summed them.
TEST_P(SharedDamping, CountsLossesThatAreNotSummedYet) {
  const Data data = Data::whole();
  comm::run_ranks(GetParam(), [&](Communicator& c) {
    Net net;
    KFAC pre(*net, options());
    DataParallel parallel(*net, c, {.strategy = "kfac(d, inverses=2)", .preconditioner = &pre});
    torch::optim::SGD optimizer(net->parameters(), 1.0);
    const Data mine = data.of(c);
    for (int k = 0; k < 2; ++k) {
      pass(net, pre, mine);
      parallel.step(pre, optimizer);
    }
    ASSERT_TRUE(pre.wants_loss());
    pre.observe_loss(1, 2);  // worse
    EXPECT_DOUBLE_EQ(parallel.curvature_state().lm_damping, kStart / std::pow(0.95, 2));
    EXPECT_DOUBLE_EQ(pre.save().lm_damping, kStart);  // this rank knows of none but its own
  });
}

/// A rank that cannot look at the loss's curvature: no rank moves, and all hear of it.
TEST_P(SharedDamping, EndsTheRunWhereOneRankHasNoModel) {
  const Data data = Data::whole();
  comm::run_ranks(GetParam(), [&](Communicator& c) {
    Net net;
    KFAC pre(*net, options());
    DataParallel parallel(*net, c, {.strategy = "kfac(d, inverses=2)", .preconditioner = &pre});
    torch::optim::SGD optimizer(net->parameters(), 1.0);
    const Data mine = data.of(c);
    pass(net, pre, mine, c.rank() != 1);
    const auto before = weights_of(*net);
    parallel.finish();
    EXPECT_TRUE(pre.step().skipped);
    optimizer.step();
    EXPECT_EQ(largest_difference(weights_of(*net), before), 0);
    pass(net, pre, mine);
    EXPECT_THROW(parallel.finish(), Error);
  });
}

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
      pass(net, pre, data);
      parallel.step(pre, optimizer);
    };
    step();
    if (c.rank() == 0) pre.observe_loss(2, 1);
    EXPECT_THAT(complaint(step), HasSubstr("on 1 of 2 ranks"));
  });
}

}  // namespace
}  // namespace linerate::torch_adapter
