// Training under every strategy of the registry: the weights are bulk's, and a step does what its
// Plan names and nothing else.
#include <fmt/format.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/sgd.h>

#include <set>

#include "linerate/core/error.hpp"
#include "linerate/doc/plan_index.hpp"
#include "linerate/exec/recorder.hpp"
#include "linerate/plan/exchange.hpp"
#include "torch_adapter/noting_communicator.hpp"
#include "torch_adapter/parity.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using testing::HasSubstr;

/// Three are measured, the plan is final two later, and batches and targets have had their turn by
/// the seventh: what is wrong in a step is seen at its end as much as 30 steps later.
constexpr int kComparedSteps = 20;

/// Those that train by themselves, with options that change their shape.
std::vector<std::string> training_strategies() {
  std::vector<std::string> all;
  for (const auto& line : plan::exchanges().lines())
    if (line.make.traits.runs.train) all.push_back(line.name);
  all.insert(all.end(), {"ddp(first=64B, bucket=512B)", "ddp(small=last)", "dear(layers=1)",
                         "dear(bucket=64B)", "horovod(timer=clock, cycle=1ms)",
                         "horovod(timer=clock, cycle=1ms, threshold=0MiB)"});
  return all;
}

std::unique_ptr<torch::optim::Optimizer> optimizer_of(bool adam, torch::nn::Module& model) {
  if (adam) return std::make_unique<torch::optim::Adam>(model.parameters(), 0.01);
  return std::make_unique<torch::optim::SGD>(model.parameters(),
                                             torch::optim::SGDOptions(0.05).momentum(0.9));
}

/// All parameters after kComparedSteps steps from the same start.
at::Tensor trained(Communicator& communicator, const std::string& strategy, at::ScalarType type,
                   bool adam) {
  Mlp model;
  model.to(type);
  DataParallel parallel(model, communicator, {.strategy = strategy, .measured_steps = 3});
  const auto optimizer = optimizer_of(adam, model);
  for (int step = 0; step < kComparedSteps; ++step) {
    const at::Tensor x = numbers({communicator.size() * kBatch, 6}, step % 7, type),
                     y = numbers({communicator.size() * kBatch, 3}, step % 5 + 0.5, type);
    optimizer->zero_grad(step % 2 == 0);
    mean_loss(model.forward(rows(x, communicator.rank())), rows(y, communicator.rank())).backward();
    parallel.finish();
    optimizer->step();
  }
  require_bitwise_equal(communicator, model);
  std::vector<at::Tensor> flat;
  for (const at::Tensor& p : model.parameters()) flat.push_back(p.detach().flatten());
  return torch::cat(flat).to(at::kDouble);
}

class EveryStrategy : public testing::TestWithParam<int> {};

TEST_P(EveryStrategy, EndsAtBulksWeights) {
  ranks(GetParam(), [](Communicator& communicator) {
    for (const at::ScalarType type : {at::kDouble, at::kFloat})
      for (const bool adam : {false, true}) {
        const at::Tensor expected = trained(communicator, "bulk", type, adam);
        for (const std::string& strategy : training_strategies()) {
          const at::Tensor found = trained(communicator, strategy, type, adam);
          const double error =
              (found - expected).norm().item<double>() / expected.norm().item<double>();
          EXPECT_LE(error, type == at::kDouble ? 1e-12 : 1e-5)
              << strategy << (adam ? ", Adam" : ", SGD");
        }
      }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, EveryStrategy, testing::Values(2, 3, 4));

/// A model with buffers: batch norm between two layers.
struct WithBuffers : torch::nn::Module {
  torch::nn::Linear a{nullptr}, b{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  WithBuffers() {
    a = register_module("a", torch::nn::Linear(6, 5));
    norm = register_module("norm", torch::nn::BatchNorm1d(5));
    b = register_module("b", torch::nn::Linear(5, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return b->forward(norm->forward(a->forward(x))); }
};

/// The collectives of a variant in the order of its network lane, as NotingCommunicator writes
/// them in this step.
std::vector<std::string> collectives_of(const doc::Plan& plan, const doc::TaskGraph& graph,
                                        int step) {
  std::vector<std::string> lines;
  for (const doc::Task& t : graph.tasks)
    if (is_communication(t.kind))
      lines.push_back(
          fmt::format("step {}: {}: {} bytes", step, title_of(plan, graph, t), t.bytes));
  return lines;
}

std::multiset<std::string> executed_of(const doc::Plan& plan, const doc::TaskGraph& graph) {
  std::multiset<std::string> titles;
  for (const doc::Task& t : graph.tasks)
    if (t.origin == doc::Origin::executed) titles.insert(title_of(plan, graph, t));
  return titles;
}

std::multiset<std::string> recorded(const doc::Timeline& timeline, int step) {
  std::multiset<std::string> titles;
  for (const doc::Event& e : timeline.events)
    if (e.step == step) titles.insert(timeline.names[static_cast<std::size_t>(e.name)]);
  return titles;
}

class NothingBeside : public testing::TestWithParam<int> {};

TEST_P(NothingBeside, AStepSendsAndConvertsWhatItsPlanNames) {
  ranks(GetParam(), [](Communicator& inner) {
    std::vector<std::string> strategies = training_strategies();
    for (const auto& line : plan::exchanges().lines())
      strategies.push_back(line.name + "(wire=fp16)");
    for (const std::string& strategy : strategies) {
      NotingCommunicator communicator(inner);
      exec::Recorder recorder(inner, exec::agree_origin(inner), "trained");
      WithBuffers model;
      DataParallel parallel(model, communicator,
                            {.strategy = strategy, .measured_steps = 2, .recorder = &recorder});
      static_cast<void>(communicator.take());
      int weighted = 0;
      for (int step = 0; step < 7; ++step) {
        const doc::Plan plan = parallel.plan();
        const bool settled = parallel.plan_is_final();
        recorder.begin_step(step);
        model.zero_grad();
        if (step % 3 == 1) parallel.set_batch(kBatch + inner.rank());
        mean_loss(model.forward(numbers({kBatch, 6}, step, at::kFloat)),
                  numbers({kBatch, 3}, 1, at::kFloat))
            .backward();
        const StepReport report = parallel.finish();
        weighted += report.variant.ends_with("-weighted");
        const std::int32_t variant = plan.variant_index(report.variant);
        ASSERT_GE(variant, 0) << report.variant;
        const doc::TaskGraph& graph = plan.variants[static_cast<std::size_t>(variant)];
        std::vector<std::string> submitted = communicator.take();
        const std::vector<std::string> named = collectives_of(plan, graph, step);
        // Agreeing on another plan comes behind the step's own collectives and belongs to no step.
        if (!settled && submitted.size() > named.size()) submitted.resize(named.size());
        EXPECT_EQ(submitted, named) << strategy << ", step " << step;
        EXPECT_EQ(recorded(recorder.timeline(), step), executed_of(plan, graph))
            << strategy << ", step " << step;
      }
      EXPECT_EQ(weighted, 2) << strategy;
      EXPECT_TRUE(parallel.plan_is_final()) << strategy;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, NothingBeside, testing::Values(1, 2, 3, 4));

TEST(Strategies, OneThatCannotTrainIsRefusedWithTheReason) {
  ranks(2, [](Communicator& communicator) {
    for (const auto& extra : plan::extras().lines()) {
      if (extra.make.traits.runs.train) continue;
      Mlp model;
      try {
        DataParallel parallel(model, communicator, {.strategy = "ddp+" + extra.name});
        ADD_FAILURE() << extra.name << " was accepted";
      } catch (const UsageError& e) {
        EXPECT_THAT(e.what(), HasSubstr("ddp+" + extra.name));
        EXPECT_THAT(e.what(), HasSubstr(std::string(extra.make.traits.why_not_train)));
      }
    }
  });
}

}  // namespace
}  // namespace linerate::torch_adapter
