// What DataParallel refuses: on every rank, with both sides named.
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>

#include "linerate/core/error.hpp"
#include "torch_adapter/parity.hpp"

namespace linerate::torch_adapter {
namespace {

using comm::Communicator;
using testing::AllOf;
using testing::HasSubstr;

/// The message that constructing a DataParallel throws on this rank; empty when it throws none.
std::string refusal(Communicator& communicator, const NamedTensors& parameters,
                    DataParallelOptions options = {}) {
  try {
    const DataParallel parallel(parameters, {}, communicator, std::move(options));
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

at::Tensor trained(at::IntArrayRef shape, at::ScalarType type = at::kFloat) {
  return torch::zeros(shape, torch::dtype(type).requires_grad(true));
}

TEST(Construction, ModelsThatDifferAreNamedOnEveryRank) {
  ranks(3, [](Communicator& communicator) {
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
  });
}

TEST(Construction, WhatOneRankCannotExchangeIsEveryRanksError) {
  ranks(2, [](Communicator& communicator) {
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
  });
}

TEST(Construction, FrozenParametersMayHaveAnyType) {
  ranks(2, [](Communicator& communicator) {
    const at::Tensor bytes = torch::full({5}, communicator.rank() + 3, at::kByte),
                     a = torch::ones({3}, torch::requires_grad());
    DataParallel parallel({{"bytes", bytes}, {"a", a}}, {}, communicator);
    EXPECT_TRUE(torch::equal(bytes, torch::full({5}, 3, at::kByte)));
    a.sum().backward();
    EXPECT_EQ(parallel.finish().unused_everywhere, 0);
  });
}

TEST(Construction, SparseEmbeddingsAreRefusedBeforeTheyMakeGradients) {
  ranks(2, [](Communicator& communicator) {
    torch::nn::Sequential model(
        torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 3).sparse(communicator.rank() == 1)));
    try {
      const DataParallel parallel(*model, communicator);
      ADD_FAILURE() << "accepted on rank " << communicator.rank();
    } catch (const UsageError& e) {
      EXPECT_THAT(e.what(),
                  AllOf(HasSubstr("rank 1: module \"0\""), HasSubstr("without the option sparse")));
    }
  });
}

TEST(Construction, UnknownStrategiesAreRefused) {
  ranks(2, [](Communicator& communicator) {
    EXPECT_THAT(refusal(communicator, {{"w", trained({4})}}, {.strategy = "dpp"}),
                HasSubstr("dpp"));
  });
}

TEST(Construction, EveryRankStartsWithRankZerosState) {
  ranks(3, [](Communicator& communicator) {
    const auto r = static_cast<double>(communicator.rank());
    const at::Tensor w = torch::full({5}, r, torch::requires_grad()),
                     frozen = torch::full({3}, r, at::kDouble),
                     count = torch::full({}, communicator.rank(), at::kLong),
                     flag = torch::full({2}, r > 0, at::kBool);
    const DataParallel parallel({{"w", w}, {"frozen", frozen}}, {{"count", count}, {"flag", flag}},
                                communicator);
    EXPECT_TRUE(torch::equal(w, torch::zeros({5})));
    EXPECT_TRUE(torch::equal(frozen, torch::zeros({3}, at::kDouble)));
    EXPECT_EQ(count.item<std::int64_t>(), 0);
    EXPECT_FALSE(flag.any().item<bool>());
  });
}

}  // namespace
}  // namespace linerate::torch_adapter
