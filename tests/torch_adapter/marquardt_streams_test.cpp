// Levenberg-Marquardt damping by the code for parameters on a device, on the CPU: damping, update
// and weights are those of the other code, and the host waits for nothing.
#include <gmock/gmock.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "linerate/core/error.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "linerate/torch_adapter/kfac/host_code.hpp"
#include "linerate/torch_adapter/kfac/kfac_inside.hpp"
#include "linerate/torch_adapter/kfac/kfac_state.hpp"
#include "linerate/torch_adapter/kfac/preconditioner.hpp"
#include "linerate/torch_adapter/kfac/quadratic_model.hpp"
#include "torch_adapter/curvature_jobs.hpp"
#include "torch_adapter/group_over_communicator.hpp"
#include "torch_adapter/host_reads.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using ::testing::HasSubstr;

constexpr const char* kMarquardtRanks = "of the suite";
constexpr double kFirstDamping = 5;

KfacOptions by_rule(InverseMethod method = InverseMethod::cholesky) {
  return {.loss_average = LossAverage{},
          .method = method,
          .factor_interval = 1,
          .inverse_interval = 2,
          .levenberg_marquardt =
              LevenbergMarquardtOptions{.start = kFirstDamping, .every = 2, .l2 = 1e-3}};
}

/// A model that ranks train together, by either code.
template <typename Model>
struct MarquardtJob {
  MarquardtJob(Communicator& c, const std::string& strategy, const std::string& device_group,
               const KfacOptions& options = by_rule())
      : pre(std::make_unique<KFAC>(*net, options)),
        parallel(std::make_unique<DataParallel>(*net, c,
                                                DataParallelOptions{.strategy = strategy,
                                                                    .measured_steps = 2,
                                                                    .preconditioner = pre.get(),
                                                                    .device_group = device_group})),
        optimizer(net->parameters(), 1.0) {}

  /// Another preconditioner and exchange for the same weights, by the other code or the same.
  void go_on(Communicator& c, const std::string& strategy, const std::string& device_group) {
    const KfacState state = kfac_state_of(to_tensors(parallel->curvature_state()), "a file");
    parallel.reset();
    pre = std::make_unique<KFAC>(*net, by_rule());
    parallel = std::make_unique<DataParallel>(
        *net, c,
        DataParallelOptions{
            .strategy = strategy, .preconditioner = pre.get(), .device_group = device_group});
    parallel->load_curvature_state(state);
  }
  /// Returns the loss; its graph is kept.
  torch::Tensor pass(const Data& data) {
    optimizer.zero_grad();
    const torch::Tensor output = net(data.inputs);
    pre->loss_of(output, LossKind::squared_error);
    const torch::Tensor loss = loss_of_output(output, data);
    loss.backward({}, /*retain_graph=*/true);
    return loss;
  }
  KfacStep step(const torch::Tensor& loss, const Data& data) {
    host_waits += parallel->finish().host_waits;
    const KfacStep report = pre->step();
    optimizer.step();
    if (pre->wants_loss()) {
      const torch::NoGradGuard no_grad;
      pre->observe_loss(loss, loss_of(net, data));
    }
    return report;
  }

  Model net;
  std::unique_ptr<KFAC> pre;
  std::unique_ptr<DataParallel> parallel;
  torch::optim::SGD optimizer;
  std::int64_t host_waits = 0;
};

struct MarquardtRun {
  std::vector<torch::Tensor> weights;
  std::vector<double> dampings;  // the last one with what the last losses say
  int values_read = 0;
  std::int64_t host_waits = 0;
};

template <typename Model>
MarquardtRun train_by_rule(Communicator& c, const std::string& strategy, const Data& mine,
                           const std::string& device_group, bool uneven) {
  std::optional<CpuAsDevice> as_device;
  if (!device_group.empty()) as_device.emplace();
  MarquardtJob<Model> job(c, strategy, device_group);
  MarquardtRun run;
  const HostReads reads;
  for (int step = 0; step < kSteps; ++step) {
    const int before = HostReads::count();
    const std::uint64_t plan = job.parallel->plan().hash();
    if (uneven) job.parallel->set_batch(mine.inputs.size(0));
    run.dampings.push_back(job.step(job.pass(mine), mine).damping);
    // Another plan may give layers other owners, by way of the host.
    if (job.parallel->plan().hash() == plan) run.values_read += HostReads::count() - before;
  }
  job.parallel->require_same_weights("at the end");
  run.weights = weights_of(*job.net);
  run.dampings.push_back(job.parallel->curvature_state().lm_damping);
  run.host_waits = job.host_waits;
  return run;
}

void expect_same_run(const MarquardtRun& found, const MarquardtRun& expected,
                     const std::string& title) {
  EXPECT_LT(largest_difference(found.weights, expected.weights), 1e-9) << title;
  EXPECT_EQ(found.host_waits, 0) << title;
  EXPECT_EQ(found.values_read, 0) << title;
  EXPECT_GT(expected.values_read, 0) << title;
  ASSERT_EQ(found.dampings.size(), expected.dampings.size()) << title;
  for (std::size_t i = 0; i < found.dampings.size(); ++i)
    EXPECT_NEAR(found.dampings[i], expected.dampings[i], 1e-9) << title << ", step " << i;
  EXPECT_NE(expected.dampings.back(), kFirstDamping) << title;
}

class StreamedMarquardt : public ::testing::TestWithParam<int> {};

TEST_P(StreamedMarquardt, EndsAtTheSameWeights) {
  const Data images = Data::whole(), tokens = Data::of_tokens();
  const std::string one_row = "hybrid, fraction=" + std::to_string(1.0 / GetParam());
  for (const std::string& kfac :
       {std::string("d"), std::string("mpd"), std::string("mem"), one_row, std::string("spd")}) {
    const std::string strategy = "ddp+kfac(" + kfac + ", inverses=2)";
    comm::run_ranks(GetParam(), [&](Communicator& c) {
      const GroupOverCommunicator group(kMarquardtRanks, c);
      const auto compare = [&]<typename Model>(const Data& mine, bool uneven) {
        expect_same_run(train_by_rule<Model>(c, strategy, mine, kMarquardtRanks, uneven),
                        train_by_rule<Model>(c, strategy, mine, "", uneven),
                        strategy + (uneven ? ", uneven" : ""));
      };
      compare.template operator()<Net>(images.of(c), false);
      compare.template operator()<TokenNet>(tokens.of(c, true), true);
    });
  }
}

/// Two rows of two columns.
TEST(StreamedMarquardtOfHybrid, EndsAtTheSameWeights) {
  const Data images = Data::whole();
  const std::string strategy = "ddp+kfac(hybrid, fraction=0.5, inverses=2)";
  comm::run_ranks(4, [&](Communicator& c) {
    const GroupOverCommunicator group(kMarquardtRanks, c);
    expect_same_run(train_by_rule<Net>(c, strategy, images.of(c), kMarquardtRanks, false),
                    train_by_rule<Net>(c, strategy, images.of(c), "", false), strategy);
  });
}

/// A layer that nobody uses in a step has no part in its update, and in the momentum of none.
TEST_P(StreamedMarquardt, FollowsWhatProgramsDo) {
  const Data images = Data::whole();
  comm::run_ranks(GetParam(), [&](Communicator& c) {
    const GroupOverCommunicator group(kMarquardtRanks, c);
    const Data mine = images.of(c);
    const auto run = [&](const std::string& device_group) {
      MarquardtJob<Net> job(c, "ddp+kfac(spd, inverses=2)", device_group);
      for (int step = 0; step < kSteps; ++step) {
        torch::Tensor loss = job.pass(mine);
        if (step == 7) {
          job.parallel->skip_step();
          continue;
        }
        if (step == 5) {  // one layer alone
          job.parallel->skip_step();
          job.optimizer.zero_grad();
          const torch::Tensor output = job.net->head(torch::ones({4, 8}, torch::kDouble));
          job.pre->loss_of(output, LossKind::squared_error);
          loss = output.square().sum() / 4;
          loss.backward({}, /*retain_graph=*/true);
        }
        if (step == 8) job.net->head->weight.mutable_grad().mul_(2);  // after it was sent
        job.step(loss, mine);
      }
      auto all = weights_of(*job.net);
      all.push_back(torch::tensor(job.parallel->curvature_state().lm_damping, torch::kDouble));
      return all;
    };
    EXPECT_LT(largest_difference(run(kMarquardtRanks), run("")), 1e-9);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, StreamedMarquardt, ::testing::Values(1, 2, 3));

/// A KFAC that nobody shares, by the code for devices.
std::vector<torch::Tensor> alone_by_rule(const Data& data, const KfacOptions& options,
                                         bool enqueues) {
  Net net;
  KFAC pre(*net, options);
  KfacInside::preconditioner(pre).set_enqueues(enqueues);
  torch::optim::SGD optimizer(net->parameters(), 1.0);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const torch::Tensor output = net(data.inputs);
    const torch::Tensor loss = loss_of_output(output, data);
    loss.backward({}, /*retain_graph=*/true);
    pre.step(output, LossKind::squared_error);
    optimizer.step();
    if (!pre.wants_loss()) continue;
    const torch::NoGradGuard no_grad;
    pre.observe_loss(loss, loss_of(net, data));
  }
  KfacInside::preconditioner(pre).set_enqueues(false);  // what was decided there holds here
  auto all = weights_of(*net);
  all.push_back(torch::tensor(pre.save().lm_damping, torch::kDouble));
  return all;
}

TEST(EnqueuedMarquardt, OfOneRankEndsAtTheSameWeights) {
  for (const InverseMethod method : {InverseMethod::cholesky, InverseMethod::eigen}) {
    const auto expected = alone_by_rule(Data::whole(), by_rule(method), false);
    EXPECT_NE(expected.back().item<double>(), kFirstDamping);
    const CpuAsDevice as_device;
    EXPECT_LT(largest_difference(alone_by_rule(Data::whole(), by_rule(method), true), expected),
              1e-9);
  }
}

/// Between steps all of it is on the host, in the format of the other code.
TEST(StreamedMarquardt, GoesOnFromAStateThatWasSaved) {
  const Data images = Data::whole();
  comm::run_ranks(2, [&](Communicator& c) {
    const GroupOverCommunicator group(kMarquardtRanks, c);
    const std::string strategy = "ddp+kfac(mem, inverses=2)";
    const auto run = [&](bool interrupted, const std::string& first, const std::string& then) {
      MarquardtJob<Net> job(c, strategy, first);
      const Data mine = images.of(c);
      for (int step = 0; step < kSteps; ++step) {
        if (interrupted && step == 5) job.go_on(c, strategy, then);
        job.step(job.pass(mine), mine);
      }
      auto all = weights_of(*job.net);
      all.push_back(torch::tensor(job.parallel->curvature_state().lm_damping, torch::kDouble));
      return all;
    };
    const auto expected = run(false, "", "");
    EXPECT_LT(largest_difference(run(true, kMarquardtRanks, kMarquardtRanks), expected), 1e-9);
    EXPECT_LT(largest_difference(run(true, kMarquardtRanks, ""), expected), 1e-9);
    EXPECT_LT(largest_difference(run(true, "", kMarquardtRanks), expected), 1e-9);
  });
}

TEST(EnqueuedMarquardt, TakesNoStateOfAnotherModel) {
  Net net;
  KFAC pre(*net, by_rule());
  KfacState state = pre.save();
  state.lm_update = {torch::zeros({1}, torch::kDouble)};
  try {
    pre.load(state);
    ADD_FAILURE() << "an update of one parameter for six";
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), HasSubstr("the last update of 6 parameters, found that of 1"));
  }
}

/// One rank's batch is not finite: no rank moves, the loss's change says nothing about the damping,
/// and the last update is still that of the step before.
TEST(StreamedMarquardt, NoWeightEverHoldsWhatIsNotFinite) {
  const Data images = Data::whole();
  comm::run_ranks(2, [&](Communicator& c) {
    const GroupOverCommunicator group(kMarquardtRanks, c);
    MarquardtJob<Net> job(c, "ddp+kfac(spd, inverses=2)", kMarquardtRanks);
    const Data mine = images.of(c);
    Data broken = mine;
    if (c.rank() == 1) broken.inputs = mine.inputs * std::numeric_limits<double>::infinity();
    for (int step = 0; step < 3; ++step) job.step(job.pass(mine), mine);
    const auto before = weights_of(*job.net);
    const double damping = job.parallel->curvature_state().lm_damping;
    EXPECT_NE(damping, kFirstDamping);
    const auto last_update = job.parallel->curvature_state().lm_update;
    EXPECT_GT(last_update.front().abs().max().item<double>(), 0);
    const KfacStep report = job.step(job.pass(broken), broken);  // judged: it is the fourth
    EXPECT_EQ(report.nu, 0);
    EXPECT_EQ(largest_difference(weights_of(*job.net), before), 0);
    EXPECT_EQ(job.parallel->curvature_state().lm_damping, damping);
    EXPECT_EQ(largest_difference(job.parallel->curvature_state().lm_update, last_update), 0);
    EXPECT_EQ(job.step(job.pass(mine), mine).nu, 1);
    EXPECT_GT(largest_difference(weights_of(*job.net), before), 0);
  });
}

/// A rank that cannot look at the loss's curvature: no rank moves, and all hear of it.
TEST(StreamedMarquardt, EndsTheRunWhereOneRankHasNoModel) {
  const Data images = Data::whole();
  comm::run_ranks(2, [&](Communicator& c) {
    const GroupOverCommunicator group(kMarquardtRanks, c);
    MarquardtJob<Net> job(c, "ddp+kfac(d, inverses=2)", kMarquardtRanks);
    const Data mine = images.of(c);
    job.optimizer.zero_grad();
    const torch::Tensor output = job.net(mine.inputs);
    job.pre->loss_of(output, LossKind::squared_error);
    loss_of_output(output, mine).backward({}, /*retain_graph=*/c.rank() != 1);
    const auto before = weights_of(*job.net);
    job.parallel->finish();
    EXPECT_EQ(job.pre->step().nu, 0);
    job.optimizer.step();
    EXPECT_EQ(largest_difference(weights_of(*job.net), before), 0);
    job.pass(mine);
    EXPECT_THROW(job.parallel->finish(), Error);
  });
}

/// Only the device knows at once how many ranks have given their losses.
TEST(StreamedMarquardt, LossesOfSomeRanksEndTheRunAStepLater) {
  const Data images = Data::whole();
  comm::run_ranks(2, [&](Communicator& c) {
    const GroupOverCommunicator group(kMarquardtRanks, c);
    MarquardtJob<Net> job(c, "ddp+kfac(d, inverses=2)", kMarquardtRanks);
    const Data mine = images.of(c);
    const auto step = [&] {
      job.pass(mine);
      job.parallel->finish();
      job.pre->step();
      job.optimizer.step();
    };
    step();
    if (c.rank() == 0) job.pre->observe_loss(2, 1);
    step();
    EXPECT_EQ(job.parallel->curvature_state().lm_damping, kFirstDamping);
    try {
      step();
      ADD_FAILURE() << "a step after losses of one rank of two";
    } catch (const UsageError& e) {
      EXPECT_THAT(e.what(), HasSubstr("on 1 of 2 ranks"));
    }
  });
}

/// Planes of every kind: a direction alone, one parallel to the last update, a model that is not
/// convex.
TEST(EnqueuedMarquardt, FindsTheMinimumThatTheHostFinds) {
  const auto numbers = [](std::vector<double> values) {
    return torch::tensor(values, torch::kDouble);
  };
  const std::vector<QuadraticModel> models = {
      {numbers({-2, 0.5}), numbers({3, 0.25, 2}), numbers({1, 0.5, 4})},
      {numbers({-2, 0}), numbers({3, 0, 0}), numbers({1, 0, 0})},
      {numbers({-2, -4}), numbers({3, 6, 12}), numbers({1, 2, 4})},
      {numbers({-2, 0.5}), numbers({-3, 0, 0}), numbers({1, 0, 0})},
      {numbers({0, 0}), numbers({0, 0, 0}), numbers({0, 0, 0})}};
  for (const QuadraticModel& model : models)
    for (const double l2 : {0.0, 0.5}) {
      const QuadraticStep expected = minimise(model, 0.75, l2);
      const EnqueuedQuadraticStep found =
          enqueue_minimise(model, torch::tensor(0.75, torch::kDouble), l2);
      EXPECT_DOUBLE_EQ(found.direction.item<double>(), expected.direction) << model.slope;
      EXPECT_DOUBLE_EQ(found.momentum.item<double>(), expected.momentum) << model.slope;
      EXPECT_DOUBLE_EQ(found.change.item<double>(), expected.change) << model.slope;
    }
}

}  // namespace
}  // namespace linerate::torch_adapter
