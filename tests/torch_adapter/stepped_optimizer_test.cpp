// Which optimizers step() takes: what would end in other weights than those that were asked for is
// an error on every rank, or is said.
#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <memory>

#include "linerate/core/error.hpp"
#include "linerate/doc/strategy.hpp"
#include "torch_adapter/parity.hpp"
#include "torch_adapter/registered_compressors.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using compress::Momentum;
using testing::AllOf;
using testing::HasSubstr;
using torch::optim::Optimizer;
using torch::optim::SGD;
using torch::optim::SGDOptions;

const std::vector<std::string> kStepped = {"bulk", "ddp(first=64B,bucket=512B)", "dear(bucket=64B)",
                                           "ddp+topk(density=0.3, dense_below=0)"};

void backward(Communicator& c, Mlp& model, int step) {
  const at::ScalarType type = model.a->weight.scalar_type();
  const std::int64_t all = c.size() * kBatch;
  mean_loss(model.forward(rows(numbers({all, 6}, step, type), c.rank())),
            rows(numbers({all, 3}, step + 0.5, type), c.rank()))
      .backward();
}

/// What it throws, which has to be a UsageError that every rank throws.
std::string refused(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& e) {
    return e.on_every_rank() ? e.what() : std::string("of this rank alone: ") + e.what();
  } catch (const std::exception& e) {
    return std::string("of another kind: ") + e.what();
  }
  return "nothing";
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
TEST(SteppedOptimizer, IsRefusedWithMomentumWhereTheCompressorHasItsOwn) {
  std::vector<std::string> all = registered_compressors();
  for (const char* one : {"dgc(momentum=0, dense_below=0)", "signsgd(momentum=0.9, dense_below=0)"})
    all.emplace_back(one);
  ranks(2, [&](Communicator& c) {
    int own = 0;
    for (const std::string& compressor : all) {
      Mlp model;
      model.to(at::kFloat);
      DataParallel parallel(model, c, {.strategy = "ddp+" + compressor});
      const bool has_own = asked_by(compressor) != Momentum::optimizers;
      own += has_own;
      int step = 0;
      for (const bool nesterov : {false, true})
        for (const bool everywhere : {true, false}) {
          // One rank's momentum is every rank's error.
          const auto optimizer = sgd(model.parameters(), everywhere || c.rank() == 1 ? 0.9 : 0,
                                     nesterov && (everywhere || c.rank() == 1));
          backward(c, model, ++step);
          const std::string said = refused([&] { parallel.step(*optimizer); });
          if (has_own)
            EXPECT_THAT(said, AllOf(HasSubstr("SGD(momentum=0.9)"), HasSubstr("momentum=0")));
          else
            EXPECT_EQ(said, "nothing") << compressor;
          model.zero_grad();
        }
      const auto plain = sgd(model.parameters(), 0);
      backward(c, model, ++step);
      EXPECT_EQ(refused([&] { parallel.step(*plain); }), "nothing") << compressor;
    }
    EXPECT_GE(own, 5);  // dgc twice, signsgd with momentum, onebit-adam
  });
}

TEST(SteppedOptimizer, WithAFirstMomentIsWarnedOfOnce) {
  Warnings warnings;
  ranks(2, [&](Communicator& c) {
    Mlp model;
    model.to(at::kFloat);
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
TEST(SteppedOptimizer, IsLookedAtInEachStep) {
  ranks(2, [](Communicator& c) {
    Mlp model;
    model.to(at::kFloat);
    DataParallel parallel(model, c, {.strategy = "ddp+dgc(density=0.1, dense_below=0)"});
    SGD optimizer(model.a->parameters(), SGDOptions(0.01));
    int number = 0;
    const auto step = [&] {
      model.zero_grad();
      backward(c, model, ++number);
      parallel.step(optimizer);
    };
    EXPECT_EQ(refused(step), "nothing");
    optimizer.add_param_group({model.b->parameters(), std::make_unique<SGDOptions>(0.01)});
    EXPECT_EQ(refused(step), "nothing");
    auto& late = static_cast<SGDOptions&>(optimizer.param_groups()[1].options());
    late.momentum(0.9);
    EXPECT_THAT(refused(step), HasSubstr("SGD(momentum=0.9)"));
    EXPECT_THAT(refused([&] {
                  parallel.step(optimizer, [&] {
                    backward(c, model, ++number);
                    return at::zeros({});
                  });
                }),
                HasSubstr("SGD(momentum=0.9)"));
    late.momentum(0);
    EXPECT_EQ(refused(step), "nothing");
    parallel.require_same_weights("after refusals");
  });
}

TEST(SteppedOptimizer, OfAnotherModelIsRefused) {
  ranks(2, [](Communicator& c) {
    for (const std::string& strategy : kStepped) {
      Mlp model, other;
      model.to(at::kFloat);
      DataParallel parallel(model, c, {.strategy = strategy});
      const auto foreign = sgd(other.parameters(), 0), own = sgd(model.c->parameters(), 0);
      for (int step = 0; step < 3; ++step) {
        model.zero_grad();
        backward(c, model, step);
        if (step == 1) {
          EXPECT_THAT(refused([&] { parallel.step(c.rank() == 1 ? *foreign : *own); }),
                      HasSubstr("holds no parameter of this model"))
              << strategy;
        } else {
          EXPECT_EQ(refused([&] { parallel.step(*own); }), "nothing") << strategy;
        }
      }
    }
  });
}

/// Two halves of a model, an optimizer each: what plain LibTorch makes of the joined batch.
class TwoOptimizers {
 public:
  TwoOptimizers(Communicator& c, const std::string& strategy)
      : c_(c), parallel((model.to(at::kDouble), model), c, {.strategy = strategy}) {
    reference.to(at::kDouble);
    copy_parameters(model, reference);
    for (Mlp* m : {&model, &reference}) {
      std::vector<at::Tensor> rest = m->b->parameters();
      for (const at::Tensor& p : m->c->parameters()) rest.push_back(p);
      (m == &model ? a : want_a) = std::make_unique<SGD>(m->a->parameters(), SGDOptions(0.1));
      (m == &model ? b : want_b) = std::make_unique<SGD>(rest, SGDOptions(0.2));
    }
  }
  void backward_of(int step) {
    backward(c_, model, step);
    reference.zero_grad();
    mean_loss(reference.forward(numbers({c_.size() * kBatch, 6}, step)),
              numbers({c_.size() * kBatch, 3}, step + 0.5))
        .backward();
  }
  void expect_equal(const std::string& what) {
    parallel.settle();
    const auto mine = model.parameters(), want = reference.parameters();
    for (std::size_t i = 0; i < mine.size(); ++i)
      EXPECT_TRUE(torch::allclose(mine[i], want[i], 1e-10, 1e-12)) << what;
    require_bitwise_equal(c_, model);
  }

 private:
  Communicator& c_;

 public:
  Mlp model, reference;
  DataParallel parallel;
  std::unique_ptr<Optimizer> a, b, want_a, want_b;
};

TEST(SteppedOptimizer, TheSecondOfTwoIsRefusedUntilGradientsCome) {
  for (const int n : {2, 3})
    ranks(n, [](Communicator& c) {
      for (const std::string& strategy : kStepped) {
        const bool exact = strategy.find("topk") == std::string::npos;
        TwoOptimizers two(c, strategy);
        for (int step = 0; step < 4; ++step) {
          // In turn, each after a pass of its own.
          two.backward_of(2 * step);
          two.parallel.step(*two.a), two.want_a->step();
          EXPECT_THAT(refused([&] { two.parallel.step(*two.b); }),
                      AllOf(HasSubstr("call finish(), then step() and zero_grad() of each")))
              << strategy;
          two.backward_of(2 * step + 1);
          two.parallel.step(*two.b), two.want_b->step();
          // Both after one, as the message says.
          two.backward_of(100 + step);
          two.parallel.finish();
          two.a->step(), two.b->step(), two.a->zero_grad(), two.b->zero_grad();
          two.want_a->step(), two.want_b->step();
          if (exact) two.expect_equal(strategy + ", step " + std::to_string(step));
        }
        // No rank has samples, and that is said; the same one once more is no other one.
        two.backward_of(7);
        two.parallel.step(*two.a);
        two.parallel.set_batch(0);
        EXPECT_EQ(refused([&] { two.parallel.step(*two.b); }), "nothing");
        EXPECT_EQ(refused([&] { two.parallel.step(*two.b); }), "nothing");
        // One rank has nothing: the others have.
        if (c.rank() != 1) two.backward_of(8);
        EXPECT_EQ(refused([&] { two.parallel.step(*two.a); }), "nothing");
        two.parallel.require_same_weights(strategy);
      }
    });
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
