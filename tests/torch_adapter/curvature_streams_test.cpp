// K-FAC by the code for parameters on a device, on the CPU: weights are those of the other code,
// whatever the strategy, and the host waits for nothing.
#include <gmock/gmock.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/torch_adapter/data_parallel.hpp"
#include "linerate/torch_adapter/kfac/factor_inverse.hpp"
#include "linerate/torch_adapter/kfac/preconditioner.hpp"
#include "torch_adapter/curvature_jobs.hpp"
#include "torch_adapter/group_over_communicator.hpp"
#include "torch_adapter/host_reads.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr const char* kThreads = "of the suite";

struct StreamedRun {
  std::vector<torch::Tensor> weights;
  std::vector<KfacStep> reports;
  std::int64_t host_waits = 0;
  int values_read = 0;
  std::set<std::string> groups;  // of ranks that exchange something
};

std::set<std::string> exchanging_groups(const doc::Plan& plan) {
  std::set<std::string> names;
  for (const doc::TaskGraph& graph : plan.variants)
    for (const doc::Task& task : graph.tasks)
      if (doc::is_communication(task.kind)) names.insert(plan.group_of(task).name);
  return names;
}

/// `device_group`: empty, or kThreads.
template <typename Model>
StreamedRun train(Communicator& communicator, const std::string& strategy, const Data& mine,
                  const std::string& device_group, bool uneven = false,
                  const KfacOptions& options = kfac_options()) {
  std::optional<CpuAsDevice> as_device;
  if (!device_group.empty()) as_device.emplace();
  Model net;
  KFAC pre(*net, options);
  DataParallel parallel(*net, communicator,
                        {.strategy = strategy,
                         .measured_steps = 2,
                         .preconditioner = &pre,
                         .device_group = device_group});
  torch::optim::SGD optimizer = optimizer_of(*net);
  StreamedRun result;
  const HostReads reads;
  for (int step = 0; step < kSteps; ++step) {
    const int before = HostReads::count();
    const std::uint64_t plan = parallel.plan().hash();
    optimizer.zero_grad();
    if (uneven) parallel.set_batch(mine.inputs.size(0));
    loss_of(net, mine).backward();
    result.host_waits += parallel.finish().host_waits;
    result.reports.push_back(pre.step());
    optimizer.step();
    // Another plan may give layers other owners, by way of the host.
    if (parallel.plan().hash() == plan) result.values_read += HostReads::count() - before;
  }
  parallel.require_same_weights("at the end");
  result.weights = weights_of(*net);
  result.groups = exchanging_groups(parallel.plan());
  return result;
}

void expect_same(const StreamedRun& found, const StreamedRun& expected, const std::string& title) {
  EXPECT_LT(largest_difference(found.weights, expected.weights), 1e-9) << title;
  EXPECT_EQ(found.host_waits, 0) << title;
  EXPECT_EQ(found.values_read, 0) << title;
  EXPECT_GT(expected.values_read, 0) << title;
  ASSERT_EQ(found.reports.size(), expected.reports.size()) << title;
  for (std::size_t i = 0; i < found.reports.size(); ++i) {
    EXPECT_NEAR(found.reports[i].q, expected.reports[i].q, 1e-9) << title << ", step " << i;
    EXPECT_NEAR(found.reports[i].nu, expected.reports[i].nu, 1e-9) << title << ", step " << i;
  }
}

/// Columns of HYBRID are of equal size, and rows of several would exchange apart from each other.
std::vector<std::string> streamed_strategies(int ranks) {
  std::vector<std::string> all = strategies();
  for (std::string& kfac : all)
    if (const auto at = kfac.find("fraction=0.5"); at != std::string::npos)
      kfac.replace(at, 12, "fraction=" + std::to_string(1.0 / ranks));
  all.push_back("kfac(dp, factors=2, inverses=4)");
  return all;
}

class StreamedCurvature : public ::testing::TestWithParam<int> {};

TEST_P(StreamedCurvature, EndsAtTheSameWeights) {
  const Data images = Data::whole(), tokens = Data::of_tokens();
  for (const std::string& kfac : streamed_strategies(GetParam()))
    for (const char* exchange : {"ddp+", "ddp(first=64B,bucket=512B)+", "bulk+"}) {
      const std::string strategy = exchange + kfac;
      comm::run_ranks(GetParam(), [&](Communicator& c) {
        const GroupOverCommunicator group(kThreads, c);
        expect_same(train<Net>(c, strategy, images.of(c), kThreads),
                    train<Net>(c, strategy, images.of(c), ""), strategy);
        expect_same(train<TokenNet>(c, strategy, tokens.of(c, true), kThreads, true),
                    train<TokenNet>(c, strategy, tokens.of(c, true), "", true),
                    strategy + ", embeddings and norms, uneven");
      });
    }
}

/// Its layers that nobody uses in a step, statistics of several passes, steps that do not count.
TEST_P(StreamedCurvature, FollowsWhatProgramsDo) {
  const Data images = Data::whole();
  comm::run_ranks(GetParam(), [&](Communicator& c) {
    const GroupOverCommunicator group(kThreads, c);
    const Data mine = images.of(c);
    const auto weights = [&](const std::string& device_group) {
      Net net;
      KFAC pre(*net, kfac_options());
      DataParallel parallel(*net, c,
                            {.strategy = "ddp+kfac(spd, factors=2, inverses=4)",
                             .preconditioner = &pre,
                             .device_group = device_group});
      torch::optim::SGD optimizer = optimizer_of(*net);
      for (int step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        if (step % 3 == 1) parallel.accumulate([&] { loss_of(net, mine).backward(); });
        if (step == 5) {  // one layer alone
          net->head(torch::ones({4, 8}, torch::kDouble)).square().sum().backward();
        } else {
          loss_of(net, mine).backward();
        }
        if (step == 7) {
          parallel.skip_step();
          continue;
        }
        if (step == 8) net->head->weight.mutable_grad().mul_(2);  // after it was sent
        parallel.finish();
        pre.step();
        optimizer.step();
      }
      return weights_of(*net);
    };
    EXPECT_LT(largest_difference(weights(kThreads), weights("")), 1e-9);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, StreamedCurvature, ::testing::Values(1, 2, 3));

/// dear's gradients have all come before any is preconditioned.
TEST(StreamedCurvatureOfDear, EndsAtTheSameWeights) {
  const Data images = Data::whole();
  comm::run_ranks(2, [&](Communicator& c) {
    const GroupOverCommunicator group(kThreads, c);
    const std::string strategy = "dear+kfac(spd, clip=off, factors=2, inverses=4)";
    KfacOptions options = kfac_options();
    options.kl_clip = 0;
    const StreamedRun found = train<Net>(c, strategy, images.of(c), kThreads, false, options);
    const StreamedRun expected = train<Net>(c, strategy, images.of(c), "", false, options);
    EXPECT_LT(largest_difference(found.weights, expected.weights), 1e-9);
    EXPECT_EQ(found.host_waits, 0);
  });
}

/// A K-FAC that nobody shares, by the code for devices.
template <typename Model>
std::vector<torch::Tensor> alone(const Data& data, const KfacOptions& options, bool enqueues) {
  Model net;
  KFAC pre(*net, options);
  KfacInside::preconditioner(pre).set_enqueues(enqueues);
  torch::optim::SGD optimizer = optimizer_of(*net);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    loss_of(net, data).backward();
    pre.step();
    optimizer.step();
  }
  return weights_of(*net);
}

TEST(EnqueuedCurvature, OfOneRankEndsAtTheSameWeights) {
  for (const InverseMethod method : {InverseMethod::cholesky, InverseMethod::eigen}) {
    const KfacOptions options = kfac_options(method);
    const auto images = alone<Net>(Data::whole(), options, false);
    const auto tokens = alone<TokenNet>(Data::of_tokens(), options, false);
    const CpuAsDevice as_device;
    EXPECT_LT(largest_difference(alone<Net>(Data::whole(), options, true), images), 1e-9);
    EXPECT_LT(largest_difference(alone<TokenNet>(Data::of_tokens(), options, true), tokens), 1e-9);
  }
}

/// One rank's batch is not finite: all gradients count as zero, its factors are dropped, and after
/// as many in a row as the options allow no rank goes on.
TEST(StreamedCurvature, NoWeightEverHoldsWhatIsNotFinite) {
  const Data images = Data::whole();
  comm::run_ranks(2, [&](Communicator& c) {
    const GroupOverCommunicator group(kThreads, c);
    KfacOptions options = kfac_options();
    options.factor_interval = options.inverse_interval = 1;
    Net net;
    KFAC pre(*net, options);
    DataParallel parallel(
        *net, c, {.strategy = "ddp+kfac(spd)", .preconditioner = &pre, .device_group = kThreads});
    torch::optim::SGD optimizer(net->parameters(), kRate);
    const auto step = [&](bool breaks) {
      Data mine = images.of(c);
      if (breaks && c.rank() == 1)
        mine.inputs = mine.inputs * std::numeric_limits<double>::infinity();
      optimizer.zero_grad();
      loss_of(net, mine).backward();
      parallel.finish();
      const KfacStep report = pre.step();
      optimizer.step();
      return report;
    };
    EXPECT_THAT(step(false).failures, SizeIs(0));
    const std::vector<torch::Tensor> before = weights_of(*net);
    for (int broken = 0; broken < 3; ++broken) {
      const KfacStep report = step(true);
      EXPECT_EQ(report.nu, 0);
      EXPECT_THAT(report.failures, SizeIs(::testing::Ge(2)));
      EXPECT_EQ(largest_difference(weights_of(*net), before), 0);
    }
    try {
      step(false);
      ADD_FAILURE() << "a step after three whose factors were dropped";
    } catch (const InputError& e) {
      EXPECT_THAT(e.what(), HasSubstr("3 times in a row"));
    }
    EXPECT_EQ(largest_difference(weights_of(*net), before), 0);
  });
}

/// How many eigendecompositions a rank's steps ask for, by the Plan.
std::int64_t eigendecompositions(const doc::Plan& plan, std::string_view variant, int rank) {
  const doc::TaskGraph& graph = plan.variants.at(to_index(plan.variant_index(variant)));
  return std::count_if(graph.tasks.begin(), graph.tasks.end(), [&](const doc::Task& task) {
    return doc::is_eigendecomposition(plan, task) && plan.group_of(task).holds(rank);
  });
}

/// The host waits for the status of each solver, and for nothing else.
template <typename Model>
std::vector<torch::Tensor> by_eigenvectors(Communicator& c, const std::string& strategy,
                                           const Data& mine, bool there) {
  std::optional<CpuAsDevice> as_device;
  if (there) as_device.emplace();
  Model net;
  KFAC pre(*net, kfac_options(InverseMethod::eigen));
  DataParallel parallel(*net, c,
                        {.strategy = strategy,
                         .measured_steps = 2,
                         .preconditioner = &pre,
                         .device_group = there ? kThreads : ""});
  torch::optim::SGD optimizer = optimizer_of(*net);
  const HostReads reads;
  std::int64_t waits = 0;
  for (int step = 0; step < kSteps; ++step) {
    const int before = HostReads::count();
    const doc::Plan plan = parallel.plan();
    optimizer.zero_grad();
    parallel.set_batch(mine.inputs.size(0));
    loss_of(net, mine).backward();
    const StepReport report = parallel.finish();
    pre.step();
    optimizer.step();
    if (!there) continue;
    const std::int64_t solved = eigendecompositions(plan, report.variant, c.rank());
    EXPECT_EQ(report.host_waits, solved) << strategy << ", step " << step;
    waits += report.host_waits;
    if (parallel.plan().hash() == plan.hash()) {
      EXPECT_EQ(HostReads::count() - before, solved) << strategy << ", step " << step;
    }
  }
  // D decomposes on every rank, the others on some.
  std::int64_t all = waits;
  c.all_reduce(comm::buffer(std::span(&all, 1)), comm::Reduce::sum, "waits")->wait();
  EXPECT_EQ(all > 0, there);
  return weights_of(*net);
}

TEST_P(StreamedCurvature, ByEigenvectorsEndsAtTheSameWeights) {
  const Data images = Data::whole(), tokens = Data::of_tokens();
  for (const std::string& kfac : streamed_strategies(GetParam()))
    comm::run_ranks(GetParam(), [&](Communicator& c) {
      const GroupOverCommunicator group(kThreads, c);
      const std::string strategy = "ddp+" + kfac;
      const auto compare = [&]<typename Model>(const Data& mine) {
        EXPECT_LT(largest_difference(by_eigenvectors<Model>(c, strategy, mine, true),
                                     by_eigenvectors<Model>(c, strategy, mine, false)),
                  1e-9)
            << strategy;
      };
      compare.template operator()<Net>(images.of(c, true));
      compare.template operator()<TokenNet>(tokens.of(c, true));
    });
}

/// Two rows of two columns: inverses travel in a column, directions in a row, each in a group of
/// its own.
TEST(StreamedCurvatureOfHybrid, EndsAtTheSameWeights) {
  const Data images = Data::whole(), tokens = Data::of_tokens();
  for (const std::string strategy :
       {"ddp+kfac(hybrid, fraction=0.5, factors=2, inverses=4)",
        "ddp(first=64B,bucket=512B)+kfac(hybrid, fraction=0.5, broadcasts=single, factors=2, "
        "inverses=4)",
        "bulk+kfac(hybrid, fraction=0.5, factors=2, inverses=4)"})
    comm::run_ranks(4, [&](Communicator& c) {
      const GroupOverCommunicator group(kThreads, c);
      const StreamedRun found = train<Net>(c, strategy, images.of(c), kThreads);
      expect_same(found, train<Net>(c, strategy, images.of(c), ""), strategy);
      EXPECT_THAT(found.groups, ElementsAre("column 0", "column 1", "rows", "whole"));
      expect_same(train<TokenNet>(c, strategy, tokens.of(c, true), kThreads, true),
                  train<TokenNet>(c, strategy, tokens.of(c, true), "", true),
                  strategy + ", embeddings and norms, uneven");
    });
}

TEST(StreamedCurvatureOfHybrid, IsRefusedOverABackEndThatMakesNoParts) {
  comm::run_ranks(4, [&](Communicator& c) {
    const GroupOverCommunicator group(kThreads, c, {.has_no_parts = true});
    Net net;
    KFAC pre(*net, kfac_options());
    try {
      const DataParallel parallel(*net, c,
                                  {.strategy = "ddp+kfac(hybrid, fraction=0.5)",
                                   .preconditioner = &pre,
                                   .device_group = kThreads});
      ADD_FAILURE() << "columns exchange by themselves";
    } catch (const UsageError& e) {
      EXPECT_THAT(e.what(), HasSubstr("a part of its ranks, and a store, found \"communicator\""));
    }
  });
}

TEST(StreamedCurvatureOfHybrid, ByEigenvectorsEndsAtTheSameWeights) {
  const Data images = Data::whole();
  const std::string strategy = "ddp+kfac(hybrid, fraction=0.5, factors=2, inverses=4)";
  comm::run_ranks(4, [&](Communicator& c) {
    const GroupOverCommunicator group(kThreads, c);
    EXPECT_LT(largest_difference(by_eigenvectors<Net>(c, strategy, images.of(c), true),
                                 by_eigenvectors<Net>(c, strategy, images.of(c), false)),
              1e-9);
  });
}

/// Between steps all of it is on the host, in the format of the other code.
TEST(StreamedCurvature, GoesOnFromAStateThatWasSaved) {
  const Data images = Data::whole();
  comm::run_ranks(2, [&](Communicator& c) {
    const GroupOverCommunicator group(kThreads, c);
    const auto run = [&](bool interrupted, const std::string& first, const std::string& then) {
      Net net;
      KfacOptions options = kfac_options();
      options.exact_resume = true;
      auto pre = std::make_unique<KFAC>(*net, options);
      const auto share = [&](const std::string& device_group) {
        return std::make_unique<DataParallel>(
            *net, c,
            DataParallelOptions{.strategy = "ddp+kfac(mpd, factors=2, inverses=4)",
                                .preconditioner = pre.get(),
                                .device_group = device_group});
      };
      auto parallel = share(first);
      torch::optim::SGD optimizer = optimizer_of(*net);
      for (int step = 0; step < kSteps; ++step) {
        if (interrupted && step == 7) {
          const KfacState state = parallel->curvature_state();
          parallel.reset();
          pre = std::make_unique<KFAC>(*net, options);
          parallel = share(then);
          parallel->load_curvature_state(state);
        }
        optimizer.zero_grad();
        loss_of(net, images.of(c)).backward();
        parallel->finish();
        pre->step();
        optimizer.step();
      }
      return weights_of(*net);
    };
    const auto expected = run(false, "", "");
    EXPECT_LT(largest_difference(run(true, kThreads, kThreads), expected), 1e-9);
    EXPECT_LT(largest_difference(run(true, kThreads, ""), expected), 1e-9);
    EXPECT_LT(largest_difference(run(true, "", kThreads), expected), 1e-9);
  });
}

}  // namespace
}  // namespace linerate::torch_adapter
