// K-FAC shared among ranks: by every strategy, behind every exchange, executed and enqueued, ranks
// take the steps that one rank with all samples takes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/convert_parameters.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <span>

#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "support/sample_workloads.hpp"
#include "torch_adapter/curvature_jobs.hpp"
#include "torch_adapter/group_over_communicator.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr auto on_threads = [](int ranks, const auto& work) { comm::run_ranks(ranks, work); };

/// A class for each of the networks.
enum class Samples { images, tokens };

Data data_of(Samples samples) {
  return samples == Samples::images ? Data::whole() : Data::of_tokens();
}
TrainedCurvature trained_on(Samples samples, Communicator* c, const Data& whole,
                            const CurvatureJob& job = {}) {
  return samples == Samples::images ? trained<Net>(c, whole, job)
                                    : trained<TokenNet>(c, whole, job);
}

/// Jobs that are alike but for their strategies.
struct Row {
  std::vector<std::string> exchanges, kfacs = strategies();
  Samples samples = Samples::images;
  CurvatureJob job = {};

  std::vector<CurvatureJob> jobs() const {
    std::vector<CurvatureJob> all;
    for (const std::string& exchange : exchanges)
      for (const std::string& kfac : kfacs)
        all.push_back(job), all.back().strategy = exchange + kfac;
    return all;
  }
  std::string name() const {
    return std::string(samples == Samples::tokens ? ", embeddings and norms" : "") +
           (job.options.method == InverseMethod::eigen ? ", eigen" : "") +
           (job.uneven ? ", uneven" : "") + (job.in_one_call ? ", step(pre, optimizer)" : "");
  }
};

/// The code for processors, and that for devices, on the CPU: its host waits for the status of each
/// eigendecomposition and for nothing else (trained()).
const std::vector<std::string> kProcessor = {""}, kBothCodes = {"", kGroup};

/// Every job of the row, by each code, ends at the weights of one rank, with its q and nu.
void expect_weights_of_one_rank(int ranks, const Row& row,
                                const std::vector<std::string>& codes = kProcessor) {
  const Data whole = data_of(row.samples);
  const TrainedCurvature expected =
      trained_on(row.samples, nullptr, whole, {.options = row.job.options});
  for (CurvatureJob job : row.jobs())
    for (const std::string& code : codes) {
      job.device_group = code;
      const std::string title = fmt::format("{}{}{}, {} ranks", job.strategy, row.name(),
                                            code.empty() ? "" : ", enqueued", ranks);
      in_group(on_threads, ranks, [&](Communicator& c) {
        const TrainedCurvature found = trained_on(row.samples, &c, whole, job);
        EXPECT_LT(largest_difference(found.weights, expected.weights), 1e-9) << title;
        std::int64_t all_waits = found.host_waits;
        c.all_reduce(comm::buffer(std::span(&all_waits, 1)), comm::Reduce::sum, "waits")->wait();
        const bool is_eigen = job.options.method == InverseMethod::eigen;  // on some ranks
        EXPECT_EQ(all_waits > 0, !code.empty() && is_eigen) << title;
        if (job.in_one_call || job.strategy.starts_with("dear")) return;  // nobody says q
        for (std::size_t i = 0; i < found.reports.size(); ++i) {
          EXPECT_NEAR(found.reports[i].q, expected.reports[i].q, 1e-9) << title << ", step " << i;
          EXPECT_NEAR(found.reports[i].nu, expected.reports[i].nu, 1e-9) << title << ", step " << i;
        }
      });
    }
}

KfacOptions without_clip(InverseMethod method = InverseMethod::cholesky) {
  KfacOptions options = kfac_options(method);
  options.damping = [](std::int64_t step) { return 0.1 / (1.0 + static_cast<double>(step)); };
  options.kl_clip = 0;
  return options;
}

class SharedCurvature : public ::testing::TestWithParam<int> {};

TEST_P(SharedCurvature, EveryStrategyTakesTheStepsOfOneRankWithAllSamples) {
  const CurvatureJob eigen{.options = kfac_options(InverseMethod::eigen)};
  CurvatureJob uneven_eigen = eigen;
  uneven_eigen.uneven = true;  // signs, and any basis of equal eigenvalues, are the owner's
  CurvatureJob reduced;
  reduced.options.shared_positions = SharedPositions::reduce;
  const std::vector<std::string> exchanges = {"ddp+", "ddp(first=64B,bucket=512B)+", "bulk+"};
  for (const Row& row :
       {Row{.exchanges = exchanges, .job = {.measured_steps = 2}},
        Row{.exchanges = {"ddp+"}, .job = {.uneven = true}},
        Row{.exchanges = {"ddp+"}, .job = uneven_eigen}, Row{.exchanges = {"ddp+"}, .job = reduced},
        Row{.exchanges = exchanges,
        .samples = Samples::tokens,
        .job = {.uneven = true, .measured_steps = 2}},
        Row{.exchanges = {"ddp+"}, .samples = Samples::tokens, .job = eigen}})
    expect_weights_of_one_rank(GetParam(), row, kBothCodes);
  const Data data = Data::whole();
  EXPECT_GT(
      largest_difference(trained(nullptr, data, eigen).weights, trained(nullptr, data).weights),
      1e-4);
}

TEST_P(SharedCurvature, WithoutClipTakesTheStepsOfOneRank) {
  CurvatureJob job{.options = without_clip(), .in_one_call = true};
  expect_weights_of_one_rank(
      GetParam(), {{"ddp+"}, {"kfac(spd, clip=off, factors=2, inverses=4)"}, Samples::images, job});
  expect_weights_of_one_rank(
      GetParam(), {{"bulk+"}, {"kfac(mem, kl=0, factors=2, inverses=4)"}, Samples::images, job});
}

/// Directions and updates wait for the first operator that reads a weight.
TEST_P(SharedCurvature, UnderDearTakesTheStepsOfOneRank) {
  std::vector<std::string> kfacs;
  for (const std::string kfac : {"d", "mpd", "spd"})
    kfacs.push_back("kfac(" + kfac + ", kl=0, factors=2, inverses=4)");
  for (const InverseMethod method : {InverseMethod::cholesky, InverseMethod::eigen})
    for (const bool in_one_call : {true, false})
      expect_weights_of_one_rank(
          GetParam(),
          {{"dear+", "dear(layers=1)+", "dear(bucket=64B)+"},
           kfacs,
           Samples::images,
           {.options = without_clip(method), .uneven = in_one_call, .in_one_call = in_one_call}});
  expect_weights_of_one_rank(GetParam(), {{"dear(bucket=64B)+"},
                                          {"kfac(spd, clip=off, factors=2, inverses=4)"},
                                          Samples::tokens,
                                          {.options = without_clip(), .in_one_call = true}});
  KfacOptions no_clip = kfac_options();
  no_clip.kl_clip = 0;
  expect_weights_of_one_rank(GetParam(),
                             {{"dear+"},
                              {"kfac(spd, clip=off, factors=2, inverses=4)"},
                              Samples::images,
                              {.options = no_clip, .measured_steps = 2}},
                             kBothCodes);
}

/// Codes every gradient and loses nothing: what arrives is decoded before it is preconditioned.
TEST_P(SharedCurvature, UnderALosslessCompressorEndsAtDenseWeights) {
  const Data data = Data::whole().in(torch::kFloat);
  for (const std::string kfac : {"d", "mem", "spd"})
    comm::run_ranks(GetParam(), [&](Communicator& c) {
      const auto weights = [&](const std::string& exchange) {
        CurvatureJob job{.options = without_clip(), .in_one_call = true};
        job.strategy = exchange + "+kfac(" + kfac + ", kl=0, factors=2, inverses=4)";
        return trained(&c, data, job).weights;
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
      CurvatureJob job{.options = without_clip(), .in_one_call = true};
      job.strategy = "ddp+" + small_enough(name) + "+kfac(spd, kl=0, factors=2, inverses=4)";
      for (const torch::Tensor& w : trained(&c, data, job).weights)  // the same on every rank
        EXPECT_TRUE(w.isfinite().all().item<bool>()) << name;
    });
}

/// finish() has waited for all gradients: the step is skipped as behind other exchanges.
TEST_P(SharedCurvature, UnderDearABatchThatIsNotFiniteIsSkipped) {
  const Data data = Data::whole();
  for (const std::string kfac : {"d", "mpd", "spd"}) {
    CurvatureJob job{.options = without_clip()};
    job.strategy = "dear+kfac(" + kfac + ", kl=0, factors=2, inverses=4)";
    comm::run_ranks(GetParam(), [&](Communicator& c) {
      const auto weights = [&](bool interrupted) {
        Program<> program(&c, job);
        for (int step = 0; step < kSteps; ++step) {
          if (interrupted && step % 2 == 0) {
            EXPECT_TRUE(program.step(data.of(c), c.rank() == 1 ? std::nan("") : 1).skipped);
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
    std::vector<std::set<std::uint64_t>> plans(static_cast<std::size_t>(GetParam()));
    expect_weights("ddp+" + kfac + ", planned again", GetParam(), expected, [&](Communicator& c) {
      Program<> program(&c, {.strategy = "ddp+" + kfac,
                             .in_one_call = true,
                             .measured_steps = 1,
                             .replan_above = 0});  // whatever departs at all
      for (int step = 0; step < kSteps; ++step) {
        program.step(data.of(c));
        plans[static_cast<std::size_t>(c.rank())].insert(program.parallel->plan().hash());
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
  const Data data = Data::whole();
  for (const InverseMethod method : {InverseMethod::cholesky, InverseMethod::eigen}) {
    const bool is_eigen = method == InverseMethod::eigen;
    CurvatureJob job{.options = kfac_options(method)};
    const std::vector<torch::Tensor> expected = trained(nullptr, data, job).weights;
    job.strategy =
        fmt::format("ddp+kfac(dp,{} factors=2, inverses=4)", is_eigen ? " inverse=eigen," : "");
    for (const std::string& code : kBothCodes)
      in_group(on_threads, GetParam(), [&](Communicator& c) {
        CurvatureJob by_code = job;
        by_code.device_group = code;
        Program<> program(&c, by_code);
        for (int step = 0; step < kSteps; ++step) program.step(data);
        EXPECT_LT(largest_difference(program.weights(), expected), 1e-9) << job.strategy << code;
      });
    if (is_eigen) continue;
    comm::run_ranks(GetParam(), [&](Communicator& c) {
      EXPECT_GT(largest_difference(trained(&c, data, job).weights, expected), 1e-6);
    });
  }
}

/// Of sizes at which products round differently with the layout of their operands (10 and less), or
/// would with solvers' blocks.
torch::nn::Sequential uneven_layers() {
  torch::nn::Sequential net(torch::nn::Linear(9, 64), torch::nn::Tanh(), torch::nn::Linear(64, 10),
                            torch::nn::Tanh(), torch::nn::Linear(10, 130));
  const torch::NoGradGuard no_grad;
  double phase = 0;
  for (torch::Tensor& p : net->parameters())
    p.copy_((torch::arange(p.numel()) * 1.7 + ++phase).sin().view(p.sizes()) * 0.1);
  return net;
}

TEST_P(SharedCurvature, LeavesTheSameBitsOnEveryRank) {
  const torch::Tensor x = torch::randn({32, 9}), y = torch::randn({32, 130});
  for (const std::string& strategy : strategies())
    comm::run_ranks(GetParam(), [&](Communicator& communicator) {
      torch::nn::Sequential net = uneven_layers();
      KFAC pre(*net, kfac_options());
      DataParallel parallel(*net, communicator, {.strategy = strategy, .preconditioner = &pre});
      torch::optim::SGD optimizer(net->parameters(), kRate);
      const auto rank = static_cast<std::size_t>(communicator.rank());
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        const at::Tensor mine = x.chunk(GetParam())[rank], target = y.chunk(GetParam())[rank];
        ((net->forward(mine) - target).square().sum() / static_cast<double>(mine.size(0)))
            .backward();
        parallel.step(pre, optimizer);
      }
      EXPECT_NO_THROW(parallel.require_same_weights(strategy));
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
  expect_weights_of_one_rank(4, {{small}, {single}, Samples::images, {.measured_steps = 2}},
                             kBothCodes);
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

TEST(EnqueuedCurvature, OfHybridIsRefusedOverABackEndThatMakesNoParts) {
  comm::run_ranks(4, [&](Communicator& c) {
    const GroupOverCommunicator group(kGroup, c, {.has_no_parts = true});
    EXPECT_THAT(thrown_by([&] {
                  Program<>(&c,
                            {.strategy = "ddp+kfac(hybrid, fraction=0.5)", .device_group = kGroup});
                }),
                HasSubstr("a part of its ranks, and a store, found \"communicator\""));
  });
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
      if (breaks && c.rank() == 1)
        mine.inputs = mine.inputs * std::numeric_limits<double>::infinity();
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
    const auto run = [&](bool interrupted, const std::string& first, const std::string& then) {
      const auto job = [](const std::string& device_group) {
        return CurvatureJob{.strategy = "ddp+kfac(mpd, factors=2, inverses=4)",
                            .device_group = device_group};
      };
      auto program = std::make_unique<Program<>>(&c, job(first));
      program->as_device.reset();
      for (int step = 0; step < kSteps; ++step) {
        if (interrupted && step == 7) program->resume(c, job(then));
        program->step(images.of(c));
      }
      return weights_of(*program->net);
    };
    const auto expected = run(false, "", "");
    for (const auto& [first, then] : {std::pair{kGroup, kGroup}, {kGroup, ""}, {"", kGroup}})
      EXPECT_LT(largest_difference(run(true, first, then), expected), 1e-9) << first << then;
  });
}

// ---- Plans whose inverses share calls of the solver, by both codes

/// Factors of 9 and 8 rows, three of each; f32, which calls are measured in.
struct EqualLayers : torch::nn::Module {
  torch::nn::Linear a{8, 8}, b{8, 8}, c{8, 8};
  EqualLayers() {
    register_module("a", a), register_module("b", b), register_module("c", c);
    set_weights(*this);
  }
  at::Tensor forward(const at::Tensor& x) { return c(torch::tanh(b(torch::tanh(a(x))))); }
};

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
  KFAC pre(net, {.loss_average = LossAverage{}, .kl_clip = 0.0});
  DataParallel parallel(net, communicator,
                        {.strategy = strategy,
                         .cluster = cluster_with_calls(communicator.size(), calls),
                         .measured_steps = 2,
                         .preconditioner = &pre,
                         .device_group = enqueued ? kGroup : ""});
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.05));
  for (int step = 0; step < 8; ++step) {
    optimizer.zero_grad();
    const at::Tensor x = torch::sin(torch::arange(128, at::kFloat) * 12.9898 +
                                    (10.0 * step + communicator.rank()) * 78.233)
                             .view({16, 8});
    torch::mse_loss(net.forward(x), x.flip(1)).backward();
    parallel.finish();
    pre.step();
    optimizer.step();
  }
  parallel.require_same_weights("at the end");
  CallsRun run{torch::nn::utils::parameters_to_vector(net.parameters()).detach()};
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
      in_group(on_threads, ranks, [&](Communicator& c) {
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

// ---- options and refusals

/// What the options say need not be said in the strategy, nor the other way round; what both say
/// must be the same.
TEST(SharedCurvature, TakesAnOptionFromOneOfTwoPlaces) {
  KfacOptions nothing{.loss_average = LossAverage{},
                      .learning_rate = [](std::int64_t) { return kRate; }};
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
  KfacOptions bare{.loss_average = LossAverage{},
                   .learning_rate = [](std::int64_t) { return kRate; }};
  const std::vector<torch::Tensor> expected = trained(nullptr, data, {.options = filled}).weights;
  EXPECT_GT(largest_difference(expected, trained(nullptr, data).weights), 1e-4);
  for (const std::string strategy :
       {"kfac(spd)", "kfac(spd, factors=2, inverses=4, damping=0.5, decay=0.6, kl=0.0001)"}) {
    const CurvatureJob job{.strategy = strategy,
                           .options = strategy == "kfac(spd)" ? filled : bare};
    expect_weights(strategy, 2, expected,
                   [&](Communicator& c) { return trained(&c, data, job).weights; });
  }
}

TEST(SharedCurvature, ThatNobodySharesOrThatDearCannotHaveIsRefused) {
  comm::run_ranks(2, [](Communicator& c) {
    Net net;
    KFAC clipped(*net, kfac_options()), pre(*net, without_clip());
    const auto refused = [&](const std::string& strategy, KFAC* given) {
      return thrown_by(
          [&] { DataParallel parallel(*net, c, {.strategy = strategy, .preconditioner = given}); });
    };
    EXPECT_THAT(refused("ddp", &clipped), HasSubstr("+kfac(spd)"));
    EXPECT_THAT(refused("ddp+kfac(spd)", nullptr), HasSubstr("construct a KFAC"));
    EXPECT_THAT(refused("dear+kfac(spd)", &clipped), HasSubstr("clip=off"));
    EXPECT_THAT(refused("dear+kfac(mem, kl=0)", &pre), HasSubstr("directions would travel"));
    EXPECT_THAT(refused("dear+kfac(spd, kl=0)", &pre), IsEmpty());
    EXPECT_THAT(refused("dear+kfac(spd)", &pre), IsEmpty());  // its options say so
  });
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
