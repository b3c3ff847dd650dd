// Layers that are replaced, added and removed after the model was wrapped: exchanged from the next
// finish() on, or an error on every rank.
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <memory>

#include "linerate/core/error.hpp"
#include "linerate/kfac/kfac.hpp"
#include "torch_adapter/parity.hpp"
#include "torch_adapter/rank_tests.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using testing::AllOf;
using testing::HasSubstr;

const std::vector<std::string> kChanged = {"bulk", "ddp(first=64B,bucket=512B)",
                                           "dear(bucket=64B)"};

/// Layers by name, whatever they are now.
struct ChangingNet : torch::nn::Module {
  ChangingNet() {
    register_module("body", torch::nn::Linear(6, 16));
    register_module("head", torch::nn::Linear(16, 3));
    begin();
  }
  at::Tensor loss(const at::Tensor& x) { return forward(x).square().mean(); }
  /// Of all ranks the same.
  void begin() { to(at::kDouble), seed_weights(*this); }
  void replace(const std::string& name, std::int64_t in, std::int64_t out) {
    replace_module(name, torch::nn::Linear(in, out));
    begin();
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto layer = [this](const char* name) {
      return std::dynamic_pointer_cast<torch::nn::LinearImpl>(named_children()[name]);
    };
    at::Tensor y = torch::tanh(layer("body")->forward(x));
    if (named_children().contains("more")) y = torch::tanh(layer("more")->forward(y));
    if (named_parameters(false).contains("scale")) y = y * named_parameters(false)["scale"];
    return layer("head")->forward(y);
  }
  void add_layer() {
    register_module("more", torch::nn::Linear(16, 16));
    begin();
  }
};

/// The next batch on each rank beside the joined one in one process.
struct TwoNets {
  Communicator& c;
  ChangingNet model{}, reference{};
  int batch = 0;

  void both(const std::function<void(ChangingNet&)>& change) { change(model), change(reference); }
  void backward() {
    ++batch;
    model.zero_grad(), reference.zero_grad();
    const at::Tensor x = numbers({c.size() * kBatch, 6}, batch);
    reference.loss(x).backward();
    model.loss(rows(x, c.rank())).backward();
  }
  void step(DataParallel& parallel, const std::string& what) {
    backward();
    parallel.finish();
    EXPECT_LE(gradient_error(model, reference), 1e-12) << what;
    require_bitwise_equal(c, model);
    parallel.require_same_weights(what);
  }
};

struct Change {
  const char* name;
  void (*make)(ChangingNet&);
};

const std::vector<Change> kChanges = {
    {"another head", [](ChangingNet& net) { net.replace("head", 16, 5); }},
    {"a head of the same shape", [](ChangingNet& net) { net.replace("head", 16, 5); }},
    {"one more layer", [](ChangingNet& net) { net.add_layer(); }},
    {"one more parameter",
     [](ChangingNet& net) {
       net.register_parameter("scale", torch::ones({16}));
       net.begin();
     }},
    {"one layer less", [](ChangingNet& net) { net.unregister_module("more"); }},
    {"a layer once more, beside a frozen bias",
     [](ChangingNet& net) {
       net.add_layer();
       net.named_children()["body"]->named_parameters(false)["bias"].set_requires_grad(false);
     }},
};

TEST(ChangingModel, IsExchangedAsItIsFromTheNextFinishOn) {
  for (const int n : {2, 3})
    ranks(n, [](Communicator& c) {
      for (const std::string& strategy : kChanged) {
        TwoNets twins{c};
        DataParallel parallel(twins.model, c, {.strategy = strategy});
        for (int step = 0; step < 3; ++step) twins.step(parallel, "as wrapped");
        for (const Change& change : kChanges) {
          twins.both(change.make);
          for (int step = 0; step < 3; ++step) twins.step(parallel, strategy + ": " + change.name);
        }
      }
    });
}

/// Weights that wait for their update are done, and those that are gone hurt nobody.
TEST_ON(ChangingModel, TrainsOnWhereUpdatesWait, ranks, 2) {
  for (const std::string strategy : {"dear(bucket=64B)", "ddp+topk(density=0.3, dense_below=0)"}) {
    TwoNets twins{communicator};
    DataParallel parallel(twins.model, communicator, {.strategy = strategy});
    for (const bool other_head : {false, true}) {
      if (other_head) twins.both([](ChangingNet& net) { net.replace("head", 16, 4); });
      torch::optim::SGD ours(twins.model.parameters(), 0.1),
          theirs(twins.reference.parameters(), 0.1);
      for (int step = 0; step < 4; ++step) {
        twins.backward();
        parallel.step(ours);
        theirs.step();
      }
    }
    parallel.settle();
    require_bitwise_equal(communicator, twins.model);
    if (strategy.find("topk") != std::string::npos) continue;
    EXPECT_TRUE(torch::allclose(flat(twins.model), flat(twins.reference), 1e-10, 1e-12));
  }
}

TEST_ON(ChangingModel, ThatChangesOnOneRankOrBeginsUnlikeIsAnErrorOnEveryRank, ranks, 3) {
  for (const std::string& strategy : kChanged) {
    TwoNets twins{communicator};
    DataParallel parallel(twins.model, communicator, {.strategy = strategy});
    const auto step = [&] { twins.step(parallel, strategy); };
    const auto thrown = [&] {
      return thrown_on_every_rank<CommError>([&] {
        twins.backward();
        parallel.finish();
      });
    };
    for (int i = 0; i < 2; ++i) step();
    if (communicator.rank() == 1) twins.both([](ChangingNet& net) { net.replace("head", 16, 5); });
    EXPECT_THAT(thrown(), AllOf(HasSubstr("head.weight"), HasSubstr("[3, 16]"),
                                HasSubstr("[5, 16]"), HasSubstr("on every rank")));
    EXPECT_THAT([&] { parallel.require_same_weights("now"); },
                testing::ThrowsMessage<CommError>(HasSubstr("head.weight")));
    // The others follow.
    if (communicator.rank() != 1) twins.both([](ChangingNet& net) { net.replace("head", 16, 5); });
    for (int i = 0; i < 2; ++i) step();
    twins.both([](ChangingNet& net) { net.replace("head", 16, 3); });
    {
      const torch::NoGradGuard no_grad;
      twins.model.parameters().back().fill_(communicator.rank());
    }
    EXPECT_THAT(thrown(), AllOf(HasSubstr("head.bias"), HasSubstr("seed the ranks alike"),
                                HasSubstr("wrap the model again")));
    twins.both([](ChangingNet& net) { net.begin(); });
    for (int i = 0; i < 2; ++i) step();
  }
}

TEST_ON(ChangingModel, BuffersOfAnotherNormFollowRankZero, ranks, 2) {
  torch::nn::Sequential model(torch::nn::Linear(6, 4), torch::nn::BatchNorm1d(4));
  set_weights_of_rank(*model);
  DataParallel parallel(*model, communicator);
  for (int step = 0; step < 4; ++step) {
    if (step == 2) model->replace_module("1", torch::nn::BatchNorm1d(4));
    model->to(at::kDouble);
    const auto norm =
        std::dynamic_pointer_cast<torch::nn::BatchNorm1dImpl>(model->named_children()["1"]);
    const auto linear =
        std::dynamic_pointer_cast<torch::nn::LinearImpl>(model->named_children()["0"]);
    norm->forward(linear->forward(numbers({kBatch, 6}, communicator.rank() + step)))
        .square()
        .sum()
        .backward();
    parallel.finish();
    require_bitwise_equal(communicator, *model);
    model->zero_grad();
  }
}

TEST_ON(ChangingModel, ALayerThatKfacPreconditionsIsNotReplaced, ranks, 2) {
  ChangingNet net;
  KFAC kfac(net, {.loss_average = LossAverage{}, .learning_rate = [](auto) { return 0.01; }});
  DataParallel parallel(net, communicator, {.strategy = "ddp+kfac(spd)", .preconditioner = &kfac});
  torch::optim::SGD optimizer(net.parameters(), 0.01);
  const auto backward = [&] {
    net.zero_grad();
    net.loss(numbers({kBatch, 6}, communicator.rank())).backward();
  };
  backward();
  parallel.step(kfac, optimizer);
  net.replace("head", 16, 5);
  backward();
  EXPECT_THAT([&] { parallel.finish(); },
              testing::ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("K-FAC preconditions \"head\""), HasSubstr("wrap the model"))));
}

/// A model that a shared_ptr held may go first; loose tensors are what they are told to be.
TEST_ON(ChangingModel, MayBeGoneAndLooseTensorsAreToldOf, ranks, 2) {
  auto net = std::make_shared<ChangingNet>();
  DataParallel parallel(*net, communicator);
  net->loss(numbers({kBatch, 6}, communicator.rank())).backward();
  const at::Tensor weight = net->parameters()[0];
  net.reset();
  parallel.finish();
  parallel.require_same_weights("gone");
  EXPECT_TRUE(weight.grad().defined());

  const at::Tensor a = torch::ones({3}, torch::requires_grad()),
                   b = torch::ones({4}, torch::requires_grad());
  DataParallel loose({{"a", a}}, {}, communicator, {.name = "loose"});
  for (int step = 0; step < 4; ++step) {
    a.mutable_grad().reset(), b.mutable_grad().reset();
    if (step == 2) loose.set_tensors({{"a", a}, {"b", b}}, {});
    ((a.sum() + b.sum()) * (communicator.rank() + 1)).backward();
    loose.finish();
    EXPECT_TRUE(torch::equal(a.grad(), torch::full({3}, 1.5f)));
    EXPECT_TRUE(
        torch::equal(b.grad(), torch::full({4}, step < 2 ? communicator.rank() + 1.0f : 1.5f)));
  }
}

// What DataParallel refuses: on every rank, with both sides named.

/// The message that constructing a DataParallel throws on this rank; empty when it throws none.
std::string refusal(Communicator& communicator, const NamedTensors& parameters,
                    DataParallelOptions options = {}) {
  return thrown_by<Error>([&] { DataParallel(parameters, {}, communicator, std::move(options)); });
}

at::Tensor trained(at::IntArrayRef shape, at::ScalarType type = at::kFloat) {
  return torch::zeros(shape, torch::dtype(type).requires_grad(true));
}

TEST_ON(Construction, ModelsThatDifferAreNamedOnEveryRank, ranks, 3) {
  const bool odd = communicator.rank() == 2;
  EXPECT_THAT(refusal(communicator, {{"w", trained({odd ? 3 : 4})}}),
              AllOf(HasSubstr("rank 0 has \"parameter w Float [4]"),
                    HasSubstr("rank 2 has \"parameter w Float [3]")));
  EXPECT_THAT(refusal(communicator, {{odd ? "v" : "w", trained({4})}}), HasSubstr("parameter v"));
  EXPECT_THAT(refusal(communicator, {{"w", trained({4}, odd ? at::kDouble : at::kFloat)}}),
              HasSubstr("Double"));
  NamedTensors two = {{"w", trained({4})}, {"x", trained({2})}};
  if (odd) two.pop_back();
  EXPECT_THAT(refusal(communicator, two), HasSubstr("rank 2 has nothing (only 1 entries)"));
  two = {{"w", trained({4})}, {"x", trained({2})}};
  two[1].second.set_requires_grad(!odd);
  EXPECT_THAT(refusal(communicator, two), HasSubstr("[2] strides [1] requires_grad"));
  EXPECT_THAT(refusal(communicator, {{"w", trained({4})}}, {.strategy = odd ? "bulk" : "ddp"}),
              AllOf(HasSubstr("strategy ddp"), HasSubstr("strategy bulk")));
  EXPECT_EQ(refusal(communicator, {{"w", trained({4})}}), "");
}

TEST_ON(Construction, WhatOneRankCannotExchangeIsEveryRanksError, ranks, 2) {
  const at::Tensor good = trained({4});
  const auto with = [&](const at::Tensor& bad) {
    return refusal(communicator, {{"bad", communicator.rank() == 1 ? bad : good}});
  };
  EXPECT_THAT(with(at::Tensor()), HasSubstr("rank 1: parameter \"bad\" is undefined"));
  EXPECT_THAT(with(trained({4}, at::kComplexFloat)), HasSubstr("ComplexFloat"));
  EXPECT_THAT(with(torch::zeros({1}).expand({4})), HasSubstr("overlap or leave gaps"));
  EXPECT_THAT(with(torch::zeros({8}).slice(0, 0, 8, 2)), HasSubstr("strides [2]"));
  EXPECT_THAT(with(torch::zeros({4}).to_sparse()), HasSubstr("Sparse"));
  EXPECT_THAT(with(torch::zeros({4}, torch::device(at::kMeta))), HasSubstr("lies on meta"));
  EXPECT_THAT(with(trained({4}) * 2), HasSubstr("not a leaf"));
  EXPECT_THAT(refusal(communicator, {{"w", torch::zeros({4})}}),
              HasSubstr("no parameter requires a gradient"));
  EXPECT_THAT(refusal(communicator, {{"w", good}}, {.strategy = "dpp"}), HasSubstr("dpp"));
}

TEST_ON(Construction, SparseEmbeddingsAreRefusedBeforeTheyMakeGradients, ranks, 2) {
  torch::nn::Sequential model(
      torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 3).sparse(communicator.rank() == 1)));
  EXPECT_THAT(thrown_by([&] { DataParallel(*model, communicator); }),
              AllOf(HasSubstr("rank 1: module \"0\""), HasSubstr("without the option sparse")));
}

/// Frozen parameters and buffers may have any type.
TEST_ON(Construction, EveryRankStartsWithRankZerosState, ranks, 3) {
  const auto r = static_cast<double>(communicator.rank());
  const at::Tensor w = torch::full({5}, r, torch::requires_grad()),
                   frozen = torch::full({3}, r, at::kDouble),
                   bytes = torch::full({5}, communicator.rank(), at::kByte),
                   count = torch::full({}, communicator.rank(), at::kLong),
                   flag = torch::full({2}, r > 0, at::kBool);
  DataParallel parallel({{"w", w}, {"frozen", frozen}, {"bytes", bytes}},
                        {{"count", count}, {"flag", flag}}, communicator);
  EXPECT_TRUE(torch::equal(w, torch::zeros({5})));
  EXPECT_TRUE(torch::equal(frozen, torch::zeros({3}, at::kDouble)));
  EXPECT_TRUE(torch::equal(bytes, torch::zeros({5}, at::kByte)));
  EXPECT_EQ(count.item<std::int64_t>(), 0);
  EXPECT_FALSE(flag.any().item<bool>());
  w.sum().backward();
  EXPECT_EQ(parallel.finish().unused_everywhere, 0);
}

}  // namespace
}  // namespace linerate::torch_adapter
