// Training by the code for parameters on a device, on the CPU: the weights are those of the other
// code, whatever the strategy, and the host waits for nothing.
#include <fmt/format.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/convert_parameters.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <optional>
#include <set>
#include <utility>

#include "linerate/core/index.hpp"
#include "linerate/exec/recorder.hpp"
#include "linerate/torch_adapter/streams/late_values.hpp"
#include "torch_adapter/group_over_communicator.hpp"
#include "torch_adapter/host_reads.hpp"
#include "torch_adapter/parity.hpp"
#include "torch_adapter/rank_tests.hpp"
#include "torch_adapter/registered_compressors.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using testing::HasSubstr;

/// Three are measured; plans are final two later.
constexpr int kStreamedSteps = 12;

/// Mlp's layers with batch norm between them, and one that only some ranks use in some steps.
struct Net : torch::nn::Module {
  // Batch norm takes a bias away: its gradient would be rounding alone, which Adam makes large.
  // Of 3 ranks one and the same driver then differs from itself by 3e-4, in a third of all runs.
  torch::nn::Linear a =
      register_module("a", torch::nn::Linear(torch::nn::LinearOptions(6, 16).bias(false)));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(16));
  torch::nn::Linear sometimes = register_module("sometimes", torch::nn::Linear(16, 16));
  torch::nn::Linear b = register_module("b", torch::nn::Linear(16, 3));
  Net() { set_weights_of_rank(*this); }
  at::Tensor forward(at::Tensor x, bool with_all) {
    x = torch::tanh(norm->forward(a->forward(x)));
    if (with_all) x = x + sometimes->forward(x);
    return b->forward(x);
  }
};

struct Trained {
  at::Tensor weights;              // and buffers
  std::vector<std::string> state;  // of compressors
  std::int64_t rounds = 0, unused = 0;
  std::int64_t host_waits = 0, values_read = 0;
};

/// Those of two drivers end at the same weights, but for `most`, by as many exchanges.
void expect_same(const Trained& found, const Trained& expected, double most,
                 const std::string& title) {
  EXPECT_LE(relative_error(found.weights, expected.weights), most) << title;
  EXPECT_EQ(found.rounds, expected.rounds) << title;
  EXPECT_EQ(found.unused, expected.unused) << title;
}

/// Steps with samples that differ, gradients that accumulate, layers that nobody or one rank uses,
/// a buffer that comes to lie elsewhere, a gradient that changes after it was sent. `device_group`:
/// empty, or kGroup.
Trained train(Communicator& communicator, const std::string& strategy, at::ScalarType type,
              bool adam, const std::string& device_group, int measured_steps = 3) {
  Net model;
  model.to(type);
  DataParallel parallel(
      model, communicator,
      {.strategy = strategy, .measured_steps = measured_steps, .device_group = device_group});
  torch::optim::Adam by_adam(model.parameters(), 0.01);
  torch::optim::SGD by_sgd(model.parameters(),
                           torch::optim::SGDOptions(0.05).momentum(momentum_beside(strategy, 0.9)));
  Trained result;
  const HostReads reads;
  for (int step = 0; step < kStreamedSteps; ++step) {
    const int rank = communicator.rank();
    const auto pass = [&](double seed) {
      const bool with_all = step % 4 != 3 && (step % 4 != 2 || rank == 0);
      mean_loss(model.forward(numbers({kBatch, 6}, seed + rank, type), with_all),
                numbers({kBatch, 3}, step % 5 + 0.5 + rank, type))
          .backward();
    };
    if (step % 3 == 1) parallel.set_batch(kBatch + rank);
    if (step % 5 == 2) parallel.accumulate([&] { pass(0.25); });
    pass(step % 7);
    if (step == 6) model.norm->running_mean.set_data(model.norm->running_mean.clone());
    if (step == 8 && rank == 0) {
      const torch::NoGradGuard no_grad;
      model.b->weight.mutable_grad().mul_(2);
    }
    const StepReport report = adam ? parallel.step(by_adam) : parallel.step(by_sgd);
    result.host_waits += report.host_waits;
    result.rounds += report.rounds;
    result.unused += report.unused_everywhere;
    EXPECT_FALSE(report.late_infinite) << strategy << ", step " << step;
  }
  parallel.settle();
  result.values_read = HostReads::count();
  result.state = parallel.compression_state();
  require_bitwise_equal(communicator, model);
  std::vector<at::Tensor> all = {flat(model).to(at::kDouble)};
  for (const at::Tensor& b : model.buffers()) all.push_back(b.flatten().to(at::kDouble));
  result.weights = torch::cat(all);
  return result;
}

class StreamedTraining : public testing::TestWithParam<int> {};

/// A sum of two has one order. Of three and more it depends on the place in the bucket, and buckets
/// on measured times.
TEST_P_ON(StreamedTraining, EndsAtTheSameWeights, in_group, ranks) {
  for (const std::string& strategy : exchange_strategies())
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      const bool adam = type == at::kFloat;
      const std::string title = fmt::format("{}, {}", strategy, c10::toString(type));
      const Trained expected = train(communicator, strategy, type, adam, "");
      const Trained found = train(communicator, strategy, type, adam, kGroup);
      const bool casts = strategy.find("wire") != std::string::npos;
      const double most = communicator.size() == 2 ? 0 : casts ? 1e-2 : tolerance(type);
      expect_same(found, expected, most, title);
      EXPECT_EQ(found.host_waits, 0) << title;
      EXPECT_EQ(found.values_read, 0) << title;
    }
}

/// By every compressor of the registry: weights, and the words of a checkpoint. Products of
/// matrices are sums whose order is the operator's. Of three ranks sums have one order as long as
/// buckets stay, and dear cuts them by measured times.
TEST_P_ON(StreamedTraining, WithACompressorEndsAtTheSameWeights, in_group, ranks) {
  const int measured_steps = communicator.size() <= 2 ? 3 : 2 * kStreamedSteps;
  for (const std::string& strategy : coding_strategies()) {
    if (communicator.size() > 2 && strategy.starts_with("dear")) continue;
    const auto trained = [&](const std::string& device_group) {
      return train(communicator, strategy, at::kFloat, false, device_group, measured_steps);
    };
    const Trained found = trained(kGroup), expected = trained("");
    const bool is_exact = !multiplies_matrices(strategy);
    expect_same(found, expected, is_exact ? 0 : 1e-4, strategy);
    EXPECT_TRUE(!is_exact || found.state == expected.state) << strategy;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, StreamedTraining, testing::Values(1, 2, 3));

/// What steps leave of means that are not finite: in weights, which begin each step anew, or, by
/// finish(), in gradients. One rank's loss is infinite, then no number; then every rank's is such
/// that each half is finite in 16 bits and their sum is not.
at::Tensor left_by_infinities(Communicator& communicator, const std::string& strategy,
                              const std::string& device_group, bool by_finish) {
  Mlp model;
  DataParallel parallel(model, communicator,
                        {.strategy = strategy, .measured_steps = 2, .device_group = device_group});
  torch::optim::SGD optimizer(model.parameters(), 0.05);
  const at::Tensor begun = flat(model);
  std::vector<at::Tensor> left;
  for (int step = 0; step < 9; ++step) {
    parallel.set_loss_scale(1);  // else 16 bits would be cut off
    at::Tensor loss = loss_of(model, step, 1);
    if (step % 3 == 0 && communicator.rank() == 1)
      loss = loss * (step == 0 ? kFloatInfinity : kFloatNaN);
    if (step % 3 == 1) loss = loss + 1.2e5 * model.c->bias.sum();
    loss.backward();
    const StepReport report = by_finish ? parallel.finish() : parallel.step(optimizer);
    EXPECT_FALSE(report.infinite || report.late_infinite) << strategy << ", step " << step;
    EXPECT_EQ(report.host_waits, 0) << strategy;
    parallel.settle();
    const torch::NoGradGuard no_grad;
    for (at::Tensor& p : model.parameters()) {
      left.push_back((by_finish ? p.grad() : p.detach()).flatten().clone());
      p.mutable_grad().reset();
    }
    torch::nn::utils::vector_to_parameters(begun.clone(), model.parameters());
  }
  return torch::cat(left);
}

/// As without a device group, and so as in PyTorch's DDP: a scaler sees them in the same step.
TEST_ON(StreamedSteps, InfinitiesPass, in_group, ranks, 2) {
  const Warnings quiet;
  std::int64_t infinite = 0, of_sums = 0;
  for (const std::string& strategy : exchange_strategies())
    for (const bool by_finish : {false, true}) {
      const at::Tensor expected = left_by_infinities(communicator, strategy, "", by_finish),
                       found = left_by_infinities(communicator, strategy, kGroup, by_finish);
      const at::Tensor is_nan = expected.isnan();
      EXPECT_TRUE(found.isnan().equal(is_nan) &&
                  found.masked_fill(is_nan, 0).equal(expected.masked_fill(is_nan, 0)))
          << strategy << (by_finish ? ", finish()" : ", step()");
      infinite += (~expected.isfinite()).sum().item<std::int64_t>();
      if (strategy == "ddp(wire=fp16)") of_sums += expected.isinf().sum().item<std::int64_t>();
    }
  EXPECT_GT(infinite, 0);
  EXPECT_GE(of_sums, 18);  // three steps' mean of c's bias, and the weights that it has moved
}

TEST_ON(StreamedSteps, GathersOfDearAreLeftToTheNextForwardPass, in_group, ranks, 2) {
  Mlp model;
  DataParallel parallel(model, communicator,
                        {.strategy = "dear(layers=1)", .device_group = kGroup});
  torch::optim::SGD optimizer(model.parameters(), 0.05);
  for (int step = 0; step < 3; ++step) {
    loss_of(model, step, 1).backward();
    EXPECT_FALSE(parallel.updates_pending());
    parallel.step(optimizer);
    // The first one teaches the order of gradients, by which another plan is made at once.
    EXPECT_EQ(parallel.updates_pending(), step > 0);
  }
  parallel.settle();
  EXPECT_FALSE(parallel.updates_pending());
}

/// The same model goes on in f64: types are agreed on and buckets made anew.
TEST_ON(StreamedSteps, AModelOfAnotherTypeIsFollowed, in_group, ranks, 2) {
  const auto weights_over = [&](const std::string& device_group) {
    Mlp model;
    DataParallel parallel(model, communicator,
                          {.strategy = "dear(bucket=256B)", .device_group = device_group});
    torch::optim::SGD optimizer(model.parameters(), 0.05);
    for (int step = 0; step < 5; ++step) {
      const at::ScalarType type = step < 2 ? at::kFloat : at::kDouble;
      if (step == 2) model.to(type);
      loss_of(model, step + communicator.rank(), 1, type).backward();
      parallel.step(optimizer);
    }
    parallel.settle();
    return flat(model);
  };
  EXPECT_TRUE(weights_over(kGroup).equal(weights_over("")));
}

TEST(LateAnswer, IsTakenOnceAndJoinedWithOnesThatWereNot) {
  torch_adapter::LateAnswer answer;
  EXPECT_EQ(answer.take(), std::nullopt);
  answer.ask(torch::tensor(true));
  EXPECT_EQ(answer.take(), true);
  EXPECT_EQ(answer.take(), std::nullopt);
  answer.ask(torch::tensor(true));
  answer.ask(torch::tensor(false));
  EXPECT_EQ(answer.take(), true);
  answer.ask(torch::tensor(false));
  EXPECT_EQ(answer.take(), false);
}

std::string refusal(Communicator& communicator, DataParallelOptions options) {
  options.device_group = options.device_group.empty() ? kGroup : options.device_group;
  Mlp model;
  return thrown_by([&] { DataParallel(model, communicator, std::move(options)); });
}

TEST_ON(StreamedSteps, WhatOnlyTheCpuCanDoIsRefused, in_group, ranks, 2) {
  EXPECT_THAT(refusal(communicator, {.strategy = "ddp+codec(ratio=8)"}),
              HasSubstr("found \"codec(ratio=8)\""));
  EXPECT_THAT(refusal(communicator, {.strategy = "horovod(timer=clock, cycle=1ms)"}),
              HasSubstr("found timers"));
  EXPECT_THAT(refusal(communicator, {.strategy = "ddp", .device_group = "no such group"}),
              HasSubstr("process group \"no such group\" cannot exchange memory of cpu"));
  EXPECT_EQ(refusal(communicator, {.strategy = "ddp"}), "");
}

// Recorded steps of the code for parameters on a device, on the CPU: the same Timeline as the other
// code's.

constexpr int kStreamedAndRecorded = 14;  // the first are measured, and recorded too

/// What a rank records; a program adds passes and steps by itself.
doc::Timeline recorded(Communicator& communicator, const std::string& strategy,
                       const std::string& device_group) {
  Mlp model;
  exec::Recorder recorder(communicator, exec::agree_origin(communicator), "trained");
  DataParallel parallel(model, communicator,
                        {.strategy = strategy,
                         .measured_steps = 2,
                         .recorder = &recorder,
                         .device_group = device_group});
  torch::optim::SGD optimizer(model.parameters(), 0.05);
  const auto timed = [&](doc::TaskKind kind, const auto& work) {
    const std::int64_t start = recorder.now();
    work();
    recorder.add({.kind = kind,
                  .resource = doc::Resource::compute,
                  .start_ns = start,
                  .end_ns = recorder.now()});
  };
  for (int step = 0; step < kStreamedAndRecorded; ++step) {
    recorder.begin_step(step);
    const std::int64_t start = recorder.now();
    at::Tensor loss;
    timed(doc::TaskKind::forward, [&] { loss = loss_of(model, step, 1); });
    timed(doc::TaskKind::backward, [&] { loss.backward(); });
    // Not step(): with dear the other code has an update a bucket, where this one has one.
    const StepReport report = parallel.finish();
    EXPECT_EQ(report.host_waits, 0);
    timed(doc::TaskKind::update, [&] { optimizer.step(); });
    recorder.add_step(step, start, recorder.now(), report.variant);
    model.zero_grad();
  }
  return recorder.timeline();
}

/// "all-reduce bucket 0: a.weight b.bias, 1052 bytes", of a step.
std::multiset<std::string> tasks_of(const doc::Timeline& t, int step) {
  std::multiset<std::string> tasks;
  for (const doc::Event& e : t.events) {
    if (e.step != step) continue;
    std::string line{e.name < 0 ? name_of(e.kind) : t.names[to_index(e.name)]};
    if (e.set >= 0)
      for (const std::int32_t p : t.parameter_sets[to_index(e.set)])
        line += " " + t.parameter_names[to_index(p)];
    tasks.insert(fmt::format("{}, {} bytes, in {}", line, e.bytes, name_of(e.resource)));
  }
  return tasks;
}

/// One after the other as they have to be.
void expect_in_order(const doc::Timeline& t, const std::string& title) {
  std::map<int, doc::Step> steps;
  std::int64_t before = INT64_MIN;
  for (const doc::Step& s : t.steps) {
    EXPECT_LE(before, s.start_ns) << title;
    EXPECT_LT(s.start_ns, s.end_ns) << title;
    before = s.end_ns;
    steps[s.index] = s;
  }
  ASSERT_EQ(steps.size(), to_index(kStreamedAndRecorded)) << title;
  for (const doc::Event& e : t.events) {
    EXPECT_LE(e.start_ns, e.end_ns) << title;
    EXPECT_LE(steps[e.step].start_ns, e.start_ns) << title;
    EXPECT_LE(e.end_ns, steps[e.step].end_ns) << title;
    if (e.kind != doc::TaskKind::all_reduce) continue;
    EXPECT_LE(e.ready_ns, e.start_ns) << title;
    EXPECT_GE(e.ready_ns, 0) << title;
  }
}

TEST_ON(StreamRecording, HasWhatTheOtherCodeRecords, in_group, ranks, 2) {
  for (const std::string strategy :
       {"bulk", "ddp", "ddp(first=64B, bucket=512B)", "wfbp", "dear(layers=1)", "ddp(wire=fp16)"}) {
    const doc::Timeline expected = recorded(communicator, strategy, "");
    const doc::Timeline found = recorded(communicator, strategy, kGroup);
    expect_in_order(found, strategy);
    EXPECT_EQ(found.device, "") << "the CPU";
    for (int step = 0; step < kStreamedAndRecorded; ++step)
      EXPECT_EQ(tasks_of(found, step), tasks_of(expected, step)) << strategy << ", step " << step;
  }
}

}  // namespace
}  // namespace linerate::torch_adapter
