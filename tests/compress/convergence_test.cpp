// Training ends where dense training ends: gradient descent on a strongly convex quadratic, with
// ranks whose own minima lie elsewhere.
#include <gmock/gmock.h>

#include "expectation.hpp"
#include "inputs.hpp"
#include "linerate/compress/registry.hpp"
#include "rank_group.hpp"

namespace linerate::compress {
namespace {

constexpr Shape kShape{1024, 32};
constexpr std::size_t kWeights = 1024;

/// f_r(w) = 1/2 sum of a_i (w_i - c_ri)^2, a_i in [1/2, 1], c_r about 1 in size, half of it the
/// rank's own; f is their mean.
class Quadratic {
 public:
  explicit Quadratic(int ranks) {
    const std::vector<float> shared = noise(kWeights, 1);
    for (int r = 0; r < ranks; ++r) {
      centers_.push_back(noise(kWeights, 100 + static_cast<std::uint64_t>(r), 0.5f));
      for (std::size_t i = 0; i < kWeights; ++i) centers_.back()[i] += shared[i];
    }
  }
  std::vector<std::vector<float>> gradients(const std::vector<float>& w) const {
    std::vector<std::vector<float>> all;
    for (const auto& center : centers_) {
      all.emplace_back(kWeights);
      for (std::size_t i = 0; i < kWeights; ++i) all.back()[i] = curvature(i) * (w[i] - center[i]);
    }
    return all;
  }
  /// f(w) - min f, of f(0) - min f.
  double excess(const std::vector<float>& w) const {
    double at = 0, start = 0;
    for (std::size_t i = 0; i < kWeights; ++i) {
      double best = 0;
      for (const auto& center : centers_) best += center[i] / static_cast<double>(centers_.size());
      at += curvature(i) * (w[i] - best) * (w[i] - best);
      start += curvature(i) * best * best;
    }
    return at / start;
  }

 private:
  static float curvature(std::size_t i) { return 0.5f + 0.5f * static_cast<float>(i % 7) / 6; }
  std::vector<std::vector<float>> centers_;
};

/// Descent for 16 / rate steps of size rate / 2: dense, what is left falls by (1 - rate / 4)^2 a
/// step where the curvature is least, to e^-8 of the start at most. The second half takes a fourth
/// of the step: what error feedback still owes moves w by step x residual, and noise of unbiased
/// methods by less still.
///
/// `rate` by method (Expectation::descent): 1 for those that send a share of every element;
/// the density for sparse ones, as an element waits for about 1 / density steps and then moves by
/// all of them at once, beyond which randomk diverges; rank / 32 for factors.
double excess_after_descent(const Compressor& compressor, int ranks, bool keeps, double rate) {
  const Quadratic quadratic(ranks);
  RankGroup group(compressor, kShape, ranks, keeps);
  std::vector<float> w(kWeights);
  const auto steps = static_cast<std::uint64_t>(32 / rate);
  for (std::uint64_t step = 0; step < steps; ++step) {
    group.follow_phases(step);
    const std::vector<float> mean = group.step(quadratic.gradients(w), step);
    const auto size = static_cast<float>(rate / (step < steps / 2 ? 2 : 8));
    for (std::size_t i = 0; i < kWeights; ++i) w[i] -= size * mean[i];
  }
  return quadratic.excess(w);
}

class Convergence : public testing::TestWithParam<Expectation> {};

/// A vote has no zero and no mean: it ends elsewhere where ranks differ.
TEST_P(Convergence, EndsWhereDenseTrainingEnds) {
  const auto compressor = made(GetParam().strategy);
  if (compressor->residual() == Residual::none && !compressor->is_unbiased()) return;
  for (const int ranks : {2, 4})
    EXPECT_LE(
        excess_after_descent(*compressor, ranks, keeps_residual(*compressor), GetParam().descent),
        0.02)
        << ranks << " ranks";
}

/// The suite can fail: top-k that forgets what it does not send.
TEST(ConvergenceSuite, WithoutErrorFeedbackTopKEndsElsewhere) {
  const auto compressor = made("topk(density=0.1)");
  EXPECT_GT(excess_after_descent(*compressor, 4, false, 0.1), 0.02);
}

INSTANTIATE_TEST_SUITE_P(Registry, Convergence, testing::ValuesIn(all_expectations()),
                         name_of_test);

}  // namespace
}  // namespace linerate::compress
