#include "linerate/cost/closed_form.hpp"

#include <gmock/gmock.h>

#include "linerate/core/random.hpp"

namespace linerate::cost {
namespace {

constexpr double kMiB = 1 << 20;

// p = 16, 10 Gbit/s, buckets of 25 MiB, T_comp = 65 ms, gamma = 1.07, epsilon 0.05.
AgarwalInput example(double last_bytes) {
  return {0.065, 3 * 25 * kMiB + last_bytes, 25 * kMiB, 16, {0, 8 / 10e9, 0}, 1.07, 0.05};
}

TEST(Agarwal2021, WorkedExample) {
  EXPECT_NEAR(ring_all_reduce(16, example(0).link)(25 * kMiB), 39.3216e-3, 1e-9);
  EXPECT_NEAR(required_ratio(example(25 * kMiB)).value(), 11.307, 5e-4);
  EXPECT_NEAR(required_ratio(example(kMiB)).value(), 1.637, 5e-4);
}

// Time of the overlapped exchange with every bucket r times smaller, written down on its own.
double at_ratio(const AgarwalInput& in, double r) {
  const Line ring = ring_all_reduce(in.ranks, in.link);
  const double full = std::max(1.0, std::ceil(in.gradient_bytes / in.bucket_bytes)) - 1;
  const double last = in.gradient_bytes - full * in.bucket_bytes;
  return std::max(in.gamma * in.backward_s, full * ring(in.bucket_bytes / r)) + ring(last / r);
}

TEST(Agarwal2021, RequiredRatioIsTheSmallestThatSuffices) {
  int infeasible = 0;
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    std::uint64_t counter = 0;
    const auto unit = [&] { return random_unit(seed, counter++); };
    AgarwalInput in{0.01 + unit(),
                    kMiB * (1 + 500 * unit()),
                    kMiB * (1 + 50 * unit()),
                    2 + static_cast<int>(random_below(seed, counter++, 100)),
                    {seed % 2 ? 1e-4 * unit() : 0, 1e-10 + 1e-8 * unit(), 0},
                    1 + unit() / 5,
                    0.01 + unit() / 5};
    const double allowed = (1 + in.epsilon) * in.gamma * in.backward_s;
    const std::optional<double> r = required_ratio(in);
    if (!r) {
      ++infeasible;
      EXPECT_GT(at_ratio(in, 1e15), allowed * (1 - 1e-9)) << "seed " << seed;
      continue;
    }
    EXPECT_LE(at_ratio(in, *r), allowed * (1 + 1e-9)) << "seed " << seed;
    if (*r > 1) {
      EXPECT_GT(at_ratio(in, *r * (1 - 1e-6)), allowed * (1 - 1e-9)) << "seed " << seed;
    }
  }
  EXPECT_GT(infeasible, 0);
}

TEST(Agarwal2021, BucketsAreThePapersOrThoseThatAreGiven) {
  AgarwalInput in = example(5 * kMiB);
  EXPECT_THAT(buckets_of(in), testing::ElementsAre(25 * kMiB, 25 * kMiB, 25 * kMiB, 5 * kMiB));
  AgarwalInput given = in;
  given.buckets = {kMiB, 54 * kMiB, 24 * kMiB, kMiB};
  const Line ring = ring_all_reduce(in.ranks, in.link);
  EXPECT_DOUBLE_EQ(overlapped_s(given), std::max(1.07 * 0.065, ring(79 * kMiB)) + ring(kMiB));
  EXPECT_LT(required_ratio(given).value(), required_ratio(in).value());
  // Halves on the wire are a ratio of 2 for nothing.
  given.wire_share = 0.5;
  EXPECT_DOUBLE_EQ(overlapped_s(given), std::max(1.07 * 0.065, ring(39.5 * kMiB)) + ring(kMiB / 2));
}

TEST(Agarwal2021, EncodeBudgetIsWhereCompressionBreaksEven) {
  AgarwalInput in = example(25 * kMiB);
  for (const bool gathers : {false, true}) {
    in.gathers = gathers;
    const double budget = encode_budget_s(in, 4);
    EXPECT_NEAR(compressed_s(in, 4, budget), overlapped_s(in), 1e-12);
  }
}

}  // namespace
}  // namespace linerate::cost
