// K-FAC shared among ranks: by every strategy, behind every exchange, executed and enqueued, ranks
// take the steps that one rank with all samples takes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <torch/utils.h>

#include <cmath>
#include <set>
#include <span>

#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "support/sample_workloads.hpp"
#include "torch_adapter/curvature_jobs.hpp"
#include "torch_adapter/group_over_communicator.hpp"
#include "torch_adapter/rank_tests.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr auto on_threads = [](int ranks, const auto& work) { comm::run_ranks(ranks, work); };

/// The code for processors, and that for devices, on the CPU: its host waits for the status of each
/// eigendecomposition and for nothing else (trained()).
const std::vector<std::string> kProcessor = {""}, kBothCodes = {"", kGroup};

/// Jobs that are alike but for their strategies.
struct Row {
  std::vector<std::string> exchanges = {"ddp+"}, kfacs = strategies();
  CurvatureJob job = {};
  std::vector<std::string> codes = kProcessor;
};

/// Every job of the rows, by each code, ends at the weights of one rank, with its q and nu.
template <typename Model = Net>
void expect_weights_of_one_rank(int ranks, const std::vector<Row>& rows,
                                const Data& whole = Data::whole()) {
  for (const Row& row : rows) {
    CurvatureJob job = row.job;
    const bool is_eigen = job.options.method == InverseMethod::eigen;
    const auto expected = trained<Model>(nullptr, whole, {.options = job.options});
    const auto expect_those = [&](Communicator& c) {
      const std::string title =
          fmt::format("{}, {} ranks{}{}{}{}", job.strategy, ranks, is_eigen ? ", eigen" : "",
                      job.uneven ? ", uneven" : "", job.in_one_call ? ", in one call" : "",
                      job.device_group.empty() ? "" : ", enqueued");
      const TrainedCurvature found = trained<Model>(&c, whole, job);
      EXPECT_LT(largest_difference(found.weights, expected.weights), 1e-9) << title;
      std::int64_t all_waits = found.host_waits;  // on some ranks
      c.all_reduce(comm::buffer(std::span(&all_waits, 1)), comm::Reduce::sum, "waits")->wait();
      EXPECT_EQ(all_waits > 0, !job.device_group.empty() && is_eigen) << title;
      if (job.in_one_call || job.strategy.starts_with("dear")) return;  // nobody says q
      for (std::size_t i = 0; i < found.reports.size(); ++i) {
        EXPECT_NEAR(found.reports[i].q, expected.reports[i].q, 1e-9) << title << ", step " << i;
        EXPECT_NEAR(found.reports[i].nu, expected.reports[i].nu, 1e-9) << title << ", step " << i;
      }
    };
    for (const std::string& exchange : row.exchanges)
      for (const std::string& kfac : row.kfacs)
        for (const std::string& code : row.codes) {
          job.strategy = exchange + kfac;
          job.device_group = code;
          in_group(on_threads, ranks, expect_those);
        }
  }
}

/// In one call.
CurvatureJob job_without_clip(const std::string& exchange, const std::string& sharing) {
  return {.strategy = exchange + "+" + without_clip(sharing),
          .options = without_clip(),
          .in_one_call = true};
}

class SharedCurvature : public ::testing::TestWithParam<int> {};

TEST_P(SharedCurvature, EveryStrategyTakesTheStepsOfOneRankWithAllSamples) {
  const CurvatureJob eigen{.options = kfac_options(InverseMethod::eigen)};
  CurvatureJob uneven_eigen = eigen;
  uneven_eigen.uneven = true;  // signs, and any basis of equal eigenvalues, are the owner's
  CurvatureJob reduced;
  reduced.options.shared_positions = SharedPositions::reduce;
  const std::vector<std::string> exchanges = {"ddp+", "ddp(first=64B,bucket=512B)+", "bulk+"};
  expect_weights_of_one_rank(GetParam(),
                             {{exchanges, strategies(), {.measured_steps = 2}, kBothCodes},
                              {.job = {.uneven = true}, .codes = kBothCodes},
                              {.job = uneven_eigen, .codes = kBothCodes},
                              {.job = reduced, .codes = kBothCodes}});
  expect_weights_of_one_rank<TokenNet>(
      GetParam(),
      {{exchanges, strategies(), {.uneven = true, .measured_steps = 2}, kBothCodes},
       {.job = eigen, .codes = kBothCodes}},
      Data::of_tokens());
  const Data data = Data::whole();
  EXPECT_GT(
      largest_difference(trained(nullptr, data, eigen).weights, trained(nullptr, data).weights),
      1e-4);
}

TEST_P(SharedCurvature, WithoutClipTakesTheStepsOfOneRank) {
  const CurvatureJob job{.options = without_clip(), .in_one_call = true};
  expect_weights_of_one_rank(GetParam(),
                             {{{"ddp+"}, {"kfac(spd, clip=off, factors=2, inverses=4)"}, job},
                              {{"bulk+"}, {without_clip("mem")}, job}});
}

/// Directions and updates wait for the first operator that reads a weight.
TEST_P(SharedCurvature, UnderDearTakesTheStepsOfOneRank) {
  for (const InverseMethod method : {InverseMethod::cholesky, InverseMethod::eigen})
    for (const bool in_one_call : {true, false})
      expect_weights_of_one_rank(
          GetParam(),
          {{{"dear+", "dear(layers=1)+", "dear(bucket=64B)+"},
            {without_clip("d"), without_clip("mpd"), without_clip("spd")},
            {.options = without_clip(method), .uneven = in_one_call, .in_one_call = in_one_call}}});
  expect_weights_of_one_rank<TokenNet>(GetParam(),
                                       {{{"dear(bucket=64B)+"},
                                         {"kfac(spd, clip=off, factors=2, inverses=4)"},
                                         {.options = without_clip(), .in_one_call = true}}},
                                       Data::of_tokens());
  KfacOptions no_clip = kfac_options();
  no_clip.kl_clip = 0;
  expect_weights_of_one_rank(GetParam(), {{{"dear+"},
                                           {"kfac(spd, clip=off, factors=2, inverses=4)"},
                                           {.options = no_clip, .measured_steps = 2},
                                           kBothCodes}});
}

/// Codes every gradient and loses nothing: what arrives is decoded before it is preconditioned.
TEST_P(SharedCurvature, UnderALosslessCompressorEndsAtDenseWeights) {
  const Data data = Data::whole().in(torch::kFloat);
  for (const std::string kfac : {"d", "mem", "spd"})
    comm::run_ranks(GetParam(), [&](Communicator& c) {
      const auto weights = [&](const std::string& exchange) {
        return trained(&c, data, job_without_clip(exchange, kfac)).weights;
      };
      EXPECT_LT(
          largest_difference(weights("ddp+threshold(tau=1e-30, dense_below=0)"), weights("ddp")),
          1e-5)
          << kfac;
    });
}

TEST_P(SharedCurvature, UnderEveryCompressorRanksEndAtTheSameWeights) {
  const Data data = Data::whole().in(torch::kFloat);
  for (const std::string& name : compress::compressors().names())
    comm::run_ranks(GetParam(), [&](Communicator& c) {
      const CurvatureJob job = job_without_clip("ddp+" + small_enough(name), "spd");
      for (const torch::Tensor& w : trained(&c, data, job).weights)  // the same on every rank
        EXPECT_TRUE(w.isfinite().all().item<bool>()) << name;
    });
}

/// finish() has waited for all gradients: the step is skipped as behind other exchanges. A's sums
/// of the other batch are finite, and must not stay in the averages.
TEST_P(SharedCurvature, UnderDearABatchThatIsNotFiniteIsSkipped) {
  const Data data = Data::whole(), other = Data::whole(7);
  for (const std::string kfac : {"d", "mpd", "spd"}) {
    const CurvatureJob job{.strategy = "dear+" + without_clip(kfac), .options = without_clip()};
    comm::run_ranks(GetParam(), [&](Communicator& c) {
      const auto weights = [&](bool interrupted) {
        Program<> program(&c, job);
        for (int step = 0; step < kSteps; ++step) {
          if (interrupted && step % 2 == 0) {
            EXPECT_TRUE(program.step(other.of(c), c.rank() == 1 ? std::nan("") : 1).skipped);
          }
          EXPECT_FALSE(program.step(data.of(c)).skipped);
        }
        return program.weights();
      };
      EXPECT_LT(largest_difference(weights(true), weights(false)), 1e-12) << job.strategy;
    });
  }
}

/// Owners, messages and their order follow what steps measure; averages and inverses follow them.
TEST_P(SharedCurvature, PlansAgainWithoutChangingTheNumbers) {
  const Data data = Data::whole();
  const std::vector<torch::Tensor> expected = trained(nullptr, data).weights;
  std::size_t changes = 0;
  for (const std::string& kfac : strategies()) {
    std::vector<std::set<std::uint64_t>> plans(to_index(GetParam()));
    expect_weights("ddp+" + kfac + ", planned again", GetParam(), expected, [&](Communicator& c) {
      Program<> program(&c, {.strategy = "ddp+" + kfac,
                             .in_one_call = true,
                             .measured_steps = 1,
                             .replan_above = 0});  // whatever departs at all
      for (int step = 0; step < kSteps; ++step) {
        program.step(data.of(c));
        plans[to_index(c.rank())].insert(program.parallel->plan().hash());
      }
      EXPECT_FALSE(program.parallel->plan_is_final());
      return program.weights();
    });
    for (const auto& mine : plans) EXPECT_EQ(mine, plans[0]) << kfac;
    changes += plans[0].size() - 1;
  }
  EXPECT_GT(changes, strategies().size());  // each plans by order after the first step
}

/// Each factor sees the samples of one rank alone.
TEST_P(SharedCurvature, DpTakesThemWhereAllRanksSeeTheSame) {
  const Data data = Data::whole(),
             alike{data.inputs.repeat({GetParam(), 1, 1, 1}), data.targets.repeat({GetParam(), 1})};
  const CurvatureJob eigen{.options = kfac_options(InverseMethod::eigen)};
  expect_weights_of_one_rank(
      GetParam(),
      {{{"ddp+"}, {"kfac(dp, factors=2, inverses=4)"}, {}, kBothCodes},
       {{"ddp+"}, {"kfac(dp, inverse=eigen, factors=2, inverses=4)"}, eigen, kBothCodes}},
      alike);
  const auto expected = trained(nullptr, data).weights;
  comm::run_ranks(GetParam(), [&](Communicator& c) {
    const CurvatureJob job{.strategy = "ddp+kfac(dp, factors=2, inverses=4)"};
    EXPECT_GT(largest_difference(trained(&c, data, job).weights, expected), 1e-6);
  });
}

/// Of sizes at which products round differently with the layout of their operands (10 and less), or
/// would with solvers' blocks.
TEST_P(SharedCurvature, LeavesTheSameBitsOnEveryRank) {
  const Data data{torch::randn({32, 9}), torch::randn({32, 130})};
  for (const std::string& strategy : strategies())
    comm::run_ranks(GetParam(), [&](Communicator& c) {
      Program<torch::nn::Sequential> program(&c, {.strategy = strategy, .in_one_call = true},
                                             torch::kFloat, layers({9, 64, 10, 130}));
      for (int step = 0; step < 3; ++step) program.step(data.of(c));
      EXPECT_NO_THROW(program.weights());
    });
}

INSTANTIATE_TEST_SUITE_P(Ranks, SharedCurvature, ::testing::Values(2, 4));

// ---- steps that are enqueued, by the code for devices: what the other code does

class EnqueuedCurvature : public ::testing::TestWithParam<int> {};

/// Layers that nobody uses in a step, statistics of several passes, steps that do not count.
TEST_P(EnqueuedCurvature, FollowsWhatProgramsDo) {
  const Data images = Data::whole();
  in_group(on_threads, GetParam(), [&](Communicator& c) {
    const Data mine = images.of(c);
    const auto weights = [&](const std::string& device_group) {
      CurvatureJob job{.strategy = "ddp+kfac(spd, factors=2, inverses=4)",
                       .device_group = device_group};
      Program<> program(&c, job);
      program.as_device.reset();
      for (int step = 0; step < kSteps; ++step) {
        program.optimizer.zero_grad();
        if (step % 3 == 1)
          program.parallel->accumulate([&] { loss_of(program.net, mine).backward(); });
        if (step == 5) {  // one layer alone
          program.net->head(torch::ones({4, 8}, torch::kDouble)).square().sum().backward();
        } else {
          loss_of(program.net, mine).backward();
        }
        if (step == 7) {
          program.parallel->skip_step();
          continue;
        }
        if (step == 8) program.net->head->weight.mutable_grad().mul_(2);  // after it was sent
        program.parallel->finish();
        program.update();
      }
      return weights_of(*program.net);
    };
    EXPECT_LT(largest_difference(weights(kGroup), weights("")), 1e-9);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, EnqueuedCurvature, ::testing::Values(1, 2, 3));

/// Two rows of two columns: inverses travel in a column, directions in a row, each in a group of
/// its own.
TEST(EnqueuedCurvature, OfHybridExchangesInRowsAndColumns) {
  const std::string half = "kfac(hybrid, fraction=0.5, factors=2, inverses=4)";
  const std::string single = "kfac(hybrid, fraction=0.5, broadcasts=single, factors=2, inverses=4)";
  const std::string small = "ddp(first=64B,bucket=512B)+";
  expect_weights_of_one_rank(4, {{{small}, {single}, {.measured_steps = 2}, kBothCodes}});
  for (const std::string& strategy : {"ddp+" + half, small + single, "bulk+" + half})
    in_group(on_threads, 4, [&](Communicator& c) {
      std::set<std::string> groups;  // of ranks that exchange something
      Program<> program(&c, {.strategy = strategy, .device_group = kGroup});
      const doc::Plan& plan = program.parallel->plan();
      for (const doc::TaskGraph& graph : plan.variants)
        for (const doc::Task& task : graph.tasks)
          if (doc::is_communication(task.kind)) groups.insert(plan.group_of(task).name);
      EXPECT_THAT(groups, ElementsAre("column 0", "column 1", "rows", "whole"));
    });
}

TEST_ON(EnqueuedCurvature, OfHybridIsRefusedOverABackEndThatMakesNoParts, comm::run_ranks, 4) {
  const GroupOverCommunicator group(kGroup, communicator, {.has_no_parts = true});
  EXPECT_THAT(thrown_by([&] {
                Program<>(&communicator,
                          {.strategy = "ddp+kfac(hybrid, fraction=0.5)", .device_group = kGroup});
              }),
              HasSubstr("a part of its ranks, and a store, found \"communicator\""));
}

/// One rank's batch is not finite: all gradients count as zero, its factors are dropped, and after
/// as many in a row as the options allow no rank goes on.
TEST(EnqueuedCurvature, NoWeightEverHoldsWhatIsNotFinite) {
  const Data images = Data::whole();
  in_group(on_threads, 2, [&](Communicator& c) {
    CurvatureJob job{.strategy = "ddp+kfac(spd)", .device_group = kGroup, .momentum = 0};
    job.options.factor_interval = job.options.inverse_interval = 1;
    Program<> program(&c, job);
    program.as_device.reset();
    const auto step = [&](bool breaks) {
      Data mine = images.of(c);
      if (breaks && c.rank() == 1) mine.inputs = mine.inputs * HUGE_VAL;
      return program.step(mine);
    };
    EXPECT_THAT(step(false).failures, SizeIs(0));
    const std::vector<torch::Tensor> before = weights_of(*program.net);
    for (int broken = 0; broken < 3; ++broken) {
      const KfacStep report = step(true);
      EXPECT_EQ(report.nu, 0);
      EXPECT_THAT(report.failures, SizeIs(::testing::Ge(2)));
      EXPECT_EQ(largest_difference(weights_of(*program.net), before), 0);
    }
    EXPECT_THAT(thrown_by<InputError>([&] { step(false); }), HasSubstr("3 times in a row"));
    EXPECT_EQ(largest_difference(weights_of(*program.net), before), 0);
  });
}

/// Between steps all of it is on the host, in the format of the other code.
TEST(EnqueuedCurvature, GoesOnFromAStateThatWasSaved) {
  const Data images = Data::whole();
  in_group(on_threads, 2, [&](Communicator& c) {
    const auto job = [](const std::string& device_group) {
      return CurvatureJob{.strategy = "ddp+kfac(mpd, factors=2, inverses=4)",
                          .device_group = device_group};
    };
    const auto expected = resumed(c, job(""), job(""), images.of(c), kSteps);
    for (const auto& [first, then] : {std::pair{kGroup, kGroup}, {kGroup, ""}, {"", kGroup}}) {
      const auto found = resumed(c, job(first), job(then), images.of(c), 7);
      EXPECT_LT(largest_difference(found, expected), 1e-9) << first << then;
    }
  });
}

// ---- Plans whose inverses share calls of the solver, by both codes

doc::Cluster cluster_with_calls(int ranks, bool calls) {
  doc::Cluster cluster = support::two_rank_cluster(1e-5, 1e-10);
  cluster.ranks = ranks;
  cluster.second_order = support::second_order_cost();
  if (calls) cluster.second_order->batches = {{1, 4, 4e-4, 1e-4}, {64, 4, 4e-4, 1e-4}};
  return cluster;
}

struct CallsRun {
  std::vector<torch::Tensor> weights;
  std::int64_t with_next = 0;  // tasks of the last Plan
};

/// Factors of 9 and 8 rows, three of each; f32, which calls are measured in.
CallsRun train_with_calls(Communicator& c, const std::string& strategy, bool calls,
                          const std::string& device_group) {
  Program<torch::nn::Sequential> program(
      &c,
      {.strategy = strategy,
       .options = {.loss_average = LossAverage{}, .kl_clip = 0.0},
       .device_group = device_group,
       .measured_steps = 2,
       .momentum = 0,
       .cluster = cluster_with_calls(c.size(), calls)},
      torch::kFloat, layers({8, 8, 8, 8}));
  for (int step = 0; step < 8; ++step) {
    const at::Tensor x =
        torch::sin(torch::arange(128, at::kFloat) * 12.9898 + (10.0 * step + c.rank()) * 78.233)
            .view({16, 8});
    program.step(Data{x, x.flip(1)}, 1.0 / 8);
  }
  CallsRun run{program.weights()};
  const doc::Plan plan = program.parallel->plan();
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
      in_group(on_threads, ranks, [&](Communicator& c) {
        const std::string strategy = std::string("ddp+") + kfac;
        const CallsRun alone = train_with_calls(c, strategy, false, "");
        EXPECT_EQ(alone.with_next, 0) << strategy;
        for (const std::string& code : kBothCodes) {
          const CallsRun shared = train_with_calls(c, strategy, true, code);
          for (std::size_t p = 0; p < alone.weights.size(); ++p)
            EXPECT_TRUE(shared.weights[p].allclose(alone.weights[p], 1e-4, 1e-5))
                << strategy << ", " << ranks << " ranks, " << code << ", parameter " << p;
          // By spd and mpd a rank's inverses are sent, or there one after the other.
          const bool sends = strategy.find("spd") != std::string::npos ||
                             strategy.find("mpd") != std::string::npos;
          if (ranks == 1 || !sends) {
            EXPECT_GT(shared.with_next, 0) << strategy << ", " << ranks << " ranks";
          }
        }
      });
}

// ---- options and refusals

/// What the options say need not be said in the strategy, nor the other way round; what both say
/// must be the same.
TEST(SharedCurvature, TakesAnOptionFromOneOfTwoPlaces) {
  const KfacOptions nothing = bare_options();
  const auto with = [&](auto&& change) {
    KfacOptions options = nothing;
    change(options);
    return options;
  };
  const auto five = [](std::int64_t) { return 5.0; };
  struct Case {
    const char* strategy;
    KfacOptions options;
    const char* complaint;
  };
  const std::vector<Case> cases = {
      {"kfac(d, damping=5)", with([](auto& o) { o.damping = 0.03; }), "damping=5"},
      {"kfac(d, damping=5)", with([&](auto& o) { o.damping = five; }), "a function of the step"},
      {"kfac(d, decay=0.5)", with([](auto& o) { o.decay = 0.9; }), "decay=0.5"},
      {"kfac(d, kl=0)", with([](auto& o) { o.kl_clip = 1e-3; }), "kl=0"},
      {"kfac(d, clip=off)", with([](auto& o) { o.kl_clip = 1e-3; }), "kl=0"},
      {"kfac(d, kl=0.1)", with([](auto& o) { o.kl_clip = 0; }), "kl=0.1"},
      {"kfac(d, factors=3)", with([](auto& o) { o.factor_interval = 2; }), "factors=3"},
      {"kfac(d, inverses=6)", with([](auto& o) { o.inverse_interval = 4; }), "inverses=6"},
      {"kfac(d)", with([&](auto& o) { o.factor_interval = five; }), "needs a number of steps"},
      {"kfac(d, subsample=2)", nothing, "subsample=2"},
      {"kfac(d, fisher=mc)", nothing, "fisher=mc"},
      {"kfac(d, inverse=eigen)", nothing, "inverse=eigen"},
      {"kfac(d, largest=100)", nothing, "largest=100"},
      {"kfac(d, norms=on)", with([](auto& o) { o.norms = false; }), "norms=on"},
      {"kfac(d, damping=5, kl=0.1, inverses=6)", nothing, ""},
      {"kfac(d, damping=5)", with([](auto& o) { o.damping = 5; }), ""},
      {"kfac(d)", with([](auto& o) { o.factor_interval = 2, o.inverse_interval = 6; }), ""}};
  comm::run_ranks(2, [&](Communicator& c) {
    for (const Case& one : cases) {
      const std::string said =
          thrown_by([&] { Program<>(&c, {.strategy = one.strategy, .options = one.options}); });
      EXPECT_EQ(said.empty(), std::string(one.complaint).empty()) << one.strategy << ": " << said;
      EXPECT_THAT(said, HasSubstr(one.complaint)) << one.strategy;
    }
  });
}

/// Damping, clip and intervals of the strategy are those of the options.
TEST(SharedCurvature, ComputesWithWhatTheStrategySays) {
  const Data data = Data::whole();
  KfacOptions filled = kfac_options();
  filled.damping = 0.5, filled.decay = 0.6, filled.kl_clip = 1e-4;
  const std::vector<torch::Tensor> expected = trained(nullptr, data, {.options = filled}).weights;
  EXPECT_GT(largest_difference(expected, trained(nullptr, data).weights), 1e-4);
  for (const std::string strategy :
       {"kfac(spd)", "kfac(spd, factors=2, inverses=4, damping=0.5, decay=0.6, kl=0.0001)"}) {
    const CurvatureJob job{.strategy = strategy,
                           .options = strategy == "kfac(spd)" ? filled : bare_options()};
    expect_weights(strategy, 2, expected,
                   [&](Communicator& c) { return trained(&c, data, job).weights; });
  }
}

TEST_ON(SharedCurvature, ThatNobodySharesOrThatDearCannotHaveIsRefused, comm::run_ranks, 2) {
  Net net;
  KFAC clipped(*net, kfac_options()), pre(*net, without_clip());
  const auto refused = [&](const std::string& strategy, KFAC* given) {
    return thrown_by([&] {
      DataParallel parallel(*net, communicator, {.strategy = strategy, .preconditioner = given});
    });
  };
  EXPECT_THAT(refused("ddp", &clipped), HasSubstr("+kfac(spd)"));
  EXPECT_THAT(refused("ddp+kfac(spd)", nullptr), HasSubstr("construct a KFAC"));
  EXPECT_THAT(refused("dear+kfac(spd)", &clipped), HasSubstr("clip=off"));
  EXPECT_THAT(refused("dear+kfac(mem, kl=0)", &pre), HasSubstr("directions would travel"));
  EXPECT_THAT(refused("dear+kfac(spd, kl=0)", &pre), IsEmpty());
  EXPECT_THAT(refused("dear+kfac(spd)", &pre), IsEmpty());  // its options say so
}

TEST(DpKfac, WarnsWhereRanksExceedLayers) {
  const Warnings warnings;
  for (const int ranks : {3, 4})
    comm::run_ranks(ranks, [](Communicator& c) { Program<>(&c, {.strategy = "ddp+kfac(dp)"}); });
  EXPECT_THAT(warnings.with("ranks share"), SizeIs(1));
  EXPECT_THAT(warnings.with("4 ranks share 3 layers, so 1 have no curvature"), SizeIs(1));
}

}  // namespace
}  // namespace linerate::torch_adapter
