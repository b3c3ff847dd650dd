// What is particular to PowerSGD and ACP-SGD, and the kernels under them.
#include <gmock/gmock.h>

#include <cmath>

#include "inputs.hpp"
#include "linerate/compress/factors.hpp"
#include "linerate/compress/kernel/kernels.hpp"
#include "linerate/compress/registry.hpp"
#include "oracles.hpp"
#include "rank_group.hpp"

namespace linerate::compress {
namespace {

using oracle::Columns;
using oracle::Matrix;

std::vector<float> flat(const Columns& columns) {
  std::vector<float> all;
  for (const auto& column : columns) all.insert(all.end(), column.begin(), column.end());
  return all;
}

/// A matrix of exactly `rank`, its directions of sizes 1, 1/2, 1/4, ...
std::vector<float> of_rank(std::size_t rank, std::size_t rows, std::size_t columns,
                           std::uint64_t key) {
  Columns p, q;
  for (std::size_t j = 0; j < rank; ++j) {
    const auto left = noise(rows, random_key(key, 2 * j), static_cast<float>(std::exp2(-1.0 * j)));
    const auto right = noise(columns, random_key(key, 2 * j + 1));
    p.emplace_back(left.begin(), left.end());
    q.emplace_back(right.begin(), right.end());
  }
  const Matrix m = oracle::product(p, q);
  return {m.at.begin(), m.at.end()};
}

/// Sizes around vectors, blocks (2048 columns) and strips (256 rows), ranks around the four at
/// once.
TEST(LowRankKernels, EqualASecondImplementation) {
  const std::vector<std::pair<std::size_t, std::size_t>> sizes = {
      {1, 1}, {5, 17}, {33, 64}, {3, 5003}, {517, 40}, {258, 1031}};
  for (const auto& [rows, columns] : sizes)
    for (const std::size_t rank : {1u, 2u, 3u, 4u, 5u, 11u}) {
      const std::vector<float> m = noise(rows * columns, 1), right = noise(rank * columns, 2),
                               left = noise(rank * rows, 3);
      Columns q(rank), p(rank);
      for (std::size_t j = 0; j < rank; ++j) {
        q[j].assign(right.begin() + static_cast<long>(j * columns),
                    right.begin() + static_cast<long>((j + 1) * columns));
        p[j].assign(left.begin() + static_cast<long>(j * rows),
                    left.begin() + static_cast<long>((j + 1) * rows));
      }
      const Matrix twin(rows, columns, m);
      std::vector<float> made_p(rank * rows), made_q(rank * columns);
      RightProduct(right, columns)({m.data(), rows, columns}, made_p.data(), rows);
      left_product({m.data(), rows, columns}, left, made_q);
      // At most 2048 / 16 + 4 and 256 / 4 + 3 additions in f32 each, whose errors add up in the
      // worst case; of terms whose sum is about 1 / sqrt(terms) of their sizes.
      const auto expect_near = [&](const std::vector<float>& made, const Columns& expected,
                                   double terms) {
        const std::vector<float> exact = flat(expected);
        for (std::size_t i = 0; i < made.size(); ++i)
          ASSERT_NEAR(made[i], exact[i], 132 * 0x1p-24 * 16 * std::sqrt(terms) * 4)
              << rows << " x " << columns << ", rank " << rank << ", " << i;
      };
      expect_near(made_p, oracle::times(twin, q), static_cast<double>(columns));
      expect_near(made_q, oracle::transposed_times(twin, p), static_cast<double>(rows));

      std::vector<float> written(rows * columns, 42), left_over = m;
      write_product(left, right, rows, columns, written.data());
      subtract_product(left.data(), rows, right, rows, columns, left_over.data());
      const Matrix product = oracle::product(p, q);
      for (std::size_t i = 0; i < written.size(); ++i) {
        ASSERT_NEAR(written[i], product.at[i], 2 * static_cast<double>(rank) * 0x1p-24 * 100);
        ASSERT_EQ(left_over[i], m[i] - written[i]) << "the same product, to the bit";
      }
    }
}

TEST(LowRankKernels, WhatIsBeyondTheRangeSaturates) {
  const std::vector<float> p = {2e38f, 2e38f}, q = {1.5f};
  std::vector<float> m = {-3e38f, 3e38f};
  subtract_product(p.data(), 2, q, 2, 1, m.data());
  EXPECT_EQ(m[0], -std::numeric_limits<float>::max());
  EXPECT_LT(m[1], 1e37f);
}

TEST(Orthonormalise, IsOrthonormalAndSpansTheSame) {
  for (const std::size_t rank : {1u, 2u, 5u, 16u}) {
    const std::size_t n = 203;
    std::vector<float> factor = noise(rank * n, 9);
    // Nearly parallel vectors: one pass of Gram-Schmidt alone would leave them far from orthogonal.
    for (std::size_t j = 1; j < rank; ++j)
      for (std::size_t i = 0; i < n; ++i) factor[j * n + i] = factor[i] + 1e-4f * factor[j * n + i];
    EXPECT_TRUE(orthonormalise(factor, rank).empty());
    for (std::size_t j = 0; j < rank; ++j)
      for (std::size_t k = 0; k <= j; ++k) {
        double inner = 0;
        for (std::size_t i = 0; i < n; ++i)
          inner += static_cast<double>(factor[j * n + i]) * factor[k * n + i];
        EXPECT_NEAR(inner, j == k, 4 * 0x1p-24) << j << " " << k;  // f32 elements of unit vectors
      }
  }
}

TEST(Orthonormalise, DependentVectorsBecomeZeroOrAreDrawnAnew) {
  const std::size_t n = 100;
  std::vector<float> factor(3 * n);
  for (std::size_t i = 0; i < n; ++i) {
    factor[i] = normal(1, i);
    factor[n + i] = -3 * factor[i];
    factor[2 * n + i] = normal(2, i);
  }
  std::vector<float> fresh = factor, nothing(3 * n), broken = factor;
  EXPECT_THAT(orthonormalise(factor, 3), testing::ElementsAre(1));
  EXPECT_EQ(norm_of({factor.begin() + n, factor.begin() + 2 * n}), 0);
  orthonormalise_fresh(fresh, 3, 5);
  EXPECT_NEAR(norm_of({fresh.begin() + n, fresh.begin() + 2 * n}), 1, 1e-6);
  EXPECT_THAT(orthonormalise(nothing, 3), testing::ElementsAre(0, 1, 2));
  broken[n] = std::numeric_limits<float>::quiet_NaN();
  broken[2 * n] = std::numeric_limits<float>::infinity();
  orthonormalise(broken, 3);
  EXPECT_TRUE(all_finite(broken));
}

/// Both methods: a matrix of rank 1 to 4 is sent whole, at once by PowerSGD, in two steps (one of
/// each factor) by ACP-SGD, whatever its size.
TEST(LowRank, MatricesOfTheRankAreRecovered) {
  const std::size_t rows = 80, columns = 120;
  const Shape shape{rows * columns, rows};
  for (const char* strategy : {"powersgd(rank=4)", "acpsgd(rank=4)"})
    for (const std::size_t rank : {1u, 2u, 4u})
      for (const float scale : {1.0f, 1e-20f, 1e25f}) {
        std::vector<float> m = of_rank(rank, rows, columns, rank);
        for (float& x : m) x *= scale;
        RankGroup group(*made(strategy), shape, 2, true);
        std::vector<float> left(m.size());
        const int steps = std::string(strategy).starts_with("powersgd") ? 1 : 2;
        for (int step = 0; step < steps; ++step) {
          const std::vector<float> mean = group.step({m, m}, static_cast<std::uint64_t>(step));
          for (std::size_t i = 0; i < m.size(); ++i) left[i] += m[i] - mean[i];
        }
        // Some tens of roundings of f32, multiplied by the condition of P: directions down to 1/8
        // of the largest.
        EXPECT_LE(norm_of(left), 8 * 50 * 0x1p-24 * steps * norm_of(m))
            << strategy << ", rank " << rank << ", times " << scale;
        EXPECT_LE(norm_of(group.residual(0)), 8 * 50 * 0x1p-24 * 2 * norm_of(m));
      }
}

/// A layer whose gradient is zero when compression begins: PyTorch's hook gives NaN or zero for
/// ever.
TEST(LowRank, AGradientThatIsZeroAtFirstIsRecovered) {
  const std::size_t rows = 40, columns = 90;
  const Shape shape{rows * columns, rows};
  const std::vector<float> zero(rows * columns), m = of_rank(1, rows, columns, 3);
  for (const char* strategy :
       {"powersgd(rank=1)", "powersgd(rank=3)", "acpsgd(rank=1)", "acpsgd(rank=3)"}) {
    RankGroup group(*made(strategy), shape, 2, true);
    for (std::uint64_t step = 0; step < 3; ++step)
      EXPECT_EQ(norm_of(group.step({zero, zero}, step)), 0) << strategy;
    group.step({m, m}, 3);
    const std::vector<float> later = group.step({m, zero}, 4);
    EXPECT_GT(norm_of(later), 0.1 * norm_of(m)) << strategy;
    EXPECT_LE(norm_of(group.residual(0)), 1e-4 * norm_of(m)) << strategy;
  }
}

/// A direction that vanished while the gradient had rank 1 is found again when it has rank 2.
TEST(PowerSgd, VanishedDirectionsComeBack) {
  const std::size_t rows = 40, columns = 90;
  const std::vector<float> one = of_rank(1, rows, columns, 3), two = of_rank(2, rows, columns, 4);
  RankGroup group(*made("powersgd(rank=2)"), {rows * columns, rows}, 1, true);
  for (std::uint64_t step = 0; step < 4; ++step) group.step({one}, step);
  group.step({two}, 4);
  EXPECT_LE(norm_of(group.residual(0)), 1e-4 * norm_of(two));
}

/// A codec that phases lead sends, bit for bit, what one sends that counts its steps itself.
TEST(AcpSgd, PhasesAlternateAsStepsDo) {
  const Shape shape{60 * 80, 60};
  const auto compressor = made("acpsgd(rank=2,warmup=4)");
  RankGroup led(*compressor, shape, 2, true), counting(*compressor, shape, 2, true);
  for (std::uint64_t step = 0; step < 5; ++step) {
    const auto g = noise_of_ranks(4800, 2, step);
    led.set_phase(compressor->phases().of_step(static_cast<std::int64_t>(4 + step)));
    EXPECT_EQ(led.step(g, step), counting.step(g, step)) << step;
    EXPECT_EQ(led.sent(), counting.sent());
  }
}

}  // namespace
}  // namespace linerate::compress
