// Factors of single layers and small networks against exact curvature.
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <array>

#include "kfac/factor_oracle.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/kfac/conv_products.hpp"
#include "linerate/kfac/factor_inverse.hpp"

namespace linerate::torch_adapter {
namespace {

using Over = LossAverage::Over;
using torch::nn::functional::cross_entropy;

constexpr double kExact = 1e-10;

using Loss = std::function<at::Tensor(const at::Tensor&)>;

/// From a target of the seed.
Loss squares(std::uint64_t seed) {
  return [=](const at::Tensor& z) { return (z - noise(z.sizes(), seed)).square().sum(); };
}
Loss mean_square(std::uint64_t seed) {
  return [=](const at::Tensor& z) { return torch::mse_loss(z, noise(z.sizes(), seed)); };
}

struct Parameters {
  at::Tensor weight, bias;
};
template <typename Layer>
Parameters of(const Layer& layer) {
  return {layer->weight, layer->bias};
}

struct FactorMlp : torch::nn::Module {
  torch::nn::Linear a = register_module("a", torch::nn::Linear(5, 4));
  torch::nn::Linear b = register_module("b", torch::nn::Linear(4, 6));
  torch::nn::Linear c = register_module("c", torch::nn::Linear(6, 3));
  bool linear;
  explicit FactorMlp(bool is_linear = false) : linear(is_linear) { set_weights(*this, 1); }
  at::Tensor act(const at::Tensor& x) const { return linear ? x : torch::tanh(x); }
  at::Tensor forward(const at::Tensor& x) { return c(act(b(act(a(x))))); }
  std::vector<Parameters> layers() { return {of(a), of(b), of(c)}; }
};

/// The curvature of a model's first layers is Gauss and Newton's, that of each group its own part
/// of it.
template <typename Model>
void expect_gauss_newton(Model& model, const std::vector<Parameters>& layers,
                         const KfacOptions& options, const at::Tensor& x, const Loss& loss,
                         const std::string& what, LossKind kind = LossKind::squared_error) {
  KFAC pre(model, options);
  const at::Tensor z = model.forward(x);
  exact_fisher(pre, z, kind);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const auto ours = batch_curvature(pre, l);
    const at::Tensor exact = gauss_newton(z, loss, layers[l].weight, layers[l].bias);
    const std::int64_t size = ours[0].size(0);
    for (std::int64_t q = 0; q < std::ssize(ours); ++q)
      EXPECT_LE(error_of(ours[static_cast<std::size_t>(q)],
                         exact.narrow(0, q * size, size).narrow(1, q * size, size)),
                kExact)
          << "layer " << l << ", " << what << ", group " << q;
  }
}

// 1. One sample: F is one outer product (times a root of the loss's Hessian), so G x A is exact.
TEST(ExactCurvature, OfOneSampleIsGaussNewtons) {
  const std::vector<std::pair<LossKind, Loss>> sums_over_features = {
      {LossKind::softmax_cross_entropy,
       [](const at::Tensor& z) { return cross_entropy(z, torch::tensor({1})); }},
      {LossKind::binary_cross_entropy,
       [](const at::Tensor& z) {
         return 3 * torch::binary_cross_entropy_with_logits(z, torch::sigmoid(noise({1, 3}, 11)));
       }},
      {LossKind::squared_error, squares(11)},
      {LossKind::half_squared_error, [](const at::Tensor& z) { return squares(11)(z) / 2; }}};
  for (const auto& [kind, loss] : sums_over_features) {
    FactorMlp model;
    expect_gauss_newton(model, model.layers(), plain_options(Over::batch), noise({1, 5}, 10), loss,
                        "loss " + std::to_string(static_cast<int>(kind)), kind);
  }
}

TEST(ExactCurvature, OfOneSampleIsTheEmpiricalFisher) {
  FactorMlp model;
  KFAC pre(model, plain_options(Over::batch, Fisher::empirical));
  const at::Tensor loss = cross_entropy(model.forward(noise({1, 5}, 10)), torch::tensor({1}));
  loss.backward({}, /*retain_graph=*/true);
  std::vector<at::Tensor> ours;  // before the oracle's own passes add to them
  for (std::size_t l = 0; l < 3; ++l) ours.push_back(batch_curvature(pre, l)[0]);
  for (std::size_t l = 0; l < 3; ++l) {
    const Parameters layer = model.layers()[l];
    const at::Tensor g = joint_gradient(loss, layer.weight, layer.bias).flatten();
    EXPECT_LE(error_of(ours[l], torch::outer(g, g)), kExact) << "layer " << l;
  }
}

// 2. Deep linear networks with squared error: the Jacobian does not depend on the sample.
TEST(ExactCurvature, OfDeepLinearNetworksForEveryBatch) {
  constexpr std::int64_t kSamples = 7;
  const Loss sum = squares(21);
  const std::vector<std::pair<Over, Loss>> cases = {
      {Over::sum, sum},
      {Over::batch, [&](const at::Tensor& z) { return sum(z) / kSamples; }},
      {Over::batch_positions_features, mean_square(21)}};
  for (const auto& [over, loss] : cases) {
    FactorMlp model(/*is_linear=*/true);
    expect_gauss_newton(model, model.layers(), plain_options(over), noise({kSamples, 5}, 20), loss,
                        "over " + std::to_string(static_cast<int>(over)));
  }
}

// 3. Linear regression without damping: one natural gradient step of length 1 is Newton's.
at::Tensor regression_after_one_step(Fisher fisher, const at::Tensor& x, const at::Tensor& t) {
  torch::nn::Linear layer = weighted(4, 2, 30);
  KfacOptions options = plain_options(Over::batch, fisher);
  options.damping = 0;
  KFAC pre(*layer, options);
  torch::optim::SGD optimizer(layer->parameters(), 1.0);
  const at::Tensor z = layer(x);
  if (fisher == Fisher::monte_carlo) exact_fisher(pre, z, LossKind::half_squared_error);
  ((z - t).square().sum() / (2 * x.size(0))).backward();
  pre.step();
  optimizer.step();
  return torch::cat({layer->weight.detach(), layer->bias.detach().unsqueeze(1)}, 1);
}

TEST(LinearRegression, IsSolvedInOneStepWithTheTrueFisherAlone) {
  const at::Tensor x = noise({9, 4}, 31), t = noise({9, 2}, 32);
  const at::Tensor joint = torch::cat({x, torch::ones({9, 1}, at::kDouble)}, 1);
  const at::Tensor normal = torch::linalg_solve(joint.t().matmul(joint), joint.t().matmul(t)).t();
  EXPECT_LE(error_of(regression_after_one_step(Fisher::monte_carlo, x, t), normal), kExact);
  EXPECT_GE(error_of(regression_after_one_step(Fisher::empirical, x, t), normal), 1e-2);
}

// 4. Shared positions.
struct Tokens : torch::nn::Module {
  torch::nn::Linear a = register_module("a", torch::nn::Linear(4, 5));
  torch::nn::Linear b = register_module("b", torch::nn::Linear(5, 3));
  bool pooled;
  explicit Tokens(bool mean) : pooled(mean) { set_weights(*this, 40); }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor z = b(a(x));
    return pooled ? z.mean(1) : z;
  }
};

/// Expanded for a loss of each token, reduced for a pooled output.
TEST(SharedPositions, OfTokensAreExact) {
  for (const bool reduce : {false, true}) {
    Tokens model(reduce);
    KfacOptions options = plain_options(reduce ? Over::batch_positions_features : Over::sum);
    if (reduce) options.shared_positions = SharedPositions::reduce;
    std::vector<Parameters> exact = {of(model.a)};
    if (!reduce) exact.push_back(of(model.b));
    expect_gauss_newton(model, exact, options, noise({3, 4, 4}, 41),
                        reduce ? mean_square(42) : squares(42), reduce ? "reduce" : "expand");
  }
}

template <std::size_t D>
using ConvCases = std::vector<std::pair<const char*, torch::nn::ConvOptions<D>>>;

ConvCases<2> conv_cases() {
  using O = torch::nn::Conv2dOptions;
  return {{"plain", O(4, 6, 3)},
          {"stride", O(4, 6, {3, 2}).stride({2, 3})},
          {"padding", O(4, 6, 3).padding({1, 2})},
          {"dilation", O(4, 6, {2, 3}).dilation({3, 2}).padding(2)},
          {"groups", O(4, 6, 3).groups(2).stride(2).padding(1)},
          {"depthwise", O(4, 4, 3).groups(4).padding(1)},
          {"same", O(4, 6, {2, 4}).padding(torch::kSame)},
          {"same, dilated", O(4, 6, {3, 2}).dilation({2, 3}).padding(torch::kSame)},
          {"reflect", O(4, 6, 3).padding(2).padding_mode(torch::kReflect)},
          {"circular", O(4, 6, 3).padding({1, 2}).padding_mode(torch::kCircular)},
          {"no bias", O(4, 6, 3).bias(false)},
          {"1 x 1", O(4, 6, 1).stride(2)}};
}

/// A convolution, then a linear map of each position; optionally the mean over positions.
template <typename Conv, std::size_t D>
struct ConvNet : torch::nn::Module {
  Conv conv, head;
  bool pooled;
  ConvNet(const torch::nn::ConvOptions<D>& options, bool mean)
      : conv(options), head(torch::nn::ConvOptions<D>(options.out_channels(), 2, 1)), pooled(mean) {
    register_module("conv", conv), register_module("head", head);
    set_weights(*this, 50);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor z = head(conv(x));
    return pooled ? z.flatten(2).mean(2) : z;
  }
};

template <typename Conv, std::size_t D>
void expect_exact(const ConvCases<D>& cases, at::IntArrayRef input, bool reduce = false) {
  for (const auto& [name, layer] : cases) {
    ConvNet<Conv, D> model(layer, reduce);
    KfacOptions options = plain_options(Over::batch_positions_features);
    options.shared_positions = reduce ? SharedPositions::reduce : SharedPositions::expand;
    expect_gauss_newton(model, {of(model.conv)}, options, noise(input, 51), mean_square(52), name);
  }
}

TEST(SharedPositions, ConvolutionsAreExactBeforeAMapOfEachPositionOrReducedForAPooledOutput) {
  for (const bool reduce : {false, true})
    expect_exact<torch::nn::Conv2d>(conv_cases(), {2, 4, 6, 7}, reduce);
}

TEST(SharedPositions, ConvolutionsOfOneDimensionAreExactBeforeAMapOfEachPosition) {
  using O = torch::nn::Conv1dOptions;
  expect_exact<torch::nn::Conv1d, 1>(
      {{"plain", O(4, 6, 3)},
       {"stride", O(4, 6, 3).stride(2).padding(2)},
       {"dilation", O(4, 6, 2).dilation(3).padding(1)},
       {"groups", O(4, 6, 3).groups(2).padding(1)},
       {"same", O(4, 6, 4).padding(torch::kSame)},
       {"circular", O(4, 6, 3).padding(2).padding_mode(torch::kCircular)},
       {"no bias", O(4, 6, 1).bias(false)}},
      {2, 4, 9});
  expect_exact<torch::nn::Conv1d, 1>({{"taps share products", O(16, 3, 3).padding(1)}}, {2, 16, 5});
}

TEST(SharedPositions, ConvolutionsOfThreeDimensionsAreExactBeforeAMapOfEachPosition) {
  using O = torch::nn::Conv3dOptions;
  expect_exact<torch::nn::Conv3d, 3>(
      {{"plain", O(2, 3, 2)},
       {"stride", O(2, 3, {2, 3, 2}).stride({2, 1, 2}).padding({1, 0, 1})},
       {"dilation", O(2, 3, {3, 1, 2}).dilation({2, 1, 1}).padding({2, 1, 0})},
       {"groups", O(2, 4, {2, 2, 1}).groups(2).padding({1, 0, 0})},
       {"same", O(2, 3, {2, 3, 2}).padding(torch::kSame)},
       {"replicate", O(2, 3, 2).padding(1).padding_mode(torch::kReplicate)},
       {"no bias", O(2, 3, {2, 1, 1}).bias(false)}},
      {2, 2, 4, 3, 4});
  expect_exact<torch::nn::Conv3d, 3>(
      {{"taps share products", O(8, 2, {2, 3, 1}).padding({0, 1, 0})}}, {1, 8, 3, 3, 2});
}

/// [in, out], as Hugging Face's Conv1D holds it, against the same layer as nn::Linear.
TEST(Registration, ATransposedWeightIsPreconditionedAsItsTranspose) {
  torch::nn::Linear plain = weighted(5, 3, 56);
  const at::Tensor weight = plain->weight.detach().t().contiguous().requires_grad_();
  const at::Tensor bias = plain->bias.detach().clone().requires_grad_();
  const KfacOptions options = plain_options(Over::batch, Fisher::empirical);
  KFAC ours({LayerSpec{.name = "conv1d", .weight = weight, .bias = bias, .transposed = true}},
            {weight, bias}, options);
  KFAC theirs(*plain, options);
  const at::Tensor x = noise({7, 5}, 57), t = noise({7, 3}, 58);
  ((at::addmm(bias, x, weight) - t).square().sum() / 7).backward();
  ((plain(x) - t).square().sum() / 7).backward();
  ours.step();
  theirs.step();
  EXPECT_LE(error_of(weight.grad().t(), plain->weight.grad()), 1e-12);
  EXPECT_LE(error_of(bias.grad(), plain->bias.grad()), 1e-12);
  EXPECT_EQ(ours.registration_report()[0].a, 6);
  EXPECT_EQ(ours.registration_report()[0].g, 3);
}

// 5. The number of loss terms.
at::Tensor output_factor(Over over, const Loss& loss) {
  FactorMlp model;
  KFAC pre(model, plain_options(over, Fisher::empirical));
  const at::Tensor z = model.forward(noise({6, 5}, 60));
  pre.loss_of(z);
  loss(z).backward();
  return batch_factor(pre, 0, FactorSide::g);
}

TEST(LossTerms, SumAndMeanDifferByTheirNumber) {
  const at::Tensor sum = output_factor(Over::sum, squares(61));
  const at::Tensor samples =
      output_factor(Over::batch, [](const at::Tensor& z) { return squares(61)(z) / 6; });
  const at::Tensor elements = output_factor(Over::batch_positions_features, mean_square(61));
  EXPECT_LE(error_of(samples * 6, sum), 1e-14);
  EXPECT_LE(error_of(elements * 18, sum), 1e-14);
}

/// Half the size inside: the loss has four terms for each position of `inner`.
struct UNet : torch::nn::Module {
  torch::nn::Conv2d inner = register_module(
      "inner", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 3, 3).stride(2).padding(1)));
  UNet() { set_weights(*this, 62); }
  at::Tensor forward(const at::Tensor& x) {
    return inner(x).repeat_interleave(2, 2).repeat_interleave(2, 3);
  }
};

TEST(LossTerms, AreCountedAtTheNetworksOutput) {
  UNet model;
  expect_gauss_newton(model, {of(model.inner)}, plain_options(Over::batch_positions_features),
                      noise({2, 2, 4, 6}, 63), mean_square(64), "the output's terms");
}

TEST(LossTerms, OfPositionsNeedTheOutput) {
  FactorMlp model;
  KFAC pre(model, plain_options(Over::batch_positions, Fisher::empirical));
  EXPECT_THROW(model.forward(noise({2, 5}, 65)).sum().backward(), UsageError);
}

// 6. The same samples, cut otherwise.
struct Factors {
  /// Of the second layer.
  explicit Factors(KFAC& pre)
      : a(batch_factor(pre, 1, FactorSide::a)), g(batch_factor(pre, 1, FactorSide::g)) {}
  at::Tensor a, g;
};

/// Of the mean loss of each batch, times `scale`; of the FactorMlp's middle layer.
Factors factors_of(const std::vector<at::Tensor>& batches, double scale = 1) {
  FactorMlp model;
  KfacOptions options = plain_options(Over::batch, Fisher::empirical);
  options.loss_scale = scale;
  KFAC pre(model, options);
  for (const at::Tensor& x : batches)
    (model.forward(x).square().sum() / x.size(0) * scale).backward();
  return Factors(pre);
}

void expect_same(const Factors& ours, const Factors& theirs) {
  EXPECT_LE(error_of(ours.a, theirs.a), 1e-12);
  EXPECT_LE(error_of(ours.g, theirs.g), 1e-12);
}

TEST(Batches, OfCopiesOrInUnequalMicroBatchesHaveTheWholesFactors) {
  const at::Tensor one = noise({1, 5}, 70), x = noise({9, 5}, 71);
  expect_same(factors_of({one.repeat({8, 1})}), factors_of({one}));
  const std::vector<at::Tensor> parts = {x.narrow(0, 0, 2), x.narrow(0, 2, 6), x.narrow(0, 8, 1)};
  expect_same(factors_of(parts), factors_of({x}));
  expect_same(factors_of(parts, 1.0 / 3), factors_of({x}));
}

/// loss / n over n passes, whatever else the loss is multiplied by, whether n is said or is a
/// function of the step; passes in eval mode and of other tensors' gradients do not count.
TEST(Batches, AccumulatedHaveTheFactorsOfTheJoinedOne) {
  const at::Tensor x = noise({24, 5}, 75);
  for (const LossAverage average :
       {LossAverage{}, LossAverage{Over::batch_positions},
        LossAverage{Over::batch_positions_features}, LossAverage::of_terms(24)})
    for (const Fisher fisher : {Fisher::empirical, Fisher::monte_carlo}) {
      const auto factors = [&](int n, double scaler, bool is_function) {
        FactorMlp model;
        KfacOptions options = plain_options(average.over, fisher);
        options.loss_average = LossAverage{average.over, 24.0 / n};
        if (n > 1) options.accumulate = n;
        if (is_function) options.accumulate = [n](std::int64_t) { return n; };
        options.loss_scale = [&](std::int64_t) { return scaler; };
        KFAC pre(model, options);
        const bool by_element = average.over == Over::batch_positions_features;
        for (const at::Tensor& part : x.chunk(n)) {
          const at::Tensor z = model.forward(part);
          pre.loss_of(z);
          if (fisher == Fisher::monte_carlo) exact_fisher(pre, z, LossKind::squared_error);
          (by_element ? z.square().mean() : z.square().sum() / part.size(0))
              .mul(scaler / n)
              .backward();
          scaler *= 2;
        }
        return Factors(pre);
      };
      const Factors joined = factors(1, 1, false);
      for (const int n : {2, 3, 8}) {
        expect_same(factors(n, 1, false), joined);
        expect_same(factors(n, 256, true), joined);
      }
    }
}

TEST(Batches, OfUnequalRanksAddUpWithTheirShares) {
  const at::Tensor x = noise({9, 5}, 72);
  const Factors few = factors_of({x.narrow(0, 0, 2)}), many = factors_of({x.narrow(0, 2, 7)});
  Factors sum = few;
  sum.a = (2 * few.a + 7 * many.a) / 9, sum.g = (2 * few.g + 7 * many.g) / 9;
  expect_same(sum, factors_of({x}));
}

/// A layer's A counts its rows, its G every term of the step: in one pass or in two.
TEST(Batches, DivideByTheTermsThatDoNotUseALayerToo) {
  using torch::nn::Linear;
  const at::Tensor x = noise({6, 4}, 74), with = x.narrow(0, 0, 2), without = x.narrow(0, 2, 4);
  Linear first(4, 3), rare(3, 3), last(3, 2);
  torch::nn::Sequential model(first, rare, last);
  set_weights(*model, 75);
  const auto used = [&](const at::Tensor& part) {
    return last(torch::tanh(rare(torch::tanh(first(part))))).square().sum();
  };
  const auto unused = [&](const at::Tensor& part) {
    return last(torch::tanh(first(part))).square().sum();
  };
  const auto factors = [&](const std::function<void()>& passes) {
    KFAC pre(*model, plain_options(Over::batch, Fisher::empirical));
    passes();
    return Factors(pre);
  };
  const Factors alone = factors([&] { (used(with) / 2).backward(); });
  const Factors micro_batches = factors([&] {
    (used(with) / 2).backward();
    (unused(without) / 4).backward();
  });
  const Factors one_batch = factors([&] {
    const at::Tensor all = torch::tanh(first(x));
    const at::Tensor through = last(torch::tanh(rare(all.narrow(0, 0, 2))));
    ((through.square().sum() + last(all.narrow(0, 2, 4)).square().sum()) / 6).backward();
  });
  expect_same(micro_batches, one_batch);
  Factors of_fewer_terms = one_batch;
  of_fewer_terms.g = one_batch.g * 3;
  expect_same(of_fewer_terms, alone);
}

TEST(Batches, OfASampleWithoutItsDimensionCountOne) {
  torch::nn::Linear linear = weighted(5, 3, 76);
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(2, 3, 2));
  set_weights(*conv, 77);
  const auto g_of = [](auto& layer, const at::Tensor& x) {
    KFAC pre(*layer, plain_options(Over::batch, Fisher::empirical));
    layer(x).square().sum().backward();
    return batch_factor(pre, 0, FactorSide::g);
  };
  const at::Tensor x = noise({1, 5}, 78), image = noise({1, 2, 4, 4}, 79);
  EXPECT_LE(error_of(g_of(linear, x[0]), g_of(linear, x)), 1e-14);
  EXPECT_LE(error_of(g_of(conv, image[0]), g_of(conv, image)), 1e-14);
}

TEST(Batches, ArePackedAsSumsAndCounts) {
  FactorMlp model;
  KFAC pre(model, plain_options(Over::batch, Fisher::empirical));
  const auto& block = KfacInside::preconditioner(pre).blocks()[0];
  const at::Tensor x = noise({4, 5}, 73);
  model.forward(x).sum().backward();
  for (const FactorSide side : {FactorSide::a, FactorSide::g}) {
    const at::Tensor batch = block->packed_batch(side);
    const std::int64_t elements = block->packed_elements(side);
    ASSERT_EQ(batch.numel(), elements + doc::kFactorCounts);
    EXPECT_EQ(batch[elements].item<double>(), 4);  // rows, or terms of its own
    EXPECT_EQ(batch[elements + 1].item<double>(), 4);
    EXPECT_LE(error_of(batch.narrow(0, 0, elements) / 4, block->batch_factor(side)), 1e-14);
    EXPECT_TRUE(torch::equal(block->packed_batch(side), batch));  // an exchange may be repeated
  }
  block->discard_batch();
  EXPECT_EQ(block->packed_batch(FactorSide::a).abs().max().item<double>(), 0);
}

// Spatial subsampling: the mean over all draws of bands is the whole factor, whether taps share
// products or not.
struct SubsampledConv {
  torch::nn::Conv2d conv;
  at::Tensor x, g;

  SubsampledConv(std::int64_t channels, std::int64_t samples, std::int64_t rows)
      : conv(torch::nn::Conv2dOptions(channels, 3, 3).padding(1)),
        x(noise({samples, channels, rows, 7}, 81)),
        g(noise({samples, 3, rows, 7}, 82)) {
    set_weights(*conv, 80);
  }
  at::Tensor factor(int every, std::uint64_t draw, FactorSide side) const {
    const LayerSpec layer{"conv", LayerKind::conv, conv->weight, conv->bias};
    const auto block = make_block(layer, {.conv_subsampling = every});
    LayerInput input{x};
    input.conv.fill({.kernel = 3, .pad_before = 1, .pad_after = 1});
    input.draw = draw;
    block->add_input(input);
    block->add_gradient(input, g, 1);
    block->count_terms(2);
    return block->batch_factor(side);
  }
  /// Over these draws, which are all that there are.
  void expect_unbiased(const std::vector<std::optional<std::uint64_t>>& draws) const {
    for (const FactorSide side : {FactorSide::a, FactorSide::g}) {
      at::Tensor mean = torch::zeros_like(factor(1, 0, side));
      for (const auto& draw : draws)
        mean += factor(2, draw.value(), side) / static_cast<double>(draws.size());
      EXPECT_LE(error_of(mean, factor(1, 0, side)), 1e-14);
      EXPECT_GT(error_of(factor(2, 1, side), factor(1, 1, side)), 1e-3);
    }
  }
};

TEST(Subsampling, OfRowsSideBySideIsUnbiased) {
  // Of 4 bands, or of as many as there are rows; also with fewer samples than bands.
  for (const auto& [samples, rows, bands] :
       {std::array{5, 6, 4}, std::array{4, 4, 4}, std::array{2, 9, 4}, std::array{6, 3, 3}}) {
    std::vector<std::optional<std::uint64_t>> keys(static_cast<std::size_t>(bands));
    for (std::uint64_t k = 64; k-- > 0;)
      keys[random_below(k, 0, static_cast<std::uint64_t>(bands))] = k;
    for (const int channels : {2, 16})
      SubsampledConv(channels, samples, rows).expect_unbiased(keys);
  }
}

// Embeddings: A is the diagonal of the one-hot inputs' second moment.
TEST(Embedding, HasTheFactorsOfALinearLayerOfOneHotVectors) {
  torch::nn::Embedding words(6, 3);
  set_weights(*words, 90);
  KFAC pre(*words, plain_options(Over::sum, Fisher::empirical));
  const at::Tensor text = torch::tensor({{0, 1, 5}, {2, 2, 0}});
  const at::Tensor slope = noise({2, 3, 3}, 91);
  (words(text) * slope).sum().backward();
  const auto& block = KfacInside::preconditioner(pre).blocks()[0];
  const at::Tensor one_hot = at::one_hot(text.flatten(), 6).to(at::kDouble);
  EXPECT_LE(
      error_of(block->batch_factor(FactorSide::a), one_hot.t().matmul(one_hot).diagonal() / 6),
      1e-14);
  const at::Tensor rows = slope.view({6, 3});
  EXPECT_LE(error_of(batch_factor(pre, 0, FactorSide::g)[0], rows.t().matmul(rows)), 1e-14);
}

TEST(Embedding, DoesNotCountItsPaddingIndex) {
  torch::nn::Embedding words(torch::nn::EmbeddingOptions(4, 2).padding_idx(1));
  set_weights(*words, 92);
  KFAC pre(*words, plain_options(Over::sum, Fisher::empirical));
  (words(torch::tensor({0, 1, 3, 1})) * torch::tensor({1., 10., 2., 10.}).unsqueeze(1))
      .sum()
      .backward();
  const at::Tensor a = KfacInside::preconditioner(pre).blocks()[0]->batch_factor(FactorSide::a);
  EXPECT_TRUE(torch::equal(a, torch::tensor({0.5, 0., 0., 0.5}, at::kDouble)));
  EXPECT_EQ(batch_factor(pre, 0, FactorSide::g)[0][0][0].item<double>(), 1 + 4);
}

// Norm layers: sums over positions inside the sample.
template <typename Norm>
void expect_empirical_fisher_by_unit(Norm norm, const at::Tensor& x, bool one_by_one) {
  set_weights(*norm, 93);
  KFAC pre(*norm, plain_options(Over::sum, Fisher::empirical));
  const at::Tensor slope = noise(x.sizes(), 94);
  const at::Tensor y = norm->forward(x);
  (y * slope).sum().backward();
  const at::Tensor ours =
      KfacInside::preconditioner(pre).blocks()[0]->batch_factor(FactorSide::g).view({3, -1});
  // x^ = (y - shift) / scale
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  if (one_by_one)
    shape[1] = x.size(1);
  else
    shape.back() = x.size(-1);
  const at::Tensor normal = ((y - norm->bias.view(shape)) / norm->weight.view(shape)).detach();
  at::Tensor expected = torch::zeros_like(ours);
  for (std::int64_t n = 0; n < x.size(0); ++n) {
    const auto over_positions = [&](const at::Tensor& v) {
      return one_by_one ? v.reshape({v.size(0), -1}).sum(1) : v.reshape({-1, v.size(-1)}).sum(0);
    };
    const at::Tensor s = over_positions(normal[n] * slope[n]), b = over_positions(slope[n]);
    expected += torch::stack({s * s, s * b, b * b});
  }
  EXPECT_LE(error_of(ours, expected), 1e-12);
}

TEST(NormLayers, HaveTheFisherOfEachUnit) {
  expect_empirical_fisher_by_unit(
      torch::nn::LayerNorm(torch::nn::LayerNormOptions(std::vector<std::int64_t>{5})),
      noise({3, 4, 5}, 95), false);
  expect_empirical_fisher_by_unit(torch::nn::BatchNorm2d(3), noise({4, 3, 2, 5}, 96), true);
  expect_empirical_fisher_by_unit(torch::nn::BatchNorm1d(3), noise({6, 3}, 97), true);
}

// Monte-Carlo labels.
constexpr std::array kAllKinds = {LossKind::softmax_cross_entropy, LossKind::binary_cross_entropy,
                                  LossKind::squared_error, LossKind::half_squared_error};

at::Tensor sampled_factor(const std::vector<std::pair<at::Tensor, std::int64_t>>& parts,
                          LossKind kind, double share = 1) {
  FactorMlp model;
  KfacOptions options = plain_options(Over::batch, Fisher::monte_carlo);
  options.seed = 7;
  KFAC pre(model, options);
  at::Tensor sum;
  for (const auto& [x, first] : parts) {
    pre.sample_fisher(model.forward(x), kind, first);
    const at::Tensor g = batch_factor(pre, 0, FactorSide::g) * share;
    KfacInside::preconditioner(pre).blocks()[0]->discard_batch();  // another rank's part comes
    sum = sum.defined() ? sum + g : g;
  }
  return sum;
}

TEST(MonteCarlo, LabelsDoNotDependOnTheNumberOfRanks) {
  const at::Tensor x = noise({8, 5}, 100);
  for (const LossKind kind : kAllKinds)
    EXPECT_LE(error_of(sampled_factor({{x.narrow(0, 0, 4), 0}, {x.narrow(0, 4, 4), 4}}, kind, 0.5),
                       sampled_factor({{x, 0}}, kind)),
              1e-12)
        << static_cast<int>(kind);
}

// 4000 samples: the mean of n terms is off by about 1 / sqrt(n) of their own size.
TEST(MonteCarlo, ApproachesTheExactFisher) {
  const at::Tensor x = noise({1, 5}, 101).repeat({4000, 1});
  for (const LossKind kind : kAllKinds) {
    FactorMlp model;
    KFAC pre(model, plain_options(Over::batch));
    exact_fisher(pre, model.forward(x.narrow(0, 0, 1)), kind);
    EXPECT_LE(error_of(sampled_factor({{x, 0}}, kind), batch_factor(pre, 0, FactorSide::g)), 0.1)
        << static_cast<int>(kind);
  }
}

TEST(MonteCarlo, LeavesGradientsAlone) {
  FactorMlp model;
  KFAC pre(model, plain_options(Over::batch, Fisher::monte_carlo));
  const at::Tensor z = model.forward(noise({4, 5}, 102));
  pre.sample_fisher(z, LossKind::squared_error);
  for (const at::Tensor& p : model.parameters()) EXPECT_FALSE(p.grad().defined());
  ASSERT_TRUE(KfacInside::preconditioner(pre).blocks()[0]->has_batch(FactorSide::g));
  KfacInside::preconditioner(pre).blocks()[0]->discard_batch();
  z.sum().backward();  // is not sampled from
  EXPECT_FALSE(KfacInside::preconditioner(pre).blocks()[0]->has_batch(FactorSide::g));
}

// Products that taps of a convolution share, against those of its patches.

struct Case {
  ConvGeometry geometry;
  std::int64_t samples = 1, channels = 1, height = 1, width = 1;

  at::Tensor images() const { return noise({samples, channels, height, width}, 70); }
  at::Tensor patches() const { return conv_patches(images(), geometry); }
};

/// Kernels, paddings (of one side alone, wider than the kernel), dilations and sizes, down to
/// outputs that see but padding; drawn, so that no one chose what they meet.
std::vector<Case> cases() {
  std::vector<Case> drawn;
  for (std::uint64_t k = 0; drawn.size() < 300; ++k) {
    std::uint64_t i = 0;
    const auto draw = [&](std::uint64_t below) {
      return static_cast<std::int64_t>(random_below(k, i++, below));
    };
    Case c;
    for (ConvAxis& axis : c.geometry) {
      axis.kernel = 1 + draw(5);
      axis.dilation = 1 + draw(3);
      axis.pad_before = draw(5);
      axis.pad_after = draw(5);
    }
    c.samples = 1 + draw(3), c.channels = 1 + draw(4), c.height = 1 + draw(9),
    c.width = 1 + draw(9);
    if (c.geometry[0].outputs(c.height) > 0 && c.geometry[1].outputs(c.width) > 0)
      drawn.push_back(c);
  }
  return drawn;
}

TEST(ConvProducts, AreThoseOfThePatches) {
  for (const Case& c : cases()) {
    const at::Tensor patches = c.patches(), start = noise({patches.size(0), patches.size(0)}, 71);
    const at::Tensor sum = start.clone();
    add_conv_products(c.images(), c.geometry, 2.5, sum);
    EXPECT_TRUE(
        torch::allclose(sum.triu(), (start + 2.5 * patches.mm(patches.t())).triu(), 1e-12, 1e-12))
        << c.geometry[0].kernel << " x " << c.geometry[1].kernel << " on " << c.height << " x "
        << c.width;
    EXPECT_TRUE(torch::allclose(conv_patch_sum(c.images(), c.geometry, at::kDouble), patches.sum(1),
                                1e-12, 1e-12));
  }
}

TEST(ConvProducts, OfManySamplesAreTakenInParts) {
  const ConvAxis axis{.kernel = 3, .pad_before = 1, .pad_after = 1};
  const Case c{{axis, axis}, 150, 16, 32, 32};
  const at::Tensor patches = c.patches(), sum = torch::zeros({144, 144}, at::kDouble);
  add_conv_products(c.images(), c.geometry, 1, sum);
  EXPECT_LE(error_of(sum.triu(), patches.mm(patches.t()).triu()), 1e-13);
}

TEST(ConvProducts, AreSharedWithStrideOneAndEnoughChannels) {
  const ConvAxis axis{.kernel = 3}, sparse{.kernel = 3, .stride = 2};
  const ConvGeometry three{axis, axis};
  EXPECT_TRUE(shares_products(three, 64));
  EXPECT_FALSE(shares_products(three, 1));
  EXPECT_FALSE(shares_products({axis, sparse}, 64));
  EXPECT_FALSE(shares_products({}, 64));
}

/// [n, k] in f32 whose columns, not rows, lie in a piece.
at::Tensor by_columns(const at::Tensor& x) { return x.t().contiguous().t(); }

// 128 x 512 x 512 multiplications go through oneDNN, one column fewer do not.
TEST(LargeProduct, IsThatOfF64WhateverTheStrides) {
  for (const std::int64_t columns : {512, 511}) {
    const at::Tensor x = noise({128, 512}, 1).to(at::kFloat),
                     y = noise({columns, 512}, 2).to(at::kFloat);
    const at::Tensor found = times_transpose(x, y);
    const at::Tensor exact = at::matmul(x.to(at::kDouble), y.to(at::kDouble).t());
    ASSERT_EQ(found.sizes(), exact.sizes());
    EXPECT_LT((found.to(at::kDouble) - exact).abs().max().item<double>(),
              3e-6 * exact.abs().max().item<double>());
    if (columns == 512) {
      EXPECT_TRUE(at::equal(found, times_transpose(by_columns(x), by_columns(y))));
    }
  }
}

TEST(LargeProduct, KeepsF64) {
  const at::Tensor x = noise({128, 512}, 3), y = noise({512, 512}, 4);
  EXPECT_TRUE(at::equal(times_transpose(x, y), at::matmul(x, y.t())));
}

}  // namespace
}  // namespace linerate::torch_adapter
