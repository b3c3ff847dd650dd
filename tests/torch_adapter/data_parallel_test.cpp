#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "linerate/torch_adapter/data_parallel.hpp"

#include <numeric>

#include "torch_adapter/parity.hpp"
#include "torch_adapter/rank_tests.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using testing::HasSubstr;

/// Ranks, strategy, type, whether gradients are set to none.
class Parity : public testing::TestWithParam<std::tuple<int, const char*, at::ScalarType, bool>> {};

TEST_P(Parity, EveryStepEqualsOneProcessOnTheConcatenatedBatch) {
  ranks(std::get<int>(GetParam()), [](Communicator& communicator) {
    const auto [n, strategy, type, set_to_none] = GetParam();
    PairedMlp pair(communicator, type);
    DataParallel parallel(pair.model, communicator, {.strategy = strategy, .measured_steps = 2});
    torch::optim::SGD optimizer(pair.model.parameters(),
                                torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int step = 0; step < 6; ++step) {
      // first step, rebuilt plan, and for "optimal" the plan after two more
      pair.begin_step(set_to_none);
      pair.backward();
      parallel.finish();
      pair.expect_equal("step " + std::to_string(step));
      optimizer.step();
      require_bitwise_equal(communicator, pair.model);
    }
    EXPECT_TRUE(parallel.plan_is_final());
  });
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, Parity,
    testing::Combine(testing::Values(1, 2, 3, 4),
                     // The small buckets hold a tensor or two: several are in flight.
                     testing::Values("bulk", "ddp", "ddp(first=64B,bucket=512B)", "optimal"),
                     testing::Values(at::kFloat, at::kDouble), testing::Bool()));

/// Steps of 2 ranks, each with its half of 2 kBatch samples of 6 numbers, beside one of a model
/// with all of them: the same gradients. `loss_of_part(model, x, y, rank)`.
template <typename Model, typename Loss>
void expect_steps_of_joined_batch(Communicator& c, Model& model, Model& reference,
                                  DataParallel& parallel, std::int64_t outputs, Loss&& loss_of_part,
                                  const std::function<void(const StepReport&)>& look = {}) {
  for (int step = 0; step < 4; ++step) {
    const at::Tensor x = numbers({2 * kBatch, 6}, step);
    const at::Tensor y = numbers({2 * kBatch, outputs}, step + 0.5);
    copy_parameters(model, reference);
    reference.zero_grad();
    model.zero_grad();
    // The mean over the whole batch is half of each rank's mean.
    for (int r = 0; r < 2; ++r) (loss_of_part(reference, rows(x, r), rows(y, r), r) / 2).backward();
    loss_of_part(model, rows(x, c.rank()), rows(y, c.rank()), c.rank()).backward();
    const StepReport report = parallel.finish();
    if (look) look(report);
    EXPECT_LE(gradient_error(model, reference), 1e-12) << "step " << step;
    require_bitwise_equal(c, model);
  }
}

TEST_BY_STEPS(DataParallel, AccumulatesWithoutCommunication, 2, 3) {
  pair.begin_step(step != 1);
  for (int micro = 0; micro < 2; ++micro) {
    const comm::Traffic before = pair.communicator.traffic();
    parallel.accumulate([&] { pair.backward(); });
    EXPECT_EQ(pair.communicator.traffic().sent.value, before.sent.value)
        << "accumulate() sent something";
  }
  if (step < 2) pair.backward();  // else finish() sends what only accumulated
  parallel.finish();
}

/// Three heads on one trunk; the caller picks the heads of a step.
struct Heads : torch::nn::Module {
  torch::nn::Linear trunk = register_module("trunk", torch::nn::Linear(6, 8));
  std::vector<torch::nn::Linear> heads;
  Heads() {
    for (int h = 0; h < 3; ++h)
      heads.push_back(register_module("head" + std::to_string(h), torch::nn::Linear(8, 3)));
    set_weights_of_rank(*this);
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x, int head) {
    return heads[static_cast<std::size_t>(head)]->forward(torch::tanh(trunk->forward(x)));
  }
};

TEST_ON(DataParallel, AParameterUnusedOnOneRankCountsAsZeroThere, ranks, 2) {
  Heads model, reference;
  DataParallel parallel(model, communicator, {.strategy = "ddp(first=64B,bucket=256B)"});
  // Rank r trains head r; head 2 is trained by nobody.
  expect_steps_of_joined_batch(
      communicator, model, reference, parallel, 3,
      [](Heads& net, const at::Tensor& x, const at::Tensor& y, int rank) {
        return mean_loss(net.forward(x, rank), y);
      },
      [&](const StepReport& report) {
        EXPECT_EQ(report.unused_here, 4);                       // weight and bias of two heads
        EXPECT_EQ(report.unused_everywhere, 2);                 // of head 2
        EXPECT_FALSE(model.heads[2]->weight.grad().defined());  // undefined stays undefined
      });
}

TEST_ON(DataParallel, AParameterUnusedEverywhereKeepsItsGradient, ranks, 3) {
  Heads model;
  DataParallel parallel(model, communicator, {.strategy = "ddp(first=64B,bucket=256B)"});
  const at::Tensor x = numbers({kBatch, 6}, 1), y = numbers({kBatch, 3}, 2);
  at::Tensor before;
  for (int step = 0; step < 3; ++step) {
    // Step 0 uses head 0; later steps use head 1 and clear no gradients: head 0's must keep its
    // bits, and with three ranks a third three times would not.
    mean_loss(model.forward(x, step == 0 ? 0 : 1), y).backward();
    parallel.finish();
    if (step == 0) before = model.heads[0]->weight.grad().clone();
    EXPECT_TRUE(torch::equal(model.heads[0]->weight.grad(), before)) << "step " << step;
  }
}

struct Shared : torch::nn::Module {
  torch::nn::Linear in = register_module("in", torch::nn::Linear(6, 6));
  torch::nn::Linear twice = register_module("twice", torch::nn::Linear(6, 6));
  Shared() {
    register_module("alias", twice);  // the same tensors under a second name
    set_weights_of_rank(*this);
    to(at::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) {
    return twice->forward(torch::tanh(twice->forward(torch::tanh(in->forward(x)))));
  }
};

TEST_ON(DataParallel, ASharedModuleGetsTheSumOfItsUses, ranks, 2) {
  Shared model, reference;
  DataParallel parallel(model, communicator, {.strategy = "ddp(first=64B,bucket=64B)"});
  EXPECT_EQ(parallel.workload().gradients.size(), 4u);  // each tensor once
  expect_steps_of_joined_batch(communicator, model, reference, parallel, 6,
                               [](Shared& net, const at::Tensor& x, const at::Tensor& y, int) {
                                 return mean_loss(net.forward(x), y);
                               });
}

TEST_ON(DataParallel, AParameterFrozenLaterCountsAsUnused, ranks, 2) {
  Mlp model;
  DataParallel parallel(model, communicator);
  for (int step = 0; step < 3; ++step) {
    model.zero_grad();
    if (step == 1) model.b->weight.set_requires_grad(false);
    loss_of(model, 1, 2).backward();
    EXPECT_EQ(parallel.finish().unused_everywhere, step == 0 ? 0 : 1);
    EXPECT_EQ(model.b->weight.grad().defined(), step == 0);
  }
}

TEST_BY_STEPS(DataParallel, UnevenBatchesAreWeightedBySamples, 3, 4) {
  // Rank 2 runs out of samples in the last two steps.
  constexpr std::int64_t kCounts[][3] = {{8, 8, 8}, {5, 8, 1}, {3, 8, 0}, {1, 7, 0}};
  const auto& counts = kCounts[step];
  const std::int64_t total = std::accumulate(counts, counts + 3, std::int64_t{0});
  ++pair.batch;
  const at::Tensor x = pair.input().narrow(0, 0, total), y = pair.target().narrow(0, 0, total);
  pair.begin_step();
  mean_loss(pair.reference.forward(x), y).backward();
  const int r = pair.communicator.rank();
  const std::int64_t begin = std::accumulate(counts, counts + r, std::int64_t{0});
  parallel.set_batch(counts[r]);
  if (counts[r] > 0)
    mean_loss(pair.model.forward(x.narrow(0, begin, counts[r])), y.narrow(0, begin, counts[r]))
        .backward();
  parallel.finish();
}

TEST_ON(DataParallel, GradientsAreViewsOfOneBucket, ranks, 2) {
  Mlp model;
  DataParallel parallel(model, communicator, {.strategy = "bulk"});
  void* bucket = nullptr;
  for (int step = 0; step < 3; ++step) {
    model.zero_grad(step == 2);  // either way they come back to the bucket
    loss_of(model, step, 1).backward();
    parallel.finish();
    for (const at::Tensor& p : model.parameters()) {
      if (!bucket) bucket = p.grad().storage().mutable_data();
      EXPECT_EQ(p.grad().storage().mutable_data(), bucket);
      EXPECT_EQ(p.grad().sizes(), p.sizes());
    }
  }
}

TEST_ON(DataParallel, ChannelsLastWeightsKeepTheirLayout, ranks, 2) {
  torch::nn::Conv2d model(3, 4, 3), reference(3, 4, 3);
  model->to(at::kDouble);
  reference->to(at::kDouble);
  model->weight.set_data(model->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
  DataParallel parallel(*model, communicator);
  const at::Tensor x = numbers({4, 3, 5, 5}, 1);
  for (int step = 0; step < 2; ++step) {
    copy_parameters(*model, *reference);
    reference->zero_grad();
    model->zero_grad();
    reference->forward(x).square().mean().backward();
    model->forward(x.narrow(0, 2 * communicator.rank(), 2)).square().mean().backward();
    parallel.finish();
    EXPECT_EQ(model->weight.grad().strides(), model->weight.strides());
    EXPECT_LE(gradient_error(*model, *reference), 1e-12);
  }
}

/// Mean over ranks of the norm of the gradient that the rank's rows alone would give.
double mean_gradient_norm(Mlp& model, const at::Tensor& x, const at::Tensor& y, int ranks) {
  double sum = 0;
  for (int r = 0; r < ranks; ++r) {
    model.zero_grad();
    mean_loss(model.forward(rows(x, r)), rows(y, r)).backward();
    sum += gradient_norm(model);
  }
  return sum / ranks;
}

/// Ranks, strategy without its end, type on the wire and half an ulp of its 1.
class Wire
    : public testing::TestWithParam<std::tuple<int, const char*, std::pair<const char*, double>>> {
};

TEST_P(Wire, SixteenBitsTravelScaledAndComeBackAsFloat) {
  ranks(std::get<int>(GetParam()), [](Communicator& communicator) {
    const auto [n, strategy, wire] = GetParam();
    PairedMlp pair(communicator, at::kFloat);
    Mlp &model = pair.model, &reference = pair.reference;
    DataParallel parallel(model, communicator,
                          {.strategy = std::string(strategy) + wire.first + ")"});
    for (int step = 0; step < 4; ++step) {
      ++pair.batch;
      copy_parameters(model, reference);
      const double mean_norm = mean_gradient_norm(reference, pair.input(), pair.target(), n);
      pair.begin_step(step != 1);
      pair.reference_loss().backward();
      pair.model_loss().backward();
      EXPECT_EQ(parallel.finish().bytes, 2 * flat(model).numel());
      EXPECT_EQ(model.a->weight.grad().scalar_type(), at::kFloat);
      // One cast of g_r / ranks and ranks - 1 rounded sums, each within epsilon of a value of at
      // most mean |g_r|; the norm of that is at most the mean of the norms.
      EXPECT_LE(gradient_error(model, reference),
                n * wire.second * mean_norm / gradient_norm(reference) + tolerance(at::kFloat))
          << "step " << step;
      require_bitwise_equal(communicator, model);
    }
  });
}
INSTANTIATE_TEST_SUITE_P(
    Types, Wire,
    testing::Combine(testing::Values(2, 4),
                     testing::Values("bulk(wire=", "ddp(first=64B,bucket=512B,wire=",
                                     "optimal(wire="),
                     testing::Values(std::pair{"fp16", 0x1p-11}, std::pair{"bf16", 0x1p-8})));

TEST_ON(DataParallel, BuffersFollowRankZeroUnlessKept, ranks, 2) {
  for (const BufferPolicy policy : {BufferPolicy::broadcast, BufferPolicy::keep}) {
    torch::nn::BatchNorm1d model(6);
    DataParallel parallel(*model, communicator, {.buffers = policy});
    const at::Tensor x = numbers({kBatch, 6}, communicator.rank(), at::kFloat);
    model->forward(x).square().mean().backward();
    const at::Tensor mine = model->running_mean.clone();
    parallel.finish();
    const bool kept = torch::equal(model->running_mean, mine);
    EXPECT_EQ(kept, policy == BufferPolicy::keep || communicator.rank() == 0);
    if (policy == BufferPolicy::broadcast) require_bitwise_equal(communicator, *model);
    EXPECT_EQ(model->num_batches_tracked.item<std::int64_t>(), 1);
  }
}

TEST_ON(DataParallel, OfAGroupExchangesWithinIt, ranks, 4) {
  const int number = communicator.rank() / 2;
  const auto group = communicator.split(number, 0, "pair " + std::to_string(number));
  PairedMlp pair(*group);  // with a batch of its own
  pair.batch = 10 * number;
  DataParallel parallel(pair.model, *group);
  for (int step = 0; step < 3; ++step) {
    pair.step(parallel);
    pair.expect_equal("of the pair's samples");
  }
}

TEST_ON(DataParallel, FinishWithoutBackwardChangesNoGradient, ranks, 2) {
  Mlp model;
  {
    DataParallel parallel(model, communicator);
    parallel.finish();
    loss_of(model, 1, 2).backward();
    parallel.finish();
    const at::Tensor gradient = model.a->weight.grad().clone();
    EXPECT_EQ(parallel.finish().unused_everywhere, 6);
    EXPECT_TRUE(torch::equal(model.a->weight.grad(), gradient));
  }
  // Its hooks are gone: a backward on one rank alone neither waits nor sends.
  if (communicator.rank() == 1) loss_of(model, 1, 2).backward();
}

struct Backwards : torch::nn::Module {  // registered in the opposite order of use
  torch::nn::Linear last = register_module("last", torch::nn::Linear(6, 3));
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 6));
  at::Tensor forward(const at::Tensor& x) { return last->forward(torch::tanh(first->forward(x))); }
};

TEST_ON(DataParallel, TheRebuiltPlanFollowsTheOrderOfReadiness, ranks, 2) {
  Backwards model;
  DataParallel parallel(model, communicator);
  EXPECT_EQ(parallel.plan().gradient_names.front(), "first.bias");  // reverse registration
  for (int step = 0; step < 2; ++step) {
    loss_of(model, 1, 2).backward();
    parallel.finish();
  }
  EXPECT_THAT(parallel.plan().gradient_names.front(),
              HasSubstr("last."));  // its gradients come first
  EXPECT_GT(parallel.workload().backward_s, 0);
}

}  // namespace
}  // namespace linerate::torch_adapter
