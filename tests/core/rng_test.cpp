#include "linerate/core/random.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace linerate {
namespace {

TEST(Rng, DependsOnKeyAndCounterAlone) {
  EXPECT_EQ(random_bits(1, 2), random_bits(1, 2));
  EXPECT_NE(random_bits(1, 2), random_bits(2, 1));
  EXPECT_NE(random_key(1, 2), random_key(2, 1));
}

TEST(Rng, UnitHasMeanAndVarianceOfTheUniform) {
  constexpr int n = 100'000;
  double sum = 0, squares = 0;
  for (int i = 0; i < n; ++i) {
    const double u = random_unit(7, static_cast<std::uint64_t>(i));
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
    squares += u * u;
  }
  // Standard error of the mean: sqrt(1/12/n) = 9.1e-4; of the second moment: sqrt(4/45/n) = 9.4e-4.
  // Five of them.
  EXPECT_NEAR(sum / n, 1.0 / 2, 5 * std::sqrt(1.0 / 12 / n));
  EXPECT_NEAR(squares / n, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / n));
}

TEST(Rng, BelowStaysBelow) {
  for (std::uint64_t i = 0; i < 1000; ++i) EXPECT_LT(random_below(3, i, 7), 7u);
}

}  // namespace
}  // namespace linerate
