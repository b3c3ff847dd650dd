// What K-FAC's state holds where ranks share it: a run that is resumed between two updates goes on
// as the uninterrupted one, also on other ranks.
#include <gmock/gmock.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <set>

#include "linerate/core/error.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "linerate/torch_adapter/kfac/kfac_report.hpp"
#include "torch_adapter/curvature_jobs.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using ::testing::HasSubstr;

void train(Net& net, KFAC& pre, DataParallel& parallel, torch::optim::SGD& optimizer,
           const Data& mine, std::int64_t begin, std::int64_t end) {
  for (std::int64_t step = begin; step < end; ++step) {
    optimizer.zero_grad();
    loss_of(net, mine).backward();
    parallel.step(pre, optimizer);
  }
}

/// By way of a file.
KfacState written_and_read(const KfacState& state) {
  return kfac_state_of(to_tensors(state), "a file");
}

struct Result {
  std::vector<torch::Tensor> weights;
  KfacState state;
};

/// Steps [0, kSteps), by other objects from `stop` on; in front of it a step with `skipped`.
Result run(Communicator& c, const std::string& strategy, const Data& mine, std::int64_t stop,
           const Data& skipped = {}) {
  Net net;
  torch::optim::SGD optimizer = optimizer_of(*net);
  KfacState state;
  const auto go = [&](std::int64_t begin, std::int64_t end) {
    KFAC pre(*net, kfac_options());
    DataParallel parallel(*net, c, {.strategy = strategy, .preconditioner = &pre});
    if (begin > 0) parallel.load_curvature_state(written_and_read(state));
    train(net, pre, parallel, optimizer, mine, begin, end);
    if (end == stop && skipped.inputs.defined()) {
      optimizer.zero_grad();
      loss_of(net, skipped).backward();
      parallel.skip_step();
    }
    state = parallel.curvature_state();
  };
  go(0, stop);
  if (stop < kSteps) go(stop, kSteps);
  return {weights_of(*net), state};
}

class CurvatureState : public ::testing::TestWithParam<int> {};

TEST_P(CurvatureState, ResumesBetweenUpdatesAsIfNothingHadHappened) {
  const Data data = Data::whole();
  std::vector<std::string> all = strategies();
  all.push_back("kfac(dp, placement=round-robin, factors=2, inverses=4)");
  all.push_back("kfac(mem, placement=round-robin, factors=2, inverses=4)");
  for (const std::string& kfac : all)
    comm::run_ranks(GetParam(), [&](Communicator& c) {
      const Data mine = data.of(c);
      const Result whole = run(c, "ddp+" + kfac, mine, kSteps);
      for (const std::int64_t stop : {5, 6, 7}) {  // behind an inverse, between, behind a factor
        const Result resumed = run(c, "ddp+" + kfac, mine, stop);
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

/// Steps that were skipped just before leave nothing in it.
TEST_P(CurvatureState, ResumesBehindASkippedStep) {
  const Data data = Data::whole(), other = Data::whole(9);
  for (const std::string& kfac : strategies())
    comm::run_ranks(GetParam(), [&](Communicator& c) {
      const Data mine = data.of(c);
      const Result whole = run(c, "ddp+" + kfac, mine, kSteps);
      for (const std::int64_t stop : {4, 5, 6, 7}) {
        const Result resumed = run(c, "ddp+" + kfac, mine, stop, other.of(c));
        EXPECT_LT(largest_difference(resumed.weights, whole.weights), 1e-12) << kfac << stop;
      }
    });
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
  std::vector<torch::Tensor> expected, halfway;
  std::vector<at::Tensor> momenta;
  KfacState state;
  for (const bool whole : {true, false})
    comm::run_ranks(2, [&](Communicator& c) {
      Net net;
      torch::optim::SGD optimizer = optimizer_of(*net);
      KFAC pre(*net, kfac_options());
      DataParallel parallel(
          *net, c, {.strategy = "kfac(mem, factors=2, inverses=4)", .preconditioner = &pre});
      train(net, pre, parallel, optimizer, data.of(c.rank(), 2), 0, whole ? kSteps : kStop);
      const KfacState saved = parallel.curvature_state();
      if (c.rank() != 0) return;
      (whole ? expected : halfway) = weights_of(*net);
      if (whole) return;
      state = saved;
      for (const auto& p : net->parameters())
        momenta.push_back(static_cast<torch::optim::SGDParamState&>(
                              *optimizer.state().at(p.unsafeGetTensorImpl()))
                              .momentum_buffer()
                              .clone());
    });
  const auto go_on = [&](Communicator& c, const std::string& strategy) {
    Net net;
    torch::optim::SGD optimizer = optimizer_of(*net);
    {
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < halfway.size(); ++i) {
        const torch::Tensor p = net->parameters()[i];
        p.copy_(halfway[i]);
        auto momentum = std::make_unique<torch::optim::SGDParamState>();
        momentum->momentum_buffer(momenta[i].clone());
        optimizer.state()[p.unsafeGetTensorImpl()] = std::move(momentum);
      }
    }
    KFAC pre(*net, kfac_options());
    DataParallel parallel(*net, c, {.strategy = strategy, .preconditioner = &pre});
    parallel.load_curvature_state(state);
    train(net, pre, parallel, optimizer, data.of(c), kStop, kSteps);
    EXPECT_LT(largest_difference(weights_of(*net), expected), 1e-9) << strategy << c.size();
  };
  for (const int ranks : {1, 4})
    for (const std::string& kfac : strategies())
      comm::run_ranks(ranks, [&](Communicator& c) { go_on(c, "ddp+" + kfac); });
}

TEST(CurvatureStateOfOtherRanks, IsRefusedInTheMiddleOfAStepAndWithoutAPreconditioner) {
  comm::run_ranks(2, [](Communicator& c) {
    const auto complaint = [](DataParallel& parallel) -> std::string {
      try {
        static_cast<void>(parallel.curvature_state());
      } catch (const UsageError& e) {
        return e.what();
      }
      return "";
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

}  // namespace
}  // namespace linerate::torch_adapter
