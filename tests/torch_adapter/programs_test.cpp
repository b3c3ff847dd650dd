// Whole programs as users write them, each beside one process that sees the joined batch.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <memory>

#include "linerate/doc/strategy.hpp"
#include "torch_adapter/parity.hpp"
#include "torch_adapter/rank_tests.hpp"
#include "torch_adapter/registered_compressors.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using compress::Momentum;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using torch::optim::Optimizer;
using torch::optim::SGD;
using torch::optim::SGDOptions;

constexpr int kProgramSteps = 20;

/// Both processes start alike.
void set_start(torch::nn::Module& module) { module.to(at::kDouble), seed_weights(module); }

/// What one rank sees of a batch that all share.
at::Tensor share(const at::Tensor& whole, Communicator& communicator) {
  const std::int64_t each = whole.size(0) / communicator.size();
  return whole.narrow(0, communicator.rank() * each, each);
}

// Adam, clipping by the global norm, accumulation over three micro-batches, a rate that falls.

struct Cnn : torch::nn::Module {
  torch::nn::Conv2d a =
      register_module("a", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 6, 3).padding(1)));
  torch::nn::Conv2d b =
      register_module("b", torch::nn::Conv2d(torch::nn::Conv2dOptions(6, 8, 3).stride(2)));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(8 * 3 * 3, 5));
  Cnn() { set_start(*this); }
  at::Tensor forward(const at::Tensor& x) {
    return out->forward(torch::relu(b->forward(torch::relu(a->forward(x)))).flatten(1));
  }
};

class Programs : public testing::TestWithParam<int> {};

TEST_P_ON(Programs, CnnWithAdamClippingAndAccumulation, ranks) {
  Cnn model, reference;
  DataParallel parallel(model, communicator, {.strategy = "ddp(first=64B,bucket=1KiB)"});
  torch::optim::Adam ours(model.parameters(), 0.01), theirs(reference.parameters(), 0.01);
  torch::optim::StepLR rate(ours, 5, 0.5), their_rate(theirs, 5, 0.5);
  for (int step = 0; step < kProgramSteps; ++step) {
    ours.zero_grad(), theirs.zero_grad();
    for (int micro = 0; micro < 3; ++micro) {
      const at::Tensor x = numbers({4 * communicator.size(), 2, 7, 7}, 3 * step + micro);
      const at::Tensor y = (torch::arange(4 * communicator.size()) + step + micro) % 5;
      const auto loss = [](Cnn& m, const at::Tensor& in, const at::Tensor& target) {
        return torch::nn::functional::cross_entropy(m.forward(in), target) / 3;
      };
      loss(reference, x, y).backward();
      const at::Tensor mine = loss(model, share(x, communicator), share(y, communicator));
      if (micro < 2)
        parallel.accumulate([&] { mine.backward(); });
      else
        mine.backward();
    }
    parallel.finish();
    torch::nn::utils::clip_grad_norm_(model.parameters(), 0.5);
    torch::nn::utils::clip_grad_norm_(reference.parameters(), 0.5);
    ours.step(), theirs.step();
    rate.step(), their_rate.step();
    parallel.require_same_weights("after a step");
  }
  EXPECT_LE(relative_error(flat(model), flat(reference)), 1e-9);
}

// Two models, two optimizers, two objects on one communicator.

struct Gan {
  torch::nn::Sequential generator{torch::nn::Linear(4, 16), torch::nn::Tanh(),
                                  torch::nn::Linear(16, 6)};
  torch::nn::Sequential discriminator{torch::nn::Linear(6, 16), torch::nn::Tanh(),
                                      torch::nn::Linear(16, 1)};
  torch::optim::Adam learns_to_forge{generator->parameters(), 0.01};
  torch::optim::Adam learns_to_tell{discriminator->parameters(), 0.01};
  Gan() { set_start(*generator), set_start(*discriminator); }

  at::Tensor verdict(const at::Tensor& samples, double truth) {
    const at::Tensor logits = discriminator->forward(samples);
    return torch::nn::functional::binary_cross_entropy_with_logits(logits,
                                                                   torch::full_like(logits, truth));
  }
  at::Tensor forge(const at::Tensor& noise) { return generator->forward(noise); }
};

struct GanCase {
  std::string strategy;
  /// The generator's pass leaves gradients in the discriminator; guarded programs say that they are
  /// not meant, most others only clear them.
  bool guarded = false;
  bool one_backward = false;  // of the discriminator, over the sum of both losses
  bool leaky = false;         // the discriminator's pass runs through the generator too
};

/// kProgramSteps steps of two ranks or more beside one process; returns the largest error.
double train_gan(Communicator& communicator, const GanCase& c) {
  Gan gan, reference;
  DataParallel discriminator(*gan.discriminator, communicator,
                             {.strategy = c.strategy, .name = "discriminator"});
  DataParallel generator(*gan.generator, communicator,
                         {.strategy = c.strategy, .name = "generator"});
  const auto judge = [&](Gan& g, const at::Tensor& real, const at::Tensor& noise) {
    g.learns_to_tell.zero_grad();
    const at::Tensor fake = c.leaky ? g.forge(noise) : g.forge(noise).detach();
    const at::Tensor right = g.verdict(real, 1), caught = g.verdict(fake, 0);
    if (c.one_backward) return (right + caught).backward();
    right.backward();
    caught.backward();
  };
  for (int step = 0; step < kProgramSteps; ++step) {
    const at::Tensor real = numbers({8 * communicator.size(), 6}, step),
                     noise = numbers({8 * communicator.size(), 4}, step + 0.5);
    judge(reference, real, noise);
    judge(gan, share(real, communicator), share(noise, communicator));
    discriminator.finish();
    gan.learns_to_tell.step(), reference.learns_to_tell.step();

    gan.learns_to_forge.zero_grad(), reference.learns_to_forge.zero_grad();
    reference.verdict(reference.forge(noise), 1).backward();
    const at::Tensor loss = gan.verdict(gan.forge(share(noise, communicator)), 1);
    if (c.guarded) {
      const auto guard = discriminator.no_sync();
      loss.backward();
    } else {
      loss.backward();
    }
    generator.finish();
    gan.learns_to_forge.step(), reference.learns_to_forge.step();
    discriminator.require_same_weights("after a step");
    generator.require_same_weights("after a step");
  }
  return std::max(relative_error(flat(*gan.generator), flat(*reference.generator)),
                  relative_error(flat(*gan.discriminator), flat(*reference.discriminator)));
}

/// Over 16 bits casts run on threads of their own and end when they like.
TEST_P_ON(Programs, GanWithTwoObjects, quietly<ranks>) {
  for (const std::string strategy : {"ddp(first=64B,bucket=256B)", "bulk", "horovod",
                                     "dear(bucket=256B)", "ddp(first=64B,bucket=256B,wire=fp16)"}) {
    const bool casts = strategy.find("fp16") != std::string::npos;
    if (casts) communicator.set_checked(true);
    for (const bool guarded : {false, true})
      for (const bool one_backward : {false, true})
        for (const bool leaky : {false, true})
          EXPECT_LE(train_gan(communicator, {strategy, guarded, one_backward, leaky}),
                    casts ? 0.1 : 1e-9)
              << strategy << (guarded ? ", guarded" : "") << (one_backward ? ", one backward" : "")
              << (leaky ? ", leaky" : "");
  }
}

TEST_P(Programs, GanSettlesToOneExchangeAStep) {
  const Warnings warnings;
  ranks(GetParam(), [](Communicator& communicator) {
    Gan gan;
    DataParallel discriminator(*gan.discriminator, communicator, {.name = "discriminator"});
    DataParallel generator(*gan.generator, communicator, {.name = "generator"});
    for (int step = 0; step < 6; ++step) {
      const at::Tensor real = numbers({8, 6}, step), noise = numbers({8, 4}, step);
      gan.learns_to_tell.zero_grad();
      (gan.verdict(real, 1) + gan.verdict(gan.forge(noise).detach(), 0)).backward();
      // What the generator's pass left there had gone out once; then it is known to come.
      EXPECT_EQ(discriminator.finish().rounds, step == 1 ? 2 : 1) << step;
      gan.learns_to_tell.step();
      gan.learns_to_forge.zero_grad();
      gan.verdict(gan.forge(noise), 1).backward();
      EXPECT_EQ(generator.finish().rounds, 1) << step;
      gan.learns_to_forge.step();
    }
  });
  EXPECT_THAT(warnings.with("DataParallel \"generator\""), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Ranks, Programs, testing::Values(2, 3));

// Which optimizers step() takes: what would end in other weights than those that were asked for is
// an error on every rank, or is said.

const std::vector<std::string> kStepped = {"bulk", "ddp(first=64B,bucket=512B)", "dear(bucket=64B)",
                                           "ddp+topk(density=0.3, dense_below=0)"};

void backward(Communicator& c, Mlp& model, int step) {
  loss_of_rows(c, model, step, step + 0.5).backward();
}

std::unique_ptr<Optimizer> sgd(const std::vector<at::Tensor>& parameters, double momentum,
                               bool nesterov = false) {
  return std::make_unique<SGD>(parameters, SGDOptions(0.01).momentum(momentum).nesterov(nesterov));
}

Momentum asked_by(const std::string& compressor) {
  doc::Component component = doc::parse_component(compressor);
  std::erase_if(component.options, [](const auto& o) { return o.first == "exchange"; });
  return compress::make_compressor(component)->momentum();
}

/// Over the registry: who has momentum says so itself.
TEST_ON(SteppedOptimizer, IsRefusedWithMomentumWhereTheCompressorHasItsOwn, ranks, 2) {
  std::vector<std::string> all = registered_compressors();
  for (const char* one : {"dgc(momentum=0, dense_below=0)", "signsgd(momentum=0.9, dense_below=0)"})
    all.emplace_back(one);
  int own = 0;
  for (const std::string& compressor : all) {
    Mlp model;
    DataParallel parallel(model, communicator, {.strategy = "ddp+" + compressor});
    const bool has_own = asked_by(compressor) != Momentum::optimizers;
    own += has_own;
    int step = 0;
    for (const bool nesterov : {false, true})
      for (const bool everywhere : {true, false}) {
        // One rank's momentum is every rank's error.
        const auto optimizer =
            sgd(model.parameters(), everywhere || communicator.rank() == 1 ? 0.9 : 0,
                nesterov && (everywhere || communicator.rank() == 1));
        backward(communicator, model, ++step);
        const std::string said = thrown_on_every_rank([&] { parallel.step(*optimizer); });
        if (has_own)
          EXPECT_THAT(said, AllOf(HasSubstr("SGD(momentum=0.9)"), HasSubstr("momentum=0")));
        else
          EXPECT_EQ(said, "") << compressor;
        model.zero_grad();
      }
    const auto plain = sgd(model.parameters(), 0);
    backward(communicator, model, ++step);
    EXPECT_EQ(thrown_on_every_rank([&] { parallel.step(*plain); }), "") << compressor;
  }
  EXPECT_GE(own, 5);  // dgc twice, signsgd with momentum, onebit-adam
}

TEST(SteppedOptimizer, WithAFirstMomentIsWarnedOfOnce) {
  Warnings warnings;
  ranks(2, [&](Communicator& c) {
    Mlp model;
    DataParallel parallel(model, c, {.strategy = "ddp+dgc(density=0.1, dense_below=0)"});
    torch::optim::Adam adam(model.parameters(), torch::optim::AdamOptions(1e-3));
    torch::optim::RMSprop rms(model.parameters(), torch::optim::RMSpropOptions(1e-3).momentum(0.5));
    int step = 0;
    for (Optimizer* optimizer : std::initializer_list<Optimizer*>{&adam, &rms, &adam}) {
      backward(c, model, ++step);
      parallel.step(*optimizer);
    }
    require_bitwise_equal(c, model);
  });
  const auto said = warnings.with("ddp+dgc(density=0.1, dense_below=0) with Adam");
  if (!said.empty()) {  // rank 0 is of this process
    EXPECT_THAT(said, testing::ElementsAre(HasSubstr("write dgc(momentum=0)")));
    EXPECT_TRUE(warnings.with("RMSprop").empty());
  }
}

/// A group may come later, and a schedule may move its momentum: each step looks.
TEST_ON(SteppedOptimizer, IsLookedAtInEachStep, ranks, 2) {
  Mlp model;
  DataParallel parallel(model, communicator, {.strategy = "ddp+dgc(density=0.1, dense_below=0)"});
  SGD optimizer(model.a->parameters(), SGDOptions(0.01));
  int number = 0;
  const auto step = [&] {
    model.zero_grad();
    backward(communicator, model, ++number);
    parallel.step(optimizer);
  };
  EXPECT_EQ(thrown_on_every_rank(step), "");
  optimizer.add_param_group({model.b->parameters(), std::make_unique<SGDOptions>(0.01)});
  EXPECT_EQ(thrown_on_every_rank(step), "");
  auto& late = static_cast<SGDOptions&>(optimizer.param_groups()[1].options());
  late.momentum(0.9);
  EXPECT_THAT(thrown_on_every_rank(step), HasSubstr("SGD(momentum=0.9)"));
  EXPECT_THAT(thrown_on_every_rank([&] {
                parallel.step(optimizer, [&] {
                  backward(communicator, model, ++number);
                  return at::zeros({});
                });
              }),
              HasSubstr("SGD(momentum=0.9)"));
  late.momentum(0);
  EXPECT_EQ(thrown_on_every_rank(step), "");
  parallel.require_same_weights("after refusals");
}

TEST_ON(SteppedOptimizer, OfAnotherModelIsRefused, ranks, 2) {
  for (const std::string& strategy : kStepped) {
    Mlp model, other;
    DataParallel parallel(model, communicator, {.strategy = strategy});
    const auto foreign = sgd(other.parameters(), 0), own = sgd(model.c->parameters(), 0);
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      backward(communicator, model, step);
      if (step == 1) {
        EXPECT_THAT(thrown_on_every_rank(
                        [&] { parallel.step(communicator.rank() == 1 ? *foreign : *own); }),
                    HasSubstr("holds no parameter of this model"))
            << strategy;
      } else {
        EXPECT_EQ(thrown_on_every_rank([&] { parallel.step(*own); }), "") << strategy;
      }
    }
  }
}

/// Two halves of a model, an optimizer each: what plain LibTorch makes of the joined batch.
struct TwoOptimizers : PairedMlp {
  TwoOptimizers(Communicator& c, const std::string& strategy)
      : PairedMlp(c), parallel(model, c, {.strategy = strategy}) {
    copy_parameters(model, reference);
    for (Mlp* m : {&model, &reference}) {
      std::vector<at::Tensor> rest = m->b->parameters();
      for (const at::Tensor& p : m->c->parameters()) rest.push_back(p);
      (m == &model ? a : want_a) = std::make_unique<SGD>(m->a->parameters(), SGDOptions(0.1));
      (m == &model ? b : want_b) = std::make_unique<SGD>(rest, SGDOptions(0.2));
    }
  }
  void backward_of(int step) {
    batch = step - 1;
    reference.zero_grad();
    backward();
  }
  void expect_same_weights(const std::string& what) {
    parallel.settle();
    EXPECT_TRUE(torch::allclose(flat(model), flat(reference), 1e-10, 1e-12)) << what;
    require_bitwise_equal(communicator, model);
  }

  DataParallel parallel;
  std::unique_ptr<Optimizer> a, b, want_a, want_b;
};

TEST_P_ON(Programs, ASecondOptimizerIsRefusedUntilGradientsCome, ranks) {
  for (const std::string& strategy : kStepped) {
    const bool exact = strategy.find("topk") == std::string::npos;
    TwoOptimizers two(communicator, strategy);
    for (int step = 0; step < 4; ++step) {
      // In turn, each after a pass of its own.
      two.backward_of(2 * step);
      two.parallel.step(*two.a), two.want_a->step();
      EXPECT_THAT(thrown_on_every_rank([&] { two.parallel.step(*two.b); }),
                  AllOf(HasSubstr("call finish(), then step() and zero_grad() of each")))
          << strategy;
      two.backward_of(2 * step + 1);
      two.parallel.step(*two.b), two.want_b->step();
      // Both after one, as the message says.
      two.backward_of(100 + step);
      two.parallel.finish();
      two.a->step(), two.b->step(), two.a->zero_grad(), two.b->zero_grad();
      two.want_a->step(), two.want_b->step();
      if (exact) two.expect_same_weights(strategy + ", step " + std::to_string(step));
    }
    // No rank has samples, and that is said; the same one once more is no other one.
    two.backward_of(7);
    two.parallel.step(*two.a);
    two.parallel.set_batch(0);
    EXPECT_EQ(thrown_on_every_rank([&] { two.parallel.step(*two.b); }), "");
    EXPECT_EQ(thrown_on_every_rank([&] { two.parallel.step(*two.b); }), "");
    // One rank has nothing: the others have.
    if (communicator.rank() != 1) two.backward_of(8);
    EXPECT_EQ(thrown_on_every_rank([&] { two.parallel.step(*two.a); }), "");
    two.parallel.require_same_weights(strategy);
  }
}

TEST(SteppedOptimizer, OfSomeParametersIsSaidOnce) {
  Warnings warnings;
  ranks(2, [](Communicator& c) {
    TwoOptimizers two(c, "ddp");
    for (int step = 0; step < 4; ++step) {
      two.backward_of(step);
      two.parallel.step(step % 2 ? *two.a : *two.b);
    }
    Mlp whole;
    DataParallel parallel(whole, c, {.name = "whole"});
    const auto all = sgd(whole.parameters(), 0.9);
    for (int step = 0; step < 2; ++step) backward(c, whole, step), parallel.step(*all);
  });
  const auto said = warnings.with("does not hold 2 of 6 parameters that got gradients");
  EXPECT_LE(said.size(), 1u);  // none if rank 0 is another process
  EXPECT_TRUE(warnings.with("whole").empty());
}

}  // namespace
}  // namespace linerate::torch_adapter
