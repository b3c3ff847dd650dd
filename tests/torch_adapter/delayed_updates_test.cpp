// step(): under every strategy the weights are those of finish() and optimizer.step(), and under
// "dear", where updates happen inside the next forward pass, nobody can tell.
#include <fmt/format.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/doc/plan_index.hpp"
#include "linerate/exec/recorder.hpp"
#include "linerate/kfac/kfac.hpp"
#include "linerate/plan/exchange.hpp"
#include "torch_adapter/noting_communicator.hpp"
#include "torch_adapter/parity.hpp"
#include "torch_adapter/rank_tests.hpp"
#include "torch_adapter/registered_compressors.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using torch::optim::Optimizer;

/// Three are measured, the plan is final two later, and batches and targets have had their turn by
/// the seventh: what is wrong in a step is seen at its end as much as 30 steps later.
constexpr int kDelayedSteps = 20;

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(std::vector<at::Tensor>)>;

template <typename Kind, typename Options>
MakeOptimizer maker(Options options) {
  return [options](std::vector<at::Tensor> parameters) {
    return std::make_unique<Kind>(std::move(parameters), options);
  };
}

/// Every kind that is taken apart, and a class of the user's own, which is not.
struct OwnSgd : torch::optim::SGD {
  using SGD::SGD;
};
std::map<std::string, MakeOptimizer> optimizers() {
  namespace optim = torch::optim;
  return {
      {"sgd", maker<optim::SGD>(optim::SGDOptions(0.05))},
      {"momentum",
       maker<optim::SGD>(optim::SGDOptions(0.05).momentum(0.9).dampening(0.1).weight_decay(1e-3))},
      {"adam", maker<optim::Adam>(optim::AdamOptions(0.01))},
      {"amsgrad", maker<optim::Adam>(optim::AdamOptions(0.01).amsgrad(true))},
      {"adamw", maker<optim::AdamW>(optim::AdamWOptions(0.01))},
      {"adagrad", maker<optim::Adagrad>(optim::AdagradOptions(0.05).lr_decay(1e-3))},
      {"rmsprop", maker<optim::RMSprop>(optim::RMSpropOptions(0.01).momentum(0.5))},
      {"own", maker<OwnSgd>(optim::SGDOptions(0.05).momentum(0.9))}};
}

MakeOptimizer descent(double rate, double momentum = 0) {
  return maker<torch::optim::SGD>(torch::optim::SGDOptions(rate).momentum(momentum));
}

/// What trains a model. The usual order of declarations: the optimizer goes before the DataParallel
/// does.
template <typename Model = Mlp>
struct DelayedJob {
  DelayedJob(Communicator& c, DataParallelOptions options, const MakeOptimizer& make,
             at::ScalarType type = at::kFloat)
      : communicator(c),
        parallel((model->to(type), *model), c, std::move(options)),
        optimizer(make(model->parameters())) {}

  at::Tensor loss(int number) {
    return loss_of_rows(communicator, *model, number % 7, number % 5 + 0.5);
  }
  void step(int number) {
    loss(number).backward();
    parallel.step(*optimizer);
  }
  at::Tensor weights() {
    parallel.settle();
    require_bitwise_equal(communicator, *model);
    return flat(*model);
  }

  Communicator& communicator;
  std::shared_ptr<Model> model = std::make_shared<Model>();
  DataParallel parallel;
  std::unique_ptr<Optimizer> optimizer;
};

/// By step(), or by finish() and optimizer.step().
at::Tensor trained(Communicator& communicator, const std::string& strategy,
                   const MakeOptimizer& make, at::ScalarType type, bool one_call) {
  DelayedJob job(communicator, {.strategy = strategy, .measured_steps = 3}, make, type);
  for (int step = 0; step < kDelayedSteps; ++step) {
    if (one_call) {
      job.step(step);
    } else {
      job.optimizer->zero_grad(step % 2 == 0);
      job.loss(step).backward();
      job.parallel.finish();
      job.optimizer->step();
    }
    // A schedule changes options between the call and the update: they count from the next step.
    for (auto& group : job.optimizer->param_groups())
      group.options().set_lr(group.options().get_lr() * 0.98);
  }
  return job.weights();
}

/// Gradient descent of a program's own, which counts how often it is called.
class CountedDescent final : public PartialUpdates {
 public:
  explicit CountedDescent(bool together) : together_(together) {}
  void capture(const std::vector<std::vector<at::Tensor>>& parts) override {
    parts_ = parts;
    updated_.assign(parts.size(), 0);
  }
  void update(const std::vector<std::size_t>& which,
              const std::vector<std::vector<at::Tensor>>& gradients) override {
    ++calls_;
    for (std::size_t i = 0; i < which.size(); ++i) {
      ++updated_[which[i]];
      for (std::size_t k = 0; k < gradients[i].size(); ++k)
        parts_[which[i]][k].sub_(0.05 * gradients[i][k]);
    }
  }
  void release() override { EXPECT_THAT(updated_, testing::Each(1)); }
  bool is_shorter_together() const override { return together_; }
  std::size_t calls() const { return calls_; }
  std::size_t parts() const { return parts_.size(); }

 private:
  bool together_;
  std::size_t calls_ = 0;
  std::vector<std::vector<at::Tensor>> parts_;
  std::vector<int> updated_;
};

class DelayedUpdate : public testing::TestWithParam<int> {};

/// Recorded steps keep a task for each part.
TEST_P_ON(DelayedUpdate, PartsThatHaveArrivedAreUpdatedInOneCallIfThatIsShorter, ranks) {
  exec::Recorder recorder(communicator, exec::agree_origin(communicator), "counted");
  for (const auto& [together, recorded] : {std::pair{false, false}, {true, false}, {true, true}}) {
    recorder.keep(recorded);
    DelayedJob ours(
        communicator,
        {.strategy = "dear(layers=1)", .measured_steps = 1, .recorder = &recorder, .name = "ours"},
        descent(0.05), at::kDouble);
    DelayedJob theirs(communicator, {.strategy = "bulk", .name = "theirs"}, descent(0.05),
                      at::kDouble);
    for (int step = 0; step < 4; ++step) {
      ours.loss(step).backward();
      const auto counted = std::make_shared<CountedDescent>(together);
      ours.parallel.step(counted);
      ASSERT_GE(counted->parts(), 2u);
      communicator.barrier("all have arrived")->wait();  // calls end in their order
      ours.parallel.settle();
      EXPECT_EQ(counted->calls(), together && !recorded ? 1 : counted->parts());
      theirs.step(step);
    }
    EXPECT_LE(relative_error(ours.weights(), theirs.weights()), 1e-12);
  }
}

std::vector<std::string> training_strategies() {
  std::vector<std::string> all = training_exchanges();
  all.insert(all.end(), {"ddp(small=last)", "horovod(timer=clock, cycle=1ms)",
                         "horovod(timer=clock, cycle=1ms, threshold=0MiB)"});
  return all;
}

/// By step() every optimizer, by finish() two of them.
TEST_P_ON(DelayedUpdate, EveryStrategyAndOptimizerEndAtBulksWeights, ranks) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat})
    for (const auto& [optimizer, make] : optimizers()) {
      const at::Tensor expected = trained(communicator, "bulk", make, type, false);
      const bool also_apart = optimizer == "momentum" || optimizer == "adam";
      for (const std::string& strategy : training_strategies())
        for (const bool one_call : {true, false}) {
          if (!one_call && !also_apart) continue;
          const at::Tensor found = trained(communicator, strategy, make, type, one_call);
          EXPECT_LE(relative_error(found, expected), type == at::kDouble ? 1e-12 : 1e-5)
              << strategy << ", " << optimizer << (one_call ? "" : ", finish()");
        }
    }
}

/// Forward passes in another order than registration, a module used twice, one never used, one
/// frozen, an LSTM (whose operator takes a list of weights) and a 3-d linear with its bias.
struct Crooked : torch::nn::Module {
  torch::nn::Linear last = register_module("last", torch::nn::Linear(5, 3));
  torch::nn::LayerNorm norm =
      register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({5})));
  torch::nn::Linear shared = register_module("shared", torch::nn::Linear(5, 5));
  torch::nn::Linear unused = register_module("unused", torch::nn::Linear(7, 2));
  torch::nn::LSTM memory =
      register_module("memory", torch::nn::LSTM(torch::nn::LSTMOptions(5, 5).batch_first(true)));
  torch::nn::Linear frozen = register_module("frozen", torch::nn::Linear(5, 5));
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 5));
  torch::nn::Embedding words = register_module("words", torch::nn::Embedding(11, 6));
  Crooked() {
    set_weights_of_rank(*this);
    for (at::Tensor& p : frozen->parameters()) p.set_requires_grad(false);
  }
  at::Tensor forward(const at::Tensor& tokens) {  // [batch, 4] -> [batch, 4, 3]
    at::Tensor x = torch::tanh(first->forward(words->forward(tokens)));
    x = torch::tanh(shared->forward(x));
    x = std::get<0>(memory->forward(frozen->forward(x)));
    return last->forward(norm->forward(torch::tanh(shared->forward(x))));
  }
};

at::Tensor tokens_of(Communicator& c, int step) {
  return (torch::arange(c.size() * kBatch * 4, at::kLong) * (step + 3) % 11)
      .reshape({c.size() * kBatch, 4})
      .narrow(0, c.rank() * kBatch, kBatch);
}

/// What programs do between steps. Everything they see has to be what bulk shows.
at::Tensor crooked(Communicator& communicator, const std::string& strategy, bool one_call) {
  DelayedJob<Crooked> job(communicator, {.strategy = strategy, .measured_steps = 2},
                          maker<torch::optim::Adam>(torch::optim::AdamOptions(0.01)), at::kDouble);
  DataParallel& parallel = job.parallel;
  Crooked& model = *job.model;
  const auto output = [&](int step) { return model.forward(tokens_of(communicator, step)); };
  at::Tensor average;  // of weights, as an EMA keeps it
  std::vector<double> seen;
  for (int step = 0; step < 20; ++step) {
    if (step % 4 == 1) parallel.set_batch(kBatch);
    if (step % 5 == 3) parallel.accumulate([&] { output(step + 50).sum().backward(); });
    mean_loss(output(step), torch::full({kBatch, 4, 3}, 0.1, at::kDouble)).backward();
    if (step == 7) {
      parallel.skip_step();
    } else if (one_call) {
      parallel.step(*job.optimizer);
    } else {
      parallel.finish();
      job.optimizer->step();
      model.zero_grad();
    }
    const at::NoGradGuard no_grad;
    if (step % 6 == 2) seen.push_back(output(0).sum().item<double>());
    if (step % 6 == 4) seen.push_back(model.shared->weight.norm().item<double>());
    if (step % 3 == 0) {
      const at::Tensor now = torch::cat({model.last->weight.flatten(), model.first->bias});
      average = average.defined() ? average * 0.9 + now * 0.1 : now.clone();
    }
    if (step == 11) model.norm->weight.mul_(0.5);  // in place, after the update
  }
  seen.push_back(average.sum().item<double>());
  return torch::cat({job.weights(), torch::tensor(seen, at::kDouble)});
}

TEST_P_ON(DelayedUpdate, NobodyReadsAnOldWeight, ranks) {
  const at::Tensor expected = crooked(communicator, "bulk", false);
  for (const char* strategy : {"dear", "dear(bucket=64B)", "dear(layers=1)"})
    EXPECT_LE(relative_error(crooked(communicator, strategy, true), expected), 1e-12) << strategy;
}

/// Three steps, under dear the last of which waits for its update.
struct Delayed : DelayedJob<> {
  explicit Delayed(Communicator& c, const std::string& strategy = "dear(bucket=64B)",
                   const MakeOptimizer& make = descent(0.1, 0.9))
      : DelayedJob<>(c, {.strategy = strategy}, make) {
    for (int number = 0; number < 3; ++number) step(number);
  }
};

TEST_P(DelayedUpdate, TheLastStepIsNotLostWhenOptimizerAndObjectGo) {
  const Warnings warnings;
  ranks(GetParam(), [&warnings](Communicator& communicator) {
    const at::Tensor expected = Delayed(communicator).weights();
    const std::shared_ptr<Mlp> model = Delayed(communicator).model;
    EXPECT_THAT(warnings.with("wait for their update of step 2"), Not(IsEmpty()));
    EXPECT_LE(relative_error(flat(*model), expected), 1e-12);
  });
}

/// When the optimizer is gone, and on another thread.
TEST_P_ON(DelayedUpdate, WhateverReadsAWeightSeesTheUpdate, ranks) {
  const at::Tensor expected = Delayed(communicator).weights();
  for (const bool is_gone : {true, false}) {
    Delayed delayed(communicator);
    at::Tensor seen;
    const auto read = [&] { seen = flat(*delayed.model); };
    if (is_gone)
      delayed.optimizer.reset(), read();
    else
      std::thread(read).join();
    EXPECT_LE(relative_error(seen, expected), 1e-12);
    delayed.parallel.settle();
  }
}

TEST_P_ON(DelayedUpdate, TheOptimizersStateIsWholeAfterSettle, ranks) {
  const auto state_after = [&](const std::string& strategy) {
    Delayed job(communicator, strategy, maker<torch::optim::Adam>(torch::optim::AdamOptions(0.1)));
    job.parallel.settle();
    std::vector<at::Tensor> all;
    for (const at::Tensor& p : job.model->parameters()) {
      const auto& state = static_cast<torch::optim::AdamParamState&>(
          *job.optimizer->state().at(p.unsafeGetTensorImpl()));
      EXPECT_EQ(state.step(), 3);
      all.push_back(state.exp_avg().flatten());
      all.push_back(state.exp_avg_sq().flatten());
    }
    EXPECT_EQ(job.optimizer->state().size(), job.model->parameters().size());
    return torch::cat(all);
  };
  EXPECT_LE(relative_error(state_after("dear(bucket=64B)"), state_after("bulk")), 1e-5);
}

TEST_P_ON(DelayedUpdate, WeightsLoadedOverAPendingUpdateStayAsLoaded, ranks) {
  Delayed delayed(communicator);
  for (at::Tensor& p : delayed.model->parameters()) p.set_data(torch::full(p.sizes(), 0.25));
  EXPECT_TRUE(delayed.weights().eq(0.25).all().item<bool>());
}

/// A second model's parameters in the same optimizer are updated at once, and once.
TEST_P_ON(DelayedUpdate, ParametersOfOthersAreUpdatedOnce, ranks) {
  const at::Tensor other = torch::ones({2}, torch::requires_grad());
  DelayedJob job(communicator, {.strategy = "dear(bucket=64B)"}, [&](auto all) {
    all.push_back(other);
    return descent(0.5)(all);
  });
  for (int step = 0; step < 3; ++step) {
    other.mutable_grad() = torch::ones({2});
    job.step(step);
    EXPECT_TRUE(other.grad().defined());
  }
  job.parallel.settle();
  EXPECT_TRUE(torch::allclose(other, torch::full({2}, 1 - 3 * 0.5)));
}

TEST_P_ON(DelayedUpdate, ARefusedStepUpdatesNothingAndTheNextOneRuns, ranks) {
  Delayed delayed(communicator);
  const at::Tensor before = flat(*delayed.model);
  if (communicator.rank() == 1) delayed.parallel.refuse_step("the loss is nan");
  EXPECT_THROW(delayed.step(3), InputError);
  EXPECT_TRUE(flat(*delayed.model).equal(before));
  delayed.optimizer->zero_grad();
  delayed.step(4);
  EXPECT_FALSE(flat(*delayed.model).equal(before));
  delayed.parallel.require_same_weights("after a refused step");
}

TEST_P_ON(DelayedUpdate, LbfgsWaitsForAllGradients, ranks) {
  const auto weights_after = [&](const std::string& strategy) {
    DelayedJob job(communicator, {.strategy = strategy},
                   maker<torch::optim::LBFGS>(torch::optim::LBFGSOptions(0.1).max_iter(4)),
                   at::kDouble);
    for (int step = 0; step < 3; ++step)
      job.parallel.step(*job.optimizer, [&] {
        job.optimizer->zero_grad();
        const at::Tensor loss = job.loss(step);
        loss.backward();
        return loss;
      });
    return job.weights();
  };
  EXPECT_LE(relative_error(weights_after("dear(bucket=64B)"), weights_after("bulk")), 1e-9);
}

/// The point of it: when step() returns, all-gathers are under way and weights are old; each layer
/// waits for its own bucket.
TEST_ON(DelayedUpdate, ALayersOperatorUpdatesItsBucketAlone, ranks, 1) {
  DelayedJob job(communicator, {.strategy = "dear(layers=1)"}, descent(0.1));
  Mlp& model = *job.model;
  for (int step = 0; step < 8; ++step) job.step(step);
  const auto bits = [](const at::Tensor& t) {  // past ATen
    return std::vector<float>(t.const_data_ptr<float>(), t.const_data_ptr<float>() + t.numel());
  };
  const auto a = bits(model.a->weight), b = bits(model.b->weight), c = bits(model.c->weight);
  model.b->forward(torch::ones({1, 16}));
  EXPECT_EQ(bits(model.a->weight), a);
  EXPECT_NE(bits(model.b->weight), b);
  EXPECT_EQ(bits(model.c->weight), c);
  job.parallel.settle();
  EXPECT_NE(bits(model.a->weight), a);
  EXPECT_NE(bits(model.c->weight), c);
  model.zero_grad();
  EXPECT_THAT(job.parallel.finish().held, Not(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(Ranks, DelayedUpdate, testing::Values(2, 3, 4));

// Training under every strategy of the registry: the weights are bulk's, and a step does what its
// Plan names and nothing else.

std::multiset<std::string> recorded(const doc::Timeline& timeline, int step) {
  std::multiset<std::string> titles;
  for (const doc::Event& e : timeline.events) {
    EXPECT_LT(e.start_ns, e.end_ns);
    if (e.step != step) continue;
    titles.insert(fmt::format("{}: {} bytes", timeline.names[to_index(e.name)], e.bytes));
  }
  return titles;
}

class NothingBeside : public testing::TestWithParam<int> {};

TEST_P_ON(NothingBeside, AStepSendsAndConvertsWhatItsPlanNames, ranks) {
  std::vector<std::string> strategies = training_strategies();
  for (const auto& line : plan::exchanges().lines())
    strategies.push_back(line.name + "(wire=fp16)");
  const std::string curvature = "ddp+kfac(mpd, factors=2, inverses=4)";
  strategies.push_back(curvature);
  for (const std::string& strategy : strategies) {
    NotingCommunicator noting(communicator);
    exec::Recorder recorder(communicator, exec::agree_origin(communicator), "trained");
    torch::nn::Sequential model(torch::nn::Linear(6, 5), torch::nn::BatchNorm1d(5),  // buffers
                                torch::nn::Linear(5, 3));
    std::optional<KFAC> pre;
    if (strategy == curvature)
      pre.emplace(*model, KfacOptions{.loss_average = LossAverage{},
                                      .learning_rate = [](auto) { return 0.01; },
                                      .norms = false});
    DataParallel parallel(*model, noting,
                          {.strategy = strategy,
                           .measured_steps = 2,
                           .preconditioner = pre ? &*pre : nullptr,
                           .recorder = &recorder});
    static_cast<void>(noting.take());
    int weighted = 0;
    for (int step = 0; step < 7; ++step) {
      const doc::Plan plan = parallel.plan();
      const bool settled = parallel.plan_is_final();
      recorder.begin_step(step);
      model->zero_grad();
      if (step % 3 == 1) parallel.set_batch(kBatch + communicator.rank());
      loss_of(*model, step, 1).backward();
      const StepReport report = parallel.finish();
      if (pre) {
        EXPECT_EQ(report.factors.size(), step % 2 == 0 ? 4u : 0u) << "A and G of two layers";
        pre->step();
      }
      weighted += report.variant.ends_with("-weighted");
      const std::int32_t variant = plan.variant_index(report.variant);
      ASSERT_GE(variant, 0) << report.variant;
      const doc::TaskGraph& graph = plan.variants[static_cast<std::size_t>(variant)];
      const doc::VariantIndex index(plan, graph, communicator.rank());
      std::vector<std::string> named;  // as the communicator notes collectives
      std::multiset<std::string> executed;
      for (std::size_t i = 0; i < graph.tasks.size(); ++i) {
        const doc::Task& t = graph.tasks[i];
        if (!index.has[i]) continue;
        using enum doc::TaskKind;
        if (t.origin == doc::Origin::executed || t.kind == factor || t.kind == precondition)
          executed.insert(fmt::format("{}: {} bytes", event_name_of(plan, graph, t), t.bytes));
        if (is_communication(t.kind))
          named.push_back(
              fmt::format("step {}: {}: {} bytes", step, title_of(plan, graph, t), t.bytes));
      }
      std::vector<std::string> submitted = noting.take();
      // Agreeing on another plan comes behind the step's own collectives and belongs to no step.
      if (!settled && submitted.size() > named.size()) submitted.resize(named.size());
      EXPECT_EQ(submitted, named) << strategy << ", step " << step;
      EXPECT_EQ(recorded(recorder.timeline(), step), executed) << strategy << ", step " << step;
    }
    EXPECT_EQ(weighted, 2) << strategy;
    EXPECT_TRUE(pre || parallel.plan_is_final()) << strategy;  // K-FAC's is measured for longer
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, NothingBeside, testing::Values(1, 2, 3, 4));

TEST_ON(Strategies, OneThatCannotTrainIsRefusedWithTheReason, ranks, 2) {
  for (const auto& extra : plan::extras().lines()) {
    if (extra.make.traits.runs.train) continue;
    Mlp model;
    const std::string strategy = "ddp+" + extra.name;
    EXPECT_THAT(thrown_by([&] { DataParallel(model, communicator, {.strategy = strategy}); }),
                AllOf(HasSubstr(strategy), HasSubstr("it cannot train"),
                      HasSubstr(std::string(extra.make.traits.why_not_train))));
  }
}

}  // namespace
}  // namespace linerate::torch_adapter
