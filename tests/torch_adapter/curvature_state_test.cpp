// What K-FAC's state holds where ranks share it: a run that is resumed between two updates goes on
// as the uninterrupted one, also on other ranks.
#include <gmock/gmock.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <algorithm>
#include <map>
#include <set>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"
#include "linerate/doc/plan_index.hpp"
#include "linerate/exec/recorder.hpp"
#include "linerate/kfac/kfac.hpp"
#include "linerate/kfac/kfac_report.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "torch_adapter/curvature_jobs.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using Names = std::multiset<std::string>;
using comm::Communicator;
using doc::TaskKind;
using testing::HasSubstr;

struct Result {
  std::vector<torch::Tensor> weights;
  KfacState state;
};

/// Steps [0, kSteps), by other objects from `stop` on; in front of it a step with `skipped`.
Result run(Communicator& c, const std::string& strategy, const Data& mine, std::int64_t stop,
           const Data& skipped = {}) {
  const CurvatureJob job{.strategy = strategy, .in_one_call = true};
  Program<> program(&c, job);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    if (step == stop) {
      if (skipped.inputs.defined()) {
        program.backward(skipped);
        program.parallel->skip_step();
      }
      program.resume(c, job);
    }
    program.step(mine);
  }
  return {weights_of(*program.net), program.parallel->curvature_state()};
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
  const auto momentum_of = [](Program<> & program, const torch::Tensor& p) -> auto& {
    auto& state = program.optimizer.state()[p.unsafeGetTensorImpl()];
    if (!state) state = std::make_unique<torch::optim::SGDParamState>();
    return static_cast<torch::optim::SGDParamState&>(*state);
  };
  std::vector<torch::Tensor> expected, halfway, momenta;
  KfacState state;
  for (const bool whole : {true, false})
    comm::run_ranks(2, [&](Communicator& c) {
      Program<> program(&c, {.strategy = "kfac(mem, factors=2, inverses=4)", .in_one_call = true});
      for (std::int64_t step = 0; step < (whole ? kSteps : kStop); ++step) program.step(data.of(c));
      const KfacState saved = program.parallel->curvature_state();
      if (c.rank() != 0) return;
      (whole ? expected : halfway) = weights_of(*program.net);
      if (whole) return;
      state = saved;
      for (const auto& p : program.net->parameters())
        momenta.push_back(momentum_of(program, p).momentum_buffer().clone());
    });
  for (const int ranks : {1, 4})
    for (const std::string& kfac : strategies())
      comm::run_ranks(ranks, [&](Communicator& c) {
        Program<> program(&c, {.strategy = "ddp+" + kfac, .in_one_call = true});
        for (std::size_t i = 0; i < halfway.size(); ++i) {
          const torch::NoGradGuard no_grad;
          const torch::Tensor p = program.net->parameters()[i];
          p.copy_(halfway[i]);
          momentum_of(program, p).momentum_buffer(momenta[i].clone());
        }
        program.parallel->load_curvature_state(state);
        for (std::int64_t step = kStop; step < kSteps; ++step) program.step(data.of(c));
        EXPECT_LT(largest_difference(weights_of(*program.net), expected), 1e-9) << kfac << c.size();
      });
}

TEST(CurvatureStateOfOtherRanks, IsRefusedInTheMiddleOfAStepAndWithoutAPreconditioner) {
  comm::run_ranks(2, [](Communicator& c) {
    const auto complaint = [](DataParallel& parallel) {
      return thrown_by([&] { static_cast<void>(parallel.curvature_state()); });
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

// Recorded steps with K-FAC: what the Plan's curvature tasks took.

constexpr int kRecordedSteps = 6;
const std::set kKinds{TaskKind::factor, TaskKind::inverse, TaskKind::precondition};

std::map<int, Names> recorded(const doc::Timeline& timeline) {
  std::map<int, Names> steps;
  for (const doc::Event& e : timeline.events) {
    EXPECT_LT(e.start_ns, e.end_ns);
    if (kKinds.contains(e.kind))
      steps[e.step].insert(timeline.names[static_cast<std::size_t>(e.name)]);
  }
  return steps;
}

/// Of the tasks that a rank has.
Names planned(const doc::Plan& plan, const std::string& variant, int rank) {
  const auto at = std::find_if(plan.variants.begin(), plan.variants.end(),
                               [&](const doc::TaskGraph& g) { return g.name == variant; });
  const doc::TaskGraph& graph = *at;
  const doc::VariantIndex index(plan, graph, rank);
  Names names;
  for (std::size_t i = 0; i < graph.tasks.size(); ++i)
    if (index.has[i] && kKinds.contains(graph.tasks[i].kind))
      names.insert(doc::event_name_of(plan, graph, graph.tasks[i]));
  return names;
}

TEST(CurvatureRecord, HasEveryCurvatureTaskThatThePlanHas) {
  comm::run_ranks(2, [](comm::Communicator& communicator) {
    torch::nn::Sequential net(torch::nn::Linear(5, 7), torch::nn::Tanh(), torch::nn::Linear(7, 3));
    KFAC pre(*net, {.loss_average = LossAverage{}, .learning_rate = [](auto) { return 0.01; }});
    exec::Recorder recorder(communicator, exec::agree_origin(communicator), "trained");
    DataParallel parallel(*net, communicator,
                          {.strategy = "ddp+kfac(mpd, factors=2, inverses=4)",
                           .preconditioner = &pre,
                           .recorder = &recorder});
    torch::optim::SGD optimizer(net->parameters(), 0.01);
    std::vector<StepReport> reports;
    for (int step = 0; step < kRecordedSteps; ++step) {
      recorder.begin_step(step);
      net->forward(torch::ones({4, 5})).square().sum().backward();
      reports.push_back(parallel.step(pre, optimizer));
    }
    const auto steps = recorded(recorder.timeline());
    for (int step = 0; step < kRecordedSteps; ++step) {
      const StepReport& report = reports[static_cast<std::size_t>(step)];
      EXPECT_EQ(steps.at(step), planned(parallel.plan(), report.variant, communicator.rank()))
          << report.variant;
      EXPECT_EQ(report.factors.size(), step % 2 == 0 ? 4u : 0u) << "A and G of two layers";
    }
  });
}

}  // namespace
}  // namespace linerate::torch_adapter
