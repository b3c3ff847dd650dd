// Training with every compressor of the registry: ranks stay alike, the mean is what the codecs
// promise, and a step that does not count leaves no trace.
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <map>
#include <string>
#include <vector>

#include "linerate/compress/registry.hpp"
#include "linerate/core/error.hpp"
#include "linerate/plan/compression.hpp"
#include "torch_adapter/owed_job.hpp"
#include "torch_adapter/parity.hpp"
#include "torch_adapter/rank_tests.hpp"
#include "torch_adapter/registered_compressors.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using testing::HasSubstr;

struct Job {
  Communicator& communicator;
  std::string strategy;
  double lr = 0.05;
  Mlp model{};
  DataParallel parallel{model, communicator, {.strategy = strategy}};
  torch::optim::SGD optimizer{model.parameters(), torch::optim::SGDOptions(lr).momentum(0.9)};

  at::Tensor backward(int step) {
    const at::Tensor loss = loss_of_rows(communicator, model, step % 7, step % 5 + 0.5);
    loss.backward();
    return loss;
  }
  StepReport step(int number) {
    optimizer.zero_grad();
    backward(number);
    const StepReport report = parallel.finish();
    optimizer.step();
    return report;
  }
  at::Tensor weights() const { return flat(model); }
  /// A step in which the first element of a parameter's gradient is `bad`, on one rank: no rank has
  /// gradients or other weights then.
  void expect_skipped(int number, float bad, int on_rank, const std::vector<std::size_t>& of) {
    const at::Tensor before = weights();
    optimizer.zero_grad();
    backward(number);
    if (communicator.rank() == on_rank)
      for (const std::size_t p : of) model.parameters()[p].mutable_grad().flatten()[0].fill_(bad);
    EXPECT_TRUE(parallel.finish().infinite) << strategy << ", parameter " << of.front();
    for (const at::Tensor& p : model.parameters()) EXPECT_FALSE(p.grad().defined()) << strategy;
    EXPECT_TRUE(torch::equal(weights(), before)) << strategy;
  }
};

class EveryCompressor : public testing::TestWithParam<int> {};

/// Under "dear" the last decodes of a step run in the next forward pass, when the step has been
/// accepted: what codecs remember of them counts all the same.
TEST_P_ON(EveryCompressor, UnderDearEndsAtBulksWeights, ranks) {
  int compared = 0;
  for (const std::string& name : registered_compressors()) {
    const doc::Component component = doc::parse_component(name);
    if (component.name == "auto" || component.find("exchange") || !plan::fits_decoupled(component))
      continue;
    const auto weights = [&](const char* exchange) {
      Job job{communicator, exchange + name, 1e-3};
      for (int step = 0; step < 12; ++step) {
        job.backward(step);
        job.parallel.step(job.optimizer);
      }
      job.parallel.settle();
      return job.weights();
    };
    // Sums of 16-bit numbers are rounded in another order.
    EXPECT_LE(relative_error(weights("dear+"), weights("bulk+")), 1e-4) << name;
    ++compared;
  }
  EXPECT_GE(compared, 3);
}

/// The optimizer has no momentum then: what travels dense gets dgc's, as SGD with momentum has it.
/// A step that is skipped leaves no trace, and a checkpoint has it.
TEST_ON(Dgc, AVectorMovesAsUnderMomentum, ranks, 2) {
  for (const bool nesterov : {false, true}) {
    torch::nn::Linear net(6, 8), twin(6, 8);
    for (auto& linear : {net, twin})
      for (at::Tensor p : linear->parameters()) p.detach().zero_();
    const DataParallelOptions options{
        .strategy = std::string("ddp+dgc(density=0.1,momentum=0.9,dense_below=0,nesterov=") +
                    (nesterov ? "yes)" : "no)")};
    auto parallel = std::make_unique<DataParallel>(*net, communicator, options);
    torch::optim::SGD optimizer(net->parameters(), 1.0);
    torch::optim::SGD momentum(twin->parameters(),
                               torch::optim::SGDOptions(1).momentum(0.9).nesterov(nesterov));
    for (int step = 0; step < 100; ++step) {
      if (step == 40) {
        const std::vector<std::string> state = parallel->compression_state();
        parallel = std::make_unique<DataParallel>(*net, communicator, options);
        parallel->load_compression_state(state, "checkpoint");
      }
      optimizer.zero_grad();
      const float skipped = step % 7 == 3 ? kFloatNaN : 1;
      (net->forward(torch::ones({1, 6})).sum() * skipped).backward();
      if (parallel->finish().infinite) continue;
      optimizer.step();
      momentum.zero_grad();
      twin->forward(torch::ones({1, 6})).sum().backward();
      momentum.step();
    }
    EXPECT_GT(twin->bias.abs().min().item<double>(), 500);
    EXPECT_TRUE(torch::allclose(net->bias, twin->bias, 1e-5)) << net->bias << twin->bias;
  }
}

/// What is too small to encode gets Signum's momentum, too: gradients of 1 give 1 - 0.9^n.
TEST_ON(SignSgd, ASingleElementMovesByItsMomentum, ranks, 2) {
  torch::nn::Linear net(6, 1);
  for (at::Tensor p : net->parameters()) p.detach().zero_();
  DataParallel parallel(*net, communicator,
                        {.strategy = "ddp+signsgd(momentum=0.9, dense_below=0)"});
  torch::optim::SGD optimizer(net->parameters(), 1.0);
  double moment = 0, moved = 0;
  for (int step = 0; step < 30; ++step) {
    optimizer.zero_grad();
    net->forward(torch::ones({1, 6})).sum().backward();
    parallel.finish();
    optimizer.step();
    moment = 0.9 * moment + 0.1;
    moved -= moment;
  }
  EXPECT_NEAR(net->bias.item<double>(), moved, 1e-4);
}

/// The exchanged gradients of some steps, whose inputs do not depend on what was exchanged before:
/// weights stay. Names of parameters that are encoded, or of all where any sum of two is the same.
std::map<std::string, std::vector<at::Tensor>> exchanged(Communicator& communicator,
                                                         const std::string& strategy,
                                                         const compress::Compressor& compressor) {
  std::map<std::string, std::vector<at::Tensor>> all;
  Job job{communicator, strategy};
  for (int step = 0; step < 6; ++step) {
    job.optimizer.zero_grad();
    job.backward(step);
    job.parallel.finish();
    require_bitwise_equal(communicator, job.model);
    for (const auto& parameter : job.model.named_parameters()) {
      const at::Tensor& p = parameter.value();
      const compress::Shape shape{p.numel(), p.dim() > 1 ? p.size(0) : 1};
      if (communicator.size() == 2 || !compressor.rounds(shape).empty())
        all[parameter.key()].push_back(p.grad().clone());
    }
  }
  return all;
}

/// All ranks have the same bits. A tensor is encoded by itself, so another cut into buckets changes
/// no bit, and no bit of the residuals that later steps send. Sums of three or more are rounded in
/// an order of their own.
TEST_P_ON(EveryCompressor, DoesNotDependOnBuckets, ranks) {
  for (const std::string& name : registered_compressors()) {
    const auto compressor =
        compress::make_compressor(plan::compressors_in(doc::parse_component(name)).front());
    const bool has_one_order = communicator.size() <= 2 || !compress::is_summable(*compressor);
    const auto whole = exchanged(communicator, "bulk+" + name, *compressor);
    EXPECT_TRUE(!whole.empty() || !has_one_order) << name;
    for (const char* exchange : {"wfbp", "ddp(first=64B,bucket=512B)"}) {
      const auto cut = exchanged(communicator, std::string(exchange) + "+" + name, *compressor);
      for (const auto& [parameter, steps] : whole)
        for (std::size_t step = 0; has_one_order && step < steps.size(); ++step)
          EXPECT_TRUE(torch::equal(steps[step], cut.at(parameter)[step]))
              << exchange << "+" << name << ", " << parameter << ", step " << step;
    }
  }
}

/// What rounds alone: after some steps the weights are near those without compression, also where
/// every rank has another number of samples. A factor of the ranks too much or too little would be
/// far off.
TEST_P_ON(EveryCompressor, ThatOnlyRoundsTrainsAsDenseDoes, ranks) {
  const auto trained = [&](const std::string& strategy) {
    Job job{communicator, strategy};
    for (int step = 0; step < 20; ++step) {
      if (step % 4 == 1) job.parallel.set_batch(communicator.rank() + 1);
      job.step(step);
    }
    return job.weights();
  };
  const at::Tensor dense = trained("ddp");
  for (const char* strategy :
       {"ddp+fp16", "ddp+bf16", "dear+fp16", "bulk+natural(dense_below=0)",
        "ddp+qsgd(dense_below=0)", "ddp(first=64B,bucket=512B)+maxmin(dense_below=0)"})
    EXPECT_LE(relative_error(trained(strategy), dense), 0.05) << strategy;
}

/// A different number of samples on every rank: the mean is that over all samples.
TEST_P_ON(EveryCompressor, WeighsRanksByTheirSamples, ranks) {
  const auto gradient = [&](const std::string& strategy) {
    Job job{communicator, strategy};
    job.parallel.set_batch(communicator.rank() + 1);
    job.backward(1);
    job.parallel.finish();
    return job.model.c->weight.grad().clone();
  };
  EXPECT_LE(relative_error(gradient("ddp+fp16"), gradient("ddp")), 2e-3);
}

/// Biases travel dense: in a bucket with a matrix, in one of their own, or in a phase in which
/// everything does. Whatever the buckets, what is no number reaches no .grad.
TEST_P_ON(EveryCompressor, SkipsAStepWithANaNInAnyGradientWhateverTheBuckets, quietly<ranks>) {
  for (const char* strategy :
       {"bulk+powersgd(rank=1, dense_below=0)", "wfbp+powersgd(rank=1, dense_below=0)",
        "ddp+powersgd(rank=1, dense_below=0)",
        "ddp(first=64B,bucket=256B)+powersgd(rank=1, dense_below=0)",
        "ddp(first=1KiB)+powersgd(rank=1, dense_below=0)",
        "ddp(first=64B,bucket=256B)+powersgd(rank=1,warmup=100, dense_below=0)",
        "wfbp+topk(density=0.1, dense_below=0)", "dear+acpsgd(rank=1, dense_below=0)"})
    for (std::size_t p = 0; p < 6; ++p) {
      Job job{communicator, strategy, 1e-3};
      for (int step = 0; step < 2; ++step) job.step(step);
      job.expect_skipped(2, kFloatNaN, 0, {p});
      EXPECT_FALSE(job.step(3).infinite) << strategy;
    }
}

/// Three steps of a magnitude that f32 can just hold, or that its squares cannot: they are skipped
/// or they count, and after them everything is finite.
TEST_P_ON(EveryCompressor, StaysFiniteAfterHugeGradients, quietly<ranks>) {
  for (const std::string& name : registered_compressors())
    for (const float huge : {3e38f, 1e25f, 1e19f, 1e12f}) {
      Job job{communicator, "ddp+" + name, 1e-3};
      for (int step = 0; step < 12; ++step) {
        job.optimizer.zero_grad();
        job.backward(step);
        if (step >= 4 && step < 7)
          for (at::Tensor p : job.model.parameters())
            p.mutable_grad().copy_(huge * numbers(p.sizes(), step, at::kFloat));
        const bool infinite = job.parallel.finish().infinite;
        EXPECT_EQ(infinite, huge > 1e20f && step >= 4 && step < 7) << name << ", " << huge;
        if (infinite) continue;
        for (const at::Tensor& p : job.model.parameters())
          ASSERT_TRUE(p.grad().isfinite().all().item<bool>())
              << name << ", " << huge << ", step " << step;
      }
      for (const std::string& text : job.parallel.compression_state())
        for (const auto& [parameter, tensor] :
             compress::compression_state_from(text, "state").tensors)
          EXPECT_TRUE(compress::all_finite(tensor.residual))
              << name << ", " << huge << ", " << parameter;
    }
}

/// A gradient that changed after it was sent: the step is exchanged again, and what the first
/// round had put into residuals and codecs is gone.
TEST_P_ON(EveryCompressor, ForgetsAnExchangeThatIsRepeated, quietly<ranks>) {
  for (const std::string& name : registered_compressors()) {
    const std::string strategy = "ddp(first=64B,bucket=512B)+" + name;
    const auto weights = [&](bool repeats) {
      Job job{communicator, strategy, 1e-3};
      for (int step = 0; step < 6; ++step) {
        job.optimizer.zero_grad();
        job.backward(step);
        const torch::NoGradGuard no_grad;
        if (repeats)  // the same values, but another version
          for (at::Tensor p : job.model.parameters()) p.mutable_grad().mul_(1);
        const StepReport report = job.parallel.finish();
        if (step > 0) {
          EXPECT_EQ(report.rounds, repeats ? 2 : 1) << strategy;
        }
        job.optimizer.step();
      }
      return job.weights();
    };
    EXPECT_TRUE(torch::equal(weights(false), weights(true))) << strategy;
  }
}

TEST_P_ON(EveryCompressor, ReportsTheBytesOfItsPayloads, ranks) {
  const auto bytes = [&](const std::string& strategy) {
    Job job{communicator, strategy};
    job.step(0);
    return job.step(1).bytes;
  };
  const std::int64_t elements = 6 * 16 + 16 + 16 * 16 + 16 + 16 * 3 + 3;
  EXPECT_EQ(bytes("ddp"), 4 * elements);
  EXPECT_EQ(bytes("ddp+fp16"), 2 * elements);
  // Rank 1 of 16 x 6 and 16 x 16; 3 x 16 pays too; biases are dense.
  EXPECT_EQ(bytes("bulk+powersgd(rank=1, dense_below=0)"),
            4 * ((16 + 6) + (16 + 16) + (3 + 16) + 16 + 16 + 3));
}

/// Saved in the middle and loaded by another object: the same weights as without a break.
TEST_P_ON(EveryCompressor, GoesOnWhereItsStateWasSaved, ranks) {
  for (const std::string& name : registered_compressors()) {
    const std::string strategy = "ddp+" + name;
    const auto plain_sgd = [](Job& job) {  // without momentum: nothing of the optimizer to carry
      static_cast<torch::optim::SGDOptions&>(job.optimizer.param_groups()[0].options()).momentum(0);
    };
    Job whole{communicator, strategy, 1e-3}, first{communicator, strategy, 1e-3};
    plain_sgd(whole), plain_sgd(first);
    for (int step = 0; step < 8; ++step) whole.step(step);
    for (int step = 0; step < 4; ++step) first.step(step);
    const std::vector<std::string> state = first.parallel.compression_state();
    EXPECT_EQ(state.size(), static_cast<std::size_t>(communicator.size())) << strategy;
    Job second{communicator, strategy, 1e-3};
    plain_sgd(second);
    copy_parameters(first.model, second.model);
    second.parallel.load_compression_state(state, "state");
    for (int step = 4; step < 8; ++step) second.step(step);
    EXPECT_TRUE(torch::equal(whole.weights(), second.weights())) << strategy;
  }
}

/// Once, by rank 0, with the bytes that they send: all gradients of a model of halves.
TEST_P(EveryCompressor, NamesGradientsThatItLeavesDenseOnce) {
  const auto warned = [](const char* strategy, const auto& expected) {
    const Warnings warnings;
    ranks(GetParam(), [&](Communicator& communicator) {
      Mlp model;
      model.to(at::kBFloat16);
      DataParallel parallel(model, communicator, {.strategy = strategy});
      for (int step = 0; step < 3; ++step) {
        loss_of(model, step, 1, at::kBFloat16).backward();
        EXPECT_EQ(parallel.finish().bytes, 2 * (6 * 16 + 16 + 16 * 16 + 16 + 16 * 3 + 3));
        for (at::Tensor p : model.parameters()) p.mutable_grad().reset();
      }
      if (communicator.rank() == 0) {
        EXPECT_THAT(warnings.with("only f32 is compressed"), expected) << strategy;
      }
    });
  };
  warned("ddp+powersgd(rank=2)",
         testing::ElementsAre(HasSubstr("6 of 6 gradients are bf16, and only f32 is compressed: "
                                        "870 B a step travel dense")));
  warned("ddp", testing::IsEmpty());
}

/// 1-bit Adam's optimizer has a frozen second moment and no first one; LibTorch's are refused.
TEST_P_ON(EveryCompressor, RefusesAdamForWhatIsAFirstMoment, ranks) {
  Job job{communicator, "ddp+onebit-adam(freeze_step=2, dense_below=0)"};
  torch::optim::Adam adam{job.model.parameters(), torch::optim::AdamOptions(1e-3)};
  torch::optim::AdamW adam_w{job.model.parameters(), torch::optim::AdamWOptions(1e-3)};
  for (torch::optim::Optimizer* optimizer :
       std::initializer_list<torch::optim::Optimizer*>{&adam, &adam_w}) {
    const auto message = testing::ThrowsMessage<UsageError>(
        testing::AllOf(HasSubstr("onebit-adam sends Adam's first moment"),
                       HasSubstr("take a compressor that sends gradients")));
    EXPECT_THAT([&] { job.parallel.step(*optimizer); }, message);
    EXPECT_THAT([&] { job.parallel.step(*optimizer, [&] { return job.backward(0); }); }, message);
  }
  torch::optim::SGD plain(job.model.parameters(), job.lr);
  for (int step = 0; step < 4; ++step) {
    job.backward(step);
    job.parallel.step(plain);
  }
  require_bitwise_equal(communicator, job.model);
  Job gradients{communicator, "ddp+efsignsgd(dense_below=0)"};
  torch::optim::Adam other{gradients.model.parameters(), torch::optim::AdamOptions(1e-3)};
  gradients.backward(0);
  EXPECT_NO_THROW(gradients.parallel.step(other));
}

INSTANTIATE_TEST_SUITE_P(Ranks, EveryCompressor, testing::Values(2, 3, 4));

// A compressor sees a tensor as the matrix of its logical shape, in whatever order its elements lie
// in memory.

/// Parameters that differ in strides alone from one another, or from what is usual.
NamedTensors strided() {
  NamedTensors all = {
      {"rows", torch::zeros({20, 24}, at::kFloat)},
      {"columns", torch::zeros({24, 20}, at::kFloat).t()},
      {"filters", torch::zeros({16, 8, 3, 3}, at::kFloat)},
      {"channels last",
       torch::zeros({16, 8, 3, 3}, at::kFloat).contiguous(at::MemoryFormat::ChannelsLast)},
      {"permuted", torch::zeros({5, 7, 12}, at::kFloat).permute({2, 0, 1})}};
  for (auto& [name, tensor] : all) tensor.requires_grad_(true);
  return all;
}

/// The outer product of two vectors, as the first dimension by all others.
at::Tensor of_rank_one(const at::Tensor& like, double seed) {
  const std::int64_t rows = like.size(0);
  return torch::outer(numbers({rows}, seed), numbers({like.numel() / rows}, seed + 0.5))
      .reshape(like.sizes())
      .to(at::kFloat);
}

/// sum over parameters of the parameter times this factor.
template <typename Factor>
at::Tensor linear_loss(const NamedTensors& parameters, Factor&& factor_of) {
  at::Tensor loss = torch::zeros({}, at::kFloat);
  for (const auto& [name, tensor] : parameters) loss = loss + (tensor * factor_of(tensor)).sum();
  return loss;
}

class LogicalShape : public testing::TestWithParam<int> {};

/// One factor is all that a matrix of rank 1 has: it comes back but for rounding.
TEST_P_ON(LogicalShape, AMatrixOfRankOneComesBackByOneFactor, ranks) {
  for (const char* exchange : {"bulk", "wfbp", "ddp", "ddp(first=64B,bucket=2KiB)"}) {
    NamedTensors parameters = strided();
    DataParallel parallel(parameters, {}, communicator,
                          {.strategy = std::string(exchange) + "+powersgd(rank=1, dense_below=0)"});
    for (int step = 0; step < 4; ++step) {
      double seed = 10.0 * step;
      for (auto& [name, tensor] : parameters) tensor.mutable_grad().reset();
      linear_loss(parameters, [&](const at::Tensor& tensor) {
        return (communicator.rank() + 1) * of_rank_one(tensor, ++seed);
      }).backward();
      parallel.finish();
      const double mean = (communicator.size() + 1) / 2.0;
      seed = 10.0 * step;
      for (const auto& [name, tensor] : parameters)
        EXPECT_LE(relative_error(tensor.grad(), mean * of_rank_one(tensor, ++seed)), 1e-5)
            << exchange << ", " << name << ", step " << step;
    }
  }
}

/// A gradient of a program's own may repeat one column in memory.
TEST_P_ON(LogicalShape, IsReadFromAnExpandedGradient, ranks) {
  NamedTensors parameters = strided();
  DataParallel parallel(parameters, {}, communicator,
                        {.strategy = "ddp+powersgd(rank=1, dense_below=0)"});
  const auto ones = [](const at::Tensor& tensor) { return torch::ones_like(tensor); };
  parallel.accumulate([&] { linear_loss(parameters, ones).backward(); });
  const auto column = [](const at::Tensor& like) {
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(like.dim()), 1);
    sizes.front() = like.size(0);
    return numbers(sizes, 1, at::kFloat).expand(like.sizes());
  };
  for (auto& [name, tensor] : parameters) tensor.mutable_grad() = column(tensor);
  parallel.finish();
  for (const auto& [name, tensor] : parameters)
    EXPECT_LE(relative_error(tensor.grad(), column(tensor)), 1e-5) << name;
}

INSTANTIATE_TEST_SUITE_P(Ranks, LogicalShape, testing::Values(1, 2, 3));

// What compressors owe to parameters: sent + owed = given, whichever ranks use a parameter in a
// step, and for one that nobody uses nothing changes.

class Owed : public testing::TestWithParam<int> {};

/// Steps that no rank counts give and send nothing.
TEST_P_ON(Owed, SkippedStepsAndLossScalesLoseNothing, quietly<ranks>) {
  for (const std::string& name : with_feedback()) expect_books_balance(communicator, name);
}

/// By parameter name: what all ranks keep for it.
std::map<std::string, std::string> kept(Branches& job) {
  std::map<std::string, std::string> all;
  for (const compress::CompressionState& state : job.states())
    for (const auto& [name, tensor] : state.tensors)
      all[name] += compress::to_bytes({.step = 0, .tensors = {{name, tensor}}});
  return all;
}

TEST_P_ON(Owed, ResidualsOfAnUnusedParameterStay, ranks) {
  for (const std::string& strategy : coding_strategies()) {
    Branches job{communicator, strategy};
    torch::optim::SGD optimizer{
        {job.parameters[0].second, job.parameters[1].second, job.parameters[2].second},
        torch::optim::SGDOptions(1e-3)};
    int unused = 0;
    for (int step = 0; step < 12; ++step) {
      const auto before = kept(job);
      job.backward(step);
      job.parallel.step(optimizer);
      const auto after = kept(job);
      for (std::size_t p = 0; p < job.size(); ++p) {
        const std::string& name = job.parameters[p].first;
        if (job.any_uses(step, p) || !before.contains(name)) continue;
        ++unused;
        EXPECT_EQ(after.at(name), before.at(name)) << strategy << ", " << name << ", " << step;
      }
    }
    EXPECT_GT(unused, 0) << strategy;
  }
}

TEST_P_ON(Owed, ResidualsThatAreNotFiniteAreNotLoaded, ranks) {
  Branches job{communicator, "bulk+topk(density=0.1, dense_below=0)"};
  for (int step = 0; step < 3; ++step) job.step(step, Event::ordinary);
  std::vector<compress::CompressionState> states = job.states();
  const auto load = [&] {
    std::vector<std::string> texts;
    for (const compress::CompressionState& state : states)
      texts.push_back(compress::to_bytes(state));
    job.parallel.load_compression_state(texts, "checkpoint 7");
  };
  EXPECT_NO_THROW(load());
  for (const float wrong : {kFloatNaN, -kFloatInfinity, 1e30f}) {
    states.back().tensors.at("wide").residual[3] = wrong;
    EXPECT_THAT(load, testing::ThrowsMessage<InputError>(testing::AllOf(
                          testing::HasSubstr("checkpoint 7"), testing::HasSubstr("\"wide\""),
                          testing::HasSubstr("resume an earlier checkpoint"))))
        << wrong;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Owed, testing::Values(1, 2, 3));

}  // namespace
}  // namespace linerate::torch_adapter
