// Packing, inverses, damping, clip, failures.
#include <torch/library.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "kfac/factor_oracle.hpp"
#include "linerate/kfac/collector.hpp"
#include "linerate/kfac/conv_products.hpp"
#include "linerate/kfac/factor_inverse.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using Over = LossAverage::Over;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kDamping = 0.03;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

at::Tensor symmetric(std::int64_t groups, std::int64_t d, std::uint64_t seed) {
  const at::Tensor x = noise({groups, d, d}, seed);
  return x + x.mT();
}

/// A positive definite factor.
at::Tensor factor(std::int64_t d, std::uint64_t seed) {
  const at::Tensor x = noise({2 * d, d}, seed);
  return x.t().matmul(x) / (2 * d);
}

/// `packed` is the factor of one more batch, which used the layer or not. Returns whether it was
/// dropped.
bool update(CurvatureBlock& block, FactorSide side, const at::Tensor& packed, bool used = true) {
  const at::Tensor counts = torch::tensor({used ? 1.0 : 0.0, 1.0}, at::kDouble);
  const CurvatureBlock::Packed sum{{&block, side}, torch::cat({packed, counts})};
  return CurvatureBlock::update_averages({&sum, 1}, 0.95).item<bool>();
}

CurvatureBlock::Inverted invert(CurvatureBlock& block, FactorSide side, double damping) {
  const CurvatureBlock::Factor factor{&block, side};
  return CurvatureBlock::invert({&factor, 1}, torch::tensor(damping, at::kDouble));
}
bool inverts(CurvatureBlock& block, FactorSide side, double damping) {
  return invert(block, side, damping).succeeded.item<bool>();
}

/// Of the gradient that the weight has.
at::Tensor direction_of(CurvatureBlock& block) {
  CurvatureBlock* const one = &block;
  return CurvatureBlock::directions({&one, 1}, torch::tensor(kDamping, at::kDouble))
      .directions.flatten();
}

at::Tensor solved_by(CurvatureBlock& block) {
  for (const FactorSide side : {FactorSide::a, FactorSide::g})
    EXPECT_TRUE(inverts(block, side, kDamping));
  return direction_of(block);
}

// 10. Packing.
TEST(Packing, ComesBackBitForBit) {
  for (const auto type : {at::kDouble, at::kFloat})
    for (const std::int64_t d : {1, 2, 3, 17, 31, 32, 33, 65, 129})
      for (const std::int64_t groups : {1, 3}) {
        const at::Tensor full = symmetric(groups, d, 200 + static_cast<std::uint64_t>(d)).to(type);
        const at::Tensor packed = pack_triangles(full);
        EXPECT_EQ(packed.numel(), groups * d * (d + 1) / 2);
        EXPECT_TRUE(torch::equal(unpack_triangles(packed, groups, d), full)) << d;
      }
}

TEST(Packing, IsRowMajorAndReadsTheUpperTriangle) {
  const at::Tensor full = torch::tensor({{1., 2., 3.}, {-9., 4., 5.}, {-9., -9., 6.}}).unsqueeze(0);
  EXPECT_TRUE(torch::equal(pack_triangles(full), torch::tensor({1., 2., 3., 4., 5., 6.})));
}

TEST(Packing, TakesStridedMatricesAndFillsPartsOfABuffer) {
  const at::Tensor wide = symmetric(2, 5, 210);
  const at::Tensor embedded = torch::full({2, 7, 11}, kNaN, at::kDouble);
  embedded.narrow(1, 1, 5).narrow(2, 3, 5).copy_(wide);
  const at::Tensor view = embedded.narrow(1, 1, 5).narrow(2, 3, 5);
  const at::Tensor buffer = torch::full({50}, 7.0, at::kDouble);
  pack_triangles(view, buffer.narrow(0, 10, 30));
  EXPECT_TRUE(torch::equal(unpack_triangles(buffer.narrow(0, 10, 30), 2, 5), wide));
  EXPECT_TRUE(torch::equal(buffer.narrow(0, 0, 10), torch::full({10}, 7.0, at::kDouble)));
  EXPECT_TRUE(torch::equal(buffer.narrow(0, 40, 10), torch::full({10}, 7.0, at::kDouble)));
  EXPECT_TRUE(torch::equal(pack_triangles(wide.mT()), pack_triangles(wide)));
}

TEST(SymmetricProduct, IsTheUpperTriangleOfTheProduct) {
  for (const std::int64_t d : {1, 127, 128, 129, 300}) {
    const at::Tensor columns = noise({d, 40}, 220);
    const at::Tensor start = noise({d, d}, 221);
    for (const at::Tensor& x : {columns, columns.t().contiguous().t()}) {  // both memory orders
      const at::Tensor sum = start.clone();
      add_symmetric_product(x, 0.5, sum);
      const at::Tensor expected = start + 0.5 * columns.matmul(columns.t());
      EXPECT_LE(error_of(sum.triu(), expected.triu()), 1e-14) << d;
    }
  }
}

struct Layer {
  explicit Layer(InverseMethod method, const at::Tensor& a = factor(5, 241),
                 const at::Tensor& g = factor(3, 242)) {
    block =
        make_block({"layer", LayerKind::linear, linear->weight, linear->bias}, {.method = method});
    update(*block, FactorSide::a, pack_triangles(a.unsqueeze(0)));
    update(*block, FactorSide::g, pack_triangles(g.unsqueeze(0)));
    gradient = noise({1, 3, 5}, 243);
    linear->weight.mutable_grad() = gradient[0].narrow(1, 0, 4).clone();
    linear->bias.mutable_grad() = gradient[0].select(1, 4).clone();
  }
  torch::nn::Linear linear = weighted(4, 3, 240);
  std::unique_ptr<CurvatureBlock> block;
  at::Tensor gradient;
};

constexpr InverseMethod kMethods[] = {InverseMethod::cholesky, InverseMethod::eigen};

at::Tensor one(std::int64_t d) { return torch::eye(d, at::kDouble); }

/// The dense product of two factors, damped: by eigenvectors exactly, by Cholesky each of them, the
/// outer one by gamma / pi. Where one is dead, pi = 1.
at::Tensor damped(InverseMethod method, const at::Tensor& outer, const at::Tensor& inner) {
  const std::int64_t m = outer.size(0), n = inner.size(0);
  if (method == InverseMethod::eigen) return at::kron(outer, inner) + kDamping * one(m * n);
  const double gamma = std::sqrt(kDamping),
               means = (inner.trace() / n).item<double>() / (outer.trace() / m).item<double>();
  const double pi = std::isfinite(means) ? std::sqrt(means) : 1;
  return at::kron(outer + gamma / pi * one(m), inner + gamma * pi * one(n));
}

void expect_solves(CurvatureBlock& block, const at::Tensor& whole, const at::Tensor& gradient) {
  EXPECT_LE(error_of(solved_by(block), torch::linalg_solve(whole, gradient.flatten())), 1e-9);
}

TEST(Inverse, IsThatOfTheDampedBlock) {
  torch::nn::Embedding words(4, 3);
  set_weights(*words, 244);
  const at::Tensor a = factor(5, 241), p = noise({4}, 245).abs(), slope = noise({4, 3}, 247);
  words->weight.mutable_grad() = slope.clone();
  for (const InverseMethod method : kMethods) {
    for (const at::Tensor& g : {factor(3, 242), torch::zeros({3, 3}, at::kDouble)}) {
      const Layer layer(method, a, g);
      expect_solves(*layer.block, damped(method, g, a), layer.gradient);
    }
    const at::Tensor g = factor(3, 246);
    const auto block =
        make_block({"words", LayerKind::embedding, words->weight, {}}, {.method = method});
    update(*block, FactorSide::a, p);
    update(*block, FactorSide::g, pack_triangles(g.unsqueeze(0)));
    expect_solves(*block, damped(method, torch::diag(p), g), slope);
  }
}

TEST(Inverse, OfNormLayersIsThatOfEachUnit) {
  torch::nn::BatchNorm1d norm(2);
  set_weights(*norm, 248);
  const at::Tensor f = torch::tensor({{2., 3.}, {1., -0.5}, {1., 4.}}, at::kDouble);
  const at::Tensor slope = noise({2, 2}, 249);
  norm->weight.mutable_grad() = slope[0].clone();
  norm->bias.mutable_grad() = slope[1].clone();
  const at::Tensor whole = torch::cat({torch::cat({f[0].diag(), f[1].diag()}, 1),
                                       torch::cat({f[1].diag(), f[2].diag()}, 1)}) +
                           kDamping * one(4);
  for (const InverseMethod method : kMethods) {
    const auto block =
        make_block({"norm", LayerKind::norm, norm->weight, norm->bias}, {.method = method});
    update(*block, FactorSide::g, f.flatten());
    ASSERT_TRUE(inverts(*block, FactorSide::g, kDamping));
    EXPECT_LE(error_of(direction_of(*block), torch::linalg_solve(whole, slope.flatten())), 1e-12);
  }
}

TEST(Inverse, DoesNotDependOnHowAScaleIsSharedByTheFactors) {
  for (const InverseMethod method : kMethods) {
    const Layer shared(method), other(method, factor(5, 241) * 1e3, factor(3, 242) / 1e3);
    EXPECT_LE(error_of(solved_by(*other.block), solved_by(*shared.block)), 1e-9);
  }
}

TEST(Inverse, TravelsPacked) {
  for (const InverseMethod method : kMethods) {
    const Layer owner(method), other(method);
    const at::Tensor expected = solved_by(*owner.block);
    for (const FactorSide side : {FactorSide::a, FactorSide::g}) {
      const at::Tensor packed = owner.block->packed_inverse(side);
      EXPECT_EQ(packed.numel(), owner.block->inverse_elements(side));
      const CurvatureBlock::Packed sent{{other.block.get(), side}, packed};
      CurvatureBlock::take_inverses({&sent, 1}, torch::ones({1}, at::kBool),
                                    torch::tensor(kDamping, at::kDouble));
    }
    EXPECT_LE(error_of(direction_of(*other.block), expected), 1e-14);
    // What is saved of it can be recomputed: from the same averages, with the owner's damping.
    for (const FactorSide side : {FactorSide::a, FactorSide::g})
      other.block->load(side, other.block->save(side));
    other.block->restore_inverses();
    EXPECT_LE(error_of(direction_of(*other.block), expected), 1e-9);
  }
}

TEST(RunningAverage, BeginsWithTheFirstFactor) {
  Layer layer(InverseMethod::cholesky);
  const at::Tensor first = layer.block->average(FactorSide::g).clone();
  EXPECT_TRUE(torch::equal(first, pack_triangles(factor(3, 242).unsqueeze(0))));
  const at::Tensor other = noise({6}, 250);
  update(*layer.block, FactorSide::g, other);  // k = 2: rho = 1/2
  EXPECT_LE(error_of(layer.block->average(FactorSide::g), (first + other) / 2), 1e-14);
  for (int k = 3; k <= 30; ++k) update(*layer.block, FactorSide::g, other);
  const at::Tensor before = layer.block->average(FactorSide::g).clone();
  update(*layer.block, FactorSide::g, first);  // k = 31: rho = 0.95, not 30/31
  EXPECT_LE(error_of(layer.block->average(FactorSide::g), before * 0.95 + first * 0.05), 1e-14);
}

// 9. The KL clip.
double nu_of(double q, double rate, double kappa) {
  return kl_clip_factor(torch::tensor(q, at::kDouble), rate, kappa).item<double>();
}

TEST(KlClip, BoundsTheStep) {
  for (const double q : {1e-9, 0.3, 7.0, 1e9}) {
    const double nu = nu_of(q, 0.1, 1e-3);
    EXPECT_LE(nu, 1);
    EXPECT_LE(0.01 * nu * nu * q, 1e-3 * (1 + 1e-12));
  }
  EXPECT_EQ(nu_of(0, 0.1, 1e-3), 1);
  EXPECT_EQ(nu_of(1e9, 0.1, 0), 1);  // off
  EXPECT_DOUBLE_EQ(nu_of(-4, 0.5, 1e-3), std::sqrt(1e-3 / (0.25 * 4)));
  for (const double kappa : {0.0, 1e-3})
    for (const double bad : {kNaN, kInfinity}) EXPECT_EQ(nu_of(bad, 0.1, kappa), 0);
}

struct Trained {
  explicit Trained(KfacOptions options) : pre(*layer, std::move(options)) {}
  void backward(double scale = 1) {
    layer->zero_grad();
    (layer(noise({6, 4}, 261)).square().sum() / 6 * scale).backward();
  }
  KfacStep step(double scale = 1) {
    backward(scale);
    return pre.step();
  }
  /// A copy.
  at::Tensor gradient() const {
    return torch::cat({layer->weight.grad(), layer->bias.grad().unsqueeze(1)}, 1);
  }
  torch::nn::Linear layer = weighted(4, 3, 260);
  KFAC pre;
};

KfacOptions clipped(std::function<double(std::int64_t)> rate = [](auto) { return 0.1; }) {
  KfacOptions options = plain_options(Over::batch, Fisher::empirical);
  options.kl_clip = 1e-3;
  options.learning_rate = std::move(rate);
  return options;
}

TEST(KlClip, UsesTheRateOfTheStep) {
  double rate = 0.1;
  Trained trained(clipped([&](std::int64_t) { return rate; }));
  const KfacStep first = trained.step();
  EXPECT_LT(first.nu, 1);
  EXPECT_NEAR(first.nu, std::sqrt(1e-3 / (0.01 * first.q)), 1e-12);
  rate = 0.05;
  const KfacStep second = trained.step();
  EXPECT_NEAR(second.nu, std::sqrt(1e-3 / (0.0025 * second.q)), 1e-12);
}

TEST(KlClip, UsesTheGradientBeforeItIsOverwritten) {
  Trained trained(clipped());
  trained.backward();
  const at::Tensor before = trained.gradient();
  const KfacStep done = trained.pre.step();
  EXPECT_NEAR(done.q, (trained.gradient() * before).sum().item<double>() / done.nu, 1e-12 * done.q);
}

TEST(KlClip, LeavesAZeroGradientAsItIs) {
  Trained trained(clipped());
  trained.step();
  trained.backward(0);
  const KfacStep done = trained.pre.step();
  EXPECT_EQ(done.q, 0);
  EXPECT_EQ(done.nu, 1);
}

TEST(KlClip, SkipsAStepThatIsNotFinite) {
  KfacOptions options = clipped();
  options.factor_interval = 2;  // the second step's gradient alone is bad
  options.inverse_interval = 2;
  Trained trained(options);
  torch::optim::SGD optimizer(trained.layer->parameters(),
                              torch::optim::SGDOptions(0.1).momentum(0.9));
  EXPECT_FALSE(trained.step().skipped);
  optimizer.step();
  const at::Tensor before = trained.layer->weight.detach().clone();
  EXPECT_TRUE(trained.step(kNaN).skipped);
  optimizer.step();
  EXPECT_TRUE(torch::equal(trained.layer->weight, before));
  EXPECT_FALSE(trained.step().skipped);
}

/// How far SGD with momentum moves a weight in steps of these rates. The loss is linear: gradient,
/// factors and direction are the same in every step, and the clip alone decides on its length.
std::vector<double> moves(const std::vector<double>& rates, bool names_optimizer) {
  constexpr double kMomentum = 0.9;
  torch::nn::Linear layer = weighted(4, 3, 260);
  torch::optim::SGD optimizer(layer->parameters(), torch::optim::SGDOptions(1).momentum(kMomentum));
  double rate = 0;
  KfacOptions options = clipped([&](std::int64_t) { return rate; });
  if (names_optimizer) options.optimizer = &optimizer;
  KFAC pre(*layer, options);
  std::vector<double> all;
  for (const double next : rates) {
    rate = next;
    for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
    const at::Tensor before = layer->weight.detach().clone();
    optimizer.zero_grad();
    (layer(noise({6, 4}, 261)).sum() / 6).backward();
    EXPECT_LT(pre.step().nu, 1);
    optimizer.step();
    all.push_back((layer->weight.detach() - before).norm().item<double>());
  }
  return all;
}

TEST(KlClip, HoldsForTheUpdateUnderEverySchedule) {
  std::vector<double> warm_up(60, 0.05), wild;
  warm_up.resize(80, 0.5);
  for (int step = 0; step < 80; ++step)
    wild.push_back(0.5 * (0.1 + 0.9 * random_unit(262, static_cast<std::uint64_t>(step))));
  for (const std::vector<double>& rates : {warm_up, wild}) {
    const std::vector<double> bounded = moves(rates, true), as_they_are = moves(rates, false);
    const double bound = bounded.front() / (1 - 0.9);  // all of one length, summed by the momentum
    EXPECT_LE(*std::max_element(bounded.begin(), bounded.end()), bound * (1 + 1e-9));
    EXPECT_GT(*std::max_element(as_they_are.begin(), as_they_are.end()), 1.5 * bound);
  }
  // A rate that does not rise changes nothing.
  const std::vector<double> falling = {0.5, 0.5, 0.4, 0.3, 0.3, 0.2};
  EXPECT_EQ(moves(falling, true), moves(falling, false));
}

TEST(KlClip, TakesTheRateOfTheOptimizer) {
  torch::nn::Linear layer = weighted(4, 3, 260);
  torch::optim::SGD optimizer(layer->parameters(), 0.25);
  KfacOptions options = clipped({});
  options.optimizer = &optimizer;
  KFAC pre(*layer, options);
  layer(noise({6, 4}, 261)).square().sum().div(6).backward();
  const KfacStep done = pre.step();
  EXPECT_NEAR(done.nu, std::sqrt(1e-3 / (0.0625 * done.q)), 1e-12);
}

TEST(Finite, NoticesOneBadElementAnywhere) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble})
    for (const std::int64_t size : {0, 1, 31, 64, 131}) {
      const at::Tensor values = torch::ones({size}, type) * 1e30;
      EXPECT_TRUE(all_finite(values));
      for (std::int64_t i = 0; i < size; ++i)
        for (const double bad : {kNaN, kInfinity}) {
          const at::Tensor broken = values.clone();
          broken[i] = bad;
          EXPECT_FALSE(all_finite(broken)) << i << " of " << size;
        }
    }
}

TEST(Options, ThatAreMissingAreNamed) {
  torch::nn::Linear layer(2, 2);
  const auto complaint = [&](const KfacOptions& options) {
    return thrown_by([&] { KFAC(*layer, options); });
  };
  EXPECT_THAT(complaint({.kl_clip = 0}), HasSubstr("loss_average"));
  EXPECT_THAT(complaint({.loss_average = LossAverage{}}), HasSubstr("learning_rate"));
  EXPECT_THAT(complaint({.loss_average = LossAverage{}, .kl_clip = 0}), IsEmpty());
}

// 15. Failures.
TEST(Failures, ABatchThatIsNotFiniteIsDropped) {
  Trained trained(clipped());
  trained.step();
  const at::Tensor before = trained.pre.save().layers[0].g.average;
  const KfacStep bad = trained.step(kInfinity);
  EXPECT_TRUE(bad.skipped);
  ASSERT_THAT(bad.failures, SizeIs(1));  // G; the inputs are fine
  EXPECT_THAT(bad.failures[0], HasSubstr("factor G (3 x 3)"));
  EXPECT_TRUE(torch::equal(trained.pre.save().layers[0].g.average, before));
  EXPECT_THAT(trained.step().failures, IsEmpty());
}

TEST(Failures, InARowEndTheTraining) {
  KfacOptions options = clipped();
  options.max_failures = 3;
  Trained trained(options);
  trained.step();
  trained.step(kNaN);
  trained.step(kNaN);
  EXPECT_THAT(thrown_by<Error>([&] { trained.step(kNaN); }),
              testing::AllOf(HasSubstr("factor G (3 x 3)"), HasSubstr("3 times in a row")));
}

TEST(Failures, KeepTheOldInverse) {
  Layer layer(InverseMethod::cholesky);
  solved_by(*layer.block);
  const at::Tensor kept = layer.block->packed_inverse(FactorSide::g);
  const auto with = [](double last) {
    return torch::tensor({1., 0., 0., 1., 0., last}, at::kDouble);
  };
  for (const double bad : {kNaN, kInfinity})
    EXPECT_TRUE(update(*layer.block, FactorSide::g, with(bad)));
  EXPECT_FALSE(update(*layer.block, FactorSide::g, with(-1e6)));  // far from positive definite
  EXPECT_FALSE(inverts(*layer.block, FactorSide::g, kDamping));
  EXPECT_TRUE(torch::equal(layer.block->packed_inverse(FactorSide::g), kept));
}

TEST(Failures, ALayerWithoutAnInverseKeepsItsGradientAndIsNamed) {
  KfacOptions options = clipped();
  options.damping = 0;  // one sample: both factors are singular at every damping
  Trained trained(options);
  trained.layer->zero_grad();
  trained.layer(torch::tensor({{1., 0., 0., 0.}}, at::kDouble)).sum().backward();
  const at::Tensor before = trained.layer->weight.grad().clone();
  const KfacStep done = trained.pre.step();
  EXPECT_THAT(done.plain, SizeIs(1));
  EXPECT_THAT(done.failures, SizeIs(2));
  EXPECT_TRUE(torch::equal(trained.layer->weight.grad(), before));
}

// ---- what a block decides if nobody looks at its values

std::unique_ptr<CurvatureBlock> linear_block(InverseMethod method = InverseMethod::cholesky) {
  return make_block({.name = "layer", .weight = torch::zeros({2, 2}, torch::kDouble)},
                    {.method = method});
}

at::Tensor diagonal(double first, double second) {
  return pack_triangles(torch::tensor({first, 0.0, 0.0, second}, torch::kDouble).view({1, 2, 2}));
}

TEST(EnqueuedBlock, TakesAFactorThatIsUsedAndFinite) {
  const CpuAsDevice as_device;
  const auto block = linear_block();
  const auto average = [&] { return block->average(FactorSide::a); };
  EXPECT_FALSE(update(*block, FactorSide::a, diagonal(7, 7), /*used=*/false));
  EXPECT_TRUE(update(*block, FactorSide::a, diagonal(1, kNaN)));
  EXPECT_TRUE(average().eq(0).all().item<bool>());
  EXPECT_FALSE(block->save(FactorSide::a).average.defined());
  EXPECT_FALSE(update(*block, FactorSide::a, diagonal(2, 4)));  // the first that counts
  EXPECT_TRUE(average().equal(diagonal(2, 4)));
  EXPECT_FALSE(update(*block, FactorSide::a, diagonal(4, 8)));
  EXPECT_TRUE(average().equal(diagonal(3, 6)));
  EXPECT_EQ(block->save(FactorSide::a).updates, 2);
}

/// diag(1, -0.5) + gamma I is positive definite from gamma = 0.5 on: gamma is the damping's root,
/// 0.1, then ten times as much.
TEST(EnqueuedBlock, TriesAgainWithMoreDampingAndKeepsTheOldInverseMeanwhile) {
  const auto block = linear_block();
  const auto inverse = [&] { return inverts(*block, FactorSide::a, 0.01); };
  EXPECT_FALSE(inverse());  // of nothing
  for (const FactorSide side : {FactorSide::a, FactorSide::g})
    update(*block, side, diagonal(1, -0.5));
  const CurvatureBlock::Inverted first = invert(*block, FactorSide::a, 0.01);
  EXPECT_TRUE(first.failed.item<bool>());
  EXPECT_FALSE(first.succeeded.item<bool>());
  EXPECT_FALSE(block->save(FactorSide::a).has_inverse);
  EXPECT_TRUE(inverse());
  EXPECT_TRUE(block->save(FactorSide::a).has_inverse);
  const at::Tensor found = block->packed_inverse(FactorSide::a);
  EXPECT_TRUE(found.allclose(diagonal(0.5, 2)));
  EXPECT_FALSE(inverse());  // a tenth again
  EXPECT_TRUE(block->packed_inverse(FactorSide::a).equal(found));
  EXPECT_FALSE(block->save(FactorSide::g).has_inverse);  // G has none
}

/// Of each what it finds alone; one that fails holds no other up.
TEST(EnqueuedBlock, InvertsSeveralInOneCall) {
  const at::Tensor damping = torch::tensor(0.01, torch::kDouble);
  const auto blocks = [] {
    std::vector<std::unique_ptr<CurvatureBlock>> made;
    for (int i = 0; i < 3; ++i) {
      made.push_back(linear_block());
      for (const FactorSide side : {FactorSide::a, FactorSide::g})
        update(*made.back(), side, i == 1 ? diagonal(1, -0.5) : diagonal(i + 1, i + 3));
    }
    made.push_back(linear_block());  // without an average
    return made;
  };
  const auto together = blocks(), alone = blocks();
  const CpuAsDevice as_device;
  std::vector<CurvatureBlock::Factor> factors;
  for (const auto& block : together) factors.push_back({block.get(), FactorSide::a});
  const CurvatureBlock::Inverted found = CurvatureBlock::invert(factors, damping);
  ASSERT_EQ(found.succeeded.numel(), 4);
  for (std::size_t i = 0; i < 4; ++i) {
    const auto n = static_cast<std::int64_t>(i);
    const CurvatureBlock::Inverted one = invert(*alone[i], FactorSide::a, 0.01);
    EXPECT_EQ(found.succeeded[n].item<bool>(), i == 0 || i == 2) << i;
    EXPECT_EQ(found.succeeded[n].item<bool>(), one.succeeded.item<bool>()) << i;
    EXPECT_EQ(found.failed[n].item<bool>(), one.failed.item<bool>()) << i;
    EXPECT_TRUE(
        together[i]->packed_inverse(FactorSide::a).equal(alone[i]->packed_inverse(FactorSide::a)))
        << i;
  }
  // The next try of the one that failed has more damping, those of the others what they had.
  const CurvatureBlock::Inverted again = CurvatureBlock::invert(factors, damping);
  EXPECT_TRUE(again.succeeded.narrow(0, 0, 3).all().item<bool>());
}

/// LibTorch throws then, though nobody has asked for the status.
std::tuple<at::Tensor, at::Tensor> does_not_converge(const at::Tensor&, c10::string_view, bool) {
  TORCH_CHECK_LINALG(false, "the algorithm failed to converge");
}

TEST(EnqueuedBlock, KeepsTheOldEigenvectorsIfTheSolverFails) {
  const auto block = linear_block(InverseMethod::eigen);
  const auto inverse = [&] { return invert(*block, FactorSide::a, 0.01); };
  for (const FactorSide side : {FactorSide::a, FactorSide::g}) update(*block, side, diagonal(2, 4));
  EXPECT_TRUE(inverse().succeeded.item<bool>());
  const at::Tensor found = block->packed_inverse(FactorSide::a);
  update(*block, FactorSide::a, diagonal(4, 8));
  {
    torch::Library failing(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    failing.impl("_linalg_eigh", does_not_converge);
    const CurvatureBlock::Inverted tried = inverse();
    EXPECT_TRUE(tried.failed.item<bool>());
    EXPECT_FALSE(tried.succeeded.item<bool>());
    EXPECT_TRUE(block->packed_inverse(FactorSide::a).equal(found));
  }
  EXPECT_TRUE(inverse().succeeded.item<bool>());
  EXPECT_FALSE(block->packed_inverse(FactorSide::a).equal(found));
}

TEST(EnqueuedBlock, HasNoEigenvectorsOfWhatIsNotFinite) {
  const at::Tensor broken = torch::full({1, 2, 2}, kNaN);
  EXPECT_FALSE(symmetric_eigen(broken.to(torch::kDouble)).succeeded.item<bool>());
  const Solved found = symmetric_eigen(torch::eye(2, torch::kDouble).unsqueeze(0) * 3);
  EXPECT_TRUE(found.succeeded.item<bool>());
  EXPECT_TRUE(found.values.eq(3).all().item<bool>());
}

}  // namespace
}  // namespace linerate::torch_adapter
