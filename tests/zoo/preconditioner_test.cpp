// K-FAC as strategies ask for it, of networks of the zoo.
#include "linerate/zoo/preconditioner.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "linerate/kfac/factor_inverse.hpp"
#include "linerate/kfac/preconditioner.hpp"
#include "linerate/models/description.hpp"

namespace linerate::zoo {
namespace {

constexpr std::int64_t kBatch = 3, kTokens = 5, kVocabulary = 11;

/// Says something of each position, or of the whole sample.
models::Description token_model(bool of_each_position) {
  models::Builder b("tokens", {kTokens}, kVocabulary);
  int x = b.tanh(b.linear("hidden", b.embedding("words", b.input(), kVocabulary, 6), 7));
  if (!of_each_position) x = b.first_token(x);
  b.linear("head", x, kVocabulary);
  return std::move(b).finish(models::Initialisation::normal_002);
}

/// G of the head after one batch of a mean cross entropy.
at::Tensor factor_of_head(torch_adapter::KFAC& pre) {
  for (const auto& block : torch_adapter::KfacInside::preconditioner(pre).blocks())
    if (block->layer().name == "head")
      return torch_adapter::unpack_triangles(block->batch_factor(torch_adapter::FactorSide::g), 1,
                                             kVocabulary)[0];
  return {};
}

// The mean over all terms of (p - y) (p - y)^T: their number, and not that of the samples or the
// classes, is what the loss was divided by.
TEST(ZooPreconditioner, LossTermsOfATokenModelArePositions) {
  for (const bool of_each_position : {true, false}) {
    Network network(token_model(of_each_position));
    const plan::Kfac kfac;
    const auto pre = make_preconditioner(
        kfac, network, [] { return 0.1; }, 0);
    const std::int64_t terms = of_each_position ? kBatch * kTokens : kBatch;
    const at::Tensor output =
        network.forward(at::randint(kVocabulary, {kBatch, kTokens}, at::kLong));
    const at::Tensor targets = at::randint(kVocabulary, {terms}, at::kLong);
    show_output(*pre, kfac, output, 0);
    const at::Tensor logits = output.flatten(0, -2);
    ASSERT_EQ(logits.size(0), terms);
    at::cross_entropy_loss(logits, targets).backward();
    const at::Tensor error = at::softmax(logits, 1) - at::one_hot(targets, kVocabulary);
    const at::Tensor expected = error.t().matmul(error) / static_cast<double>(terms);
    EXPECT_LT((factor_of_head(*pre) - expected).abs().max().item<double>(), 1e-6)
        << of_each_position;
  }
}

}  // namespace
}  // namespace linerate::zoo
