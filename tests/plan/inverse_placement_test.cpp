// Which rank inverts what: brute force, Graham's bound, and the published tables.
#include "linerate/plan/kfac/placement.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "linerate/core/random.hpp"
#include "plan/kfac_dimensions.hpp"
#include "plan/random.hpp"

namespace linerate::plan {
namespace {

using ExpectedCost = std::function<double(std::int64_t)>;

PlacementProblem of(const support::Dimensions& dims, const ExpectedCost& inverse_s,
                    const ExpectedCost& broadcast_s) {
  PlacementProblem x;
  x.dims = dims, x.ranks = 64;
  for (const std::int64_t d : dims) {
    x.inverse_s.push_back(inverse_s(d));
    x.broadcast_s.push_back(broadcast_s(d));
  }
  return x;
}

ExpectedCost cubic(double fixed_s, double per_cube_s) {
  return [=](std::int64_t d) { return fixed_s + per_cube_s * std::pow(d, 3); };
}
ExpectedCost by_triangle(double alpha_s, double beta_s) {
  return [=](std::int64_t d) {
    return alpha_s + beta_s * static_cast<double>(doc::triangle_elements(d));
  };
}

std::size_t communicated(const Placement& p) { return p.sent.size(); }

/// Of the rank that does most of what has owners.
template <typename Load>
Load largest_load(const std::vector<std::int32_t>& owner, const std::vector<Load>& loads,
                  int ranks) {
  std::vector<Load> sum(to_index(ranks));
  for (std::size_t i = 0; i < owner.size(); ++i)
    if (owner[i] != kEverywhere) sum[to_index(owner[i])] += loads[i];
  return *std::max_element(sum.begin(), sum.end());
}
double largest_load_s(const PlacementProblem& x, const std::vector<std::int32_t>& owner) {
  return largest_load(owner, x.inverse_s, x.ranks);
}

/// When all factors are there, and each inverse is sent by itself while nobody computes.
double serial_s(const PlacementProblem& x, const Placement& placement) {
  double seconds = largest_load_s(x, placement.owner);
  for (std::size_t i = 0; i < placement.owner.size(); ++i)
    if (placement.owner[i] == kEverywhere) seconds += x.inverse_s[i];
  for (const std::int32_t i : placement.sent) seconds += x.broadcast_s[to_index(i)];
  return seconds;
}

struct PlacementRow {
  ExpectedCost inverse_s, broadcast_s;
  double everywhere, in_turn, longest_first, theta_1400, theta_1024;
  double searched;
  std::size_t cut;
};

// ResNet-50 on 64 ranks, milliseconds; C1 to C4.
TEST(InversePlacement, MeetsTheReferenceTable) {
  const ExpectedCost c1 = cubic(8.586e-4, 4.008e-13);
  const ExpectedCost exponential = [](std::int64_t d) {
    return 3.64e-3 * std::exp(4.77e-4 * static_cast<double>(d));
  };
  const PlacementRow rows[] = {
      {c1, by_triangle(2.55e-4, 7.36e-10), 274.2, 125.1, 124.3, 179.4, 167.5, 74.5, 68},
      {c1, by_triangle(1.59e-2, 7.85e-10), 274.2, 1818.6, 1817.7, 432.8, 703.0, 168.4, 8},
      {exponential, by_triangle(2.55e-4, 7.36e-10), 650.7, 121.1, 117.0, 502.0, 405.6, 85.0, 95},
      {c1, by_triangle(1.1e-3, 2.0e-10), 274.2, 175.1, 174.3, 159.5, 157.3, 82.1, 60},
  };
  const support::Dimensions dims = support::all_factors(support::dimensions_of("resnet50"));
  for (const PlacementRow& row : rows) {
    const PlacementProblem problem = of(dims, row.inverse_s, row.broadcast_s);
    const auto serial_ms = [&](const Placement& p) { return 1e3 * serial_s(problem, p); };
    constexpr double kDigits = 0.0501;
    EXPECT_NEAR(serial_ms(place_everywhere(problem)), row.everywhere, kDigits);
    EXPECT_NEAR(serial_ms(place_in_turn(problem)), row.in_turn, kDigits);
    EXPECT_NEAR(serial_ms(place_longest_first(problem)), row.longest_first, kDigits);
    EXPECT_NEAR(serial_ms(place_by_threshold(problem, 1400)), row.theta_1400, kDigits);
    EXPECT_NEAR(serial_ms(place_by_threshold(problem, 1024)), row.theta_1024, kDigits);
    const Placement best = place_by_search(problem);
    EXPECT_NEAR(1e3 * overlapped_s(problem, best), row.searched, kDigits);
    EXPECT_EQ(communicated(best), row.cut);
  }
}

// The authors' thresholds.
TEST(InversePlacement, ThresholdsCutWhereTheAuthorsDo) {
  const auto cut = [](const support::FactorDimensions& dims, std::int64_t theta) {
    return place_by_threshold(of(support::all_factors(dims), cubic(0, 1), by_triangle(0, 1)),
                              theta);
  };
  const auto resnet = support::dimensions_of("resnet50"),
             densenet = support::dimensions_of("densenet201");
  EXPECT_EQ(resnet.a.size() + resnet.g.size(), 108u);
  EXPECT_EQ(densenet.a.size() + densenet.g.size(), 402u);
  EXPECT_EQ(communicated(cut(resnet, 1400)), 16u);
  EXPECT_EQ(communicated(cut(resnet, 1024)), 34u);
  EXPECT_EQ(communicated(cut(densenet, 1400)), 30u);
  EXPECT_EQ(communicated(cut(densenet, 1024)), 152u);
  for (const std::int64_t theta : {1400, 1024}) {
    const PlacementProblem x = of(support::all_factors(resnet), cubic(0, 1), by_triangle(0, 1));
    const Placement placement = place_by_threshold(x, theta);
    EXPECT_EQ(largest_load(placement.owner, x.dims, x.ranks), 4608);
  }
}

PlacementProblem random_placement(std::uint64_t seed, std::size_t most, int ranks) {
  support::Random random(seed);
  support::Dimensions dims;
  const auto count = 1 + static_cast<std::size_t>(random.unit() * static_cast<double>(most));
  for (std::size_t i = 0; i < count; ++i)
    dims.push_back(1 + static_cast<std::int64_t>(2000 * random.unit() * random.unit()));
  PlacementProblem x = of(dims, cubic(1e-3 * random.unit(), 1e-11 * random.unit()),
                          by_triangle(1e-3 * random.unit(), 1e-9));
  x.ranks = ranks;
  if (seed % 3 == 0) x.communication_slowdown = 1 + random.unit();
  return x;
}

/// The least largest load over all assignments of everything to ranks.
double least_load_s(const PlacementProblem& x) {
  double least_s = std::numeric_limits<double>::infinity();
  std::vector<std::int32_t> owner(x.dims.size(), 0);
  for (;;) {
    least_s = std::min(least_s, largest_load_s(x, owner));
    std::size_t i = 0;
    for (; i < owner.size() && ++owner[i] == x.ranks; ++i) owner[i] = 0;
    if (i == owner.size()) return least_s;
  }
}

// Graham 1969: LPT is at most (4/3 - 1/(3P)) of the best.
TEST(InversePlacement, LongestFirstIsWithinGrahamsBound) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const int ranks = 2 + static_cast<int>(seed % 3);
    const PlacementProblem x = random_placement(seed, ranks == 4 ? 8 : 10, ranks);
    const double best_s = least_load_s(x);
    const double load_s = largest_load_s(x, place_longest_first(x).owner);
    EXPECT_GE(load_s, best_s * (1 - 1e-12)) << "seed " << seed;
    EXPECT_LE(load_s, (4.0 / 3 - 1.0 / (3 * ranks)) * best_s * (1 + 1e-12)) << "seed " << seed;
    const std::vector<std::int32_t> layers = place_layers(x.inverse_s, ranks, 1);
    EXPECT_DOUBLE_EQ(largest_load_s(x, layers), load_s);
  }
}

/// The k longest have owners: what the search looks for, from its definition.
double cut_s(const PlacementProblem& x, std::size_t k) {
  std::vector<std::int32_t> order(x.dims.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return x.inverse_s[to_index(a)] > x.inverse_s[to_index(b)];
  });
  std::vector<std::int32_t> owner(x.dims.size(), kEverywhere);
  std::vector<double> load(to_index(x.ranks));
  for (std::size_t i = 0; i < k; ++i) {
    const auto rank = std::min_element(load.begin(), load.end());
    *rank += x.inverse_s[to_index(order[i])];
    owner[to_index(order[i])] = static_cast<std::int32_t>(rank - load.begin());
  }
  return overlapped_s(x, place_on(x, owner));
}

TEST(InversePlacement, SearchTakesTheBestCut) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const PlacementProblem x = random_placement(seed, 30, 1 + static_cast<int>(seed % 9));
    double least_s = std::numeric_limits<double>::infinity();
    for (std::size_t k = 0; k <= x.dims.size(); ++k) least_s = std::min(least_s, cut_s(x, k));
    const Placement found = place_by_search(x);
    EXPECT_NEAR(overlapped_s(x, found), least_s, 1e-12) << "seed " << seed;
    EXPECT_LE(overlapped_s(x, found), overlapped_s(x, place_everywhere(x)) + 1e-15);
  }
}

TEST(InversePlacement, EverythingIsDoneOnceAndInOneOrder) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const PlacementProblem problem = random_placement(seed, 40, 1 + static_cast<int>(seed % 7));
    for (const Placement& p :
         {place_by_search(problem), place_by_threshold(problem, 700), place_longest_first(problem),
          place_in_turn(problem), place_everywhere(problem)}) {
      std::vector<std::int32_t> all(problem.dims.size()), owned;
      std::iota(all.begin(), all.end(), 0);
      ASSERT_THAT(p.order, ::testing::UnorderedElementsAreArray(all));
      std::ranges::copy_if(all, std::back_inserter(owned),
                           [&](std::int32_t i) { return p.owner[to_index(i)] != kEverywhere; });
      ASSERT_THAT(p.sent, ::testing::UnorderedElementsAreArray(owned));
      ASSERT_THAT(p.owner, ::testing::Each(::testing::Lt(problem.ranks)));
    }
  }
}

// Broadcasts travel under what every rank does for itself; the authors go through the layers.
TEST(InversePlacement, WhatHasAnOwnerComesFirst) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const PlacementProblem x = random_placement(seed, 40, 4);
    const Placement found = place_by_search(x);
    for (std::size_t i = 0; i < found.order.size(); ++i) {
      const std::int32_t owner = found.owner[to_index(found.order[i])];
      ASSERT_EQ(owner != kEverywhere, i < found.sent.size());
    }
    const Placement authors = place_by_threshold(x, 700);
    ASSERT_TRUE(std::is_sorted(authors.order.begin(), authors.order.end()));
  }
}

// Two ranks, inverses of 4, 2, 2 s: rank 0 takes the first, rank 1 the others. They are done at 4,
// 2 and 4 s; sent for 1 s each they arrive at 3, 5 and 6 s.
TEST(InversePlacement, BroadcastsFollowTheirInverses) {
  const PlacementProblem x{{4, 2, 2}, {4, 2, 2}, {1, 1, 1}, 2};
  const Placement p = place_longest_first(x);
  EXPECT_THAT(p.owner, ::testing::ElementsAre(0, 1, 1));
  EXPECT_THAT(p.sent, ::testing::ElementsAre(1, 0, 2));
  EXPECT_DOUBLE_EQ(overlapped_s(x, p), 6);
  EXPECT_DOUBLE_EQ(serial_s(x, p), 4 + 3);
}

// Two ranks are free at 1 s; the channel brings the first factor at 2 s, the others at 6 s.
// Inverses take 2, 3 and 1 s and everybody makes them: the first until 4 s, the others from 6 s to
// 10 s. Were they all to wait for 6 s, 12 s.
TEST(InversePlacement, BeginsWithWhatHasArrived) {
  PlacementProblem problem{{2, 3, 1}, {2, 3, 1}, {9, 9, 9}, 2};
  problem.transfers = {{0, 2}, {0, 4}}, problem.after = {0, 1, 1}, problem.start_s = 1;
  const Placement p = place_everywhere(problem);
  EXPECT_FALSE(p.behind_arrivals);
  EXPECT_THAT(p.order, ::testing::ElementsAre(0, 1, 2));
  EXPECT_DOUBLE_EQ(overlapped_s(problem, p), 10);
  const Placement authors = place_by_threshold(problem, 1400);
  EXPECT_TRUE(authors.behind_arrivals);
  EXPECT_DOUBLE_EQ(overlapped_s(problem, authors), 12);
  // Where computing makes transfers three times as slow and the first takes 1/3 s from 1 s on, its
  // inverse is made from 4/3 s to 10/3 s; meanwhile the second does 2/3 s of its 4 s, the rest at
  // full speed until 20/3 s.
  problem.communication_slowdown = 3;
  problem.transfers = {{1, 1. / 3}, {0, 4}};
  EXPECT_NEAR(overlapped_s(problem, place_everywhere(problem)), 20. / 3 + 4, 1e-12);
}

// The last gradient comes behind the factors: nobody's inverse waits for it, but its layer and the
// end do. Two ranks are free at 0 s; the factors are there at 1 s, the gradient at 9 s.
TEST(InversePlacement, DirectionsWaitForGradientsAndInversesDoNot) {
  PlacementProblem problem{{2, 3}, {2, 3}, {9, 9}, 2};
  problem.transfers = {{0, 1}, {0, 8}}, problem.after = {0, 0}, problem.gradient_after = {1, 0};
  problem.layer = {0, 1}, problem.layer_s = {2, 0.5};
  for (const auto place : {place_everywhere, +[](const PlacementProblem& p) {
                             return place_by_threshold(p, kAuthorsTheta);
                           }}) {
    const Placement placed = place(problem);
    // Inverted from 1 s to 6 s, layer 1 until 6.5 s, layer 0 behind its gradient.
    EXPECT_DOUBLE_EQ(overlapped_s(problem, placed), 9 + 2);
  }
  // A gradient that no layer waits for still ends the step.
  problem.gradient_after[0] = 0;
  EXPECT_DOUBLE_EQ(overlapped_s(problem, place_everywhere(problem)), 9);
}

TEST(InversePlacement, IsNeverLaterThanBehindAllArrivals) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    PlacementProblem problem = random_placement(seed, 25, 1 + static_cast<int>(seed % 5));
    for (std::uint64_t t = 0; t < 4; ++t)
      problem.transfers.push_back(
          {1e-2 * random_unit(seed, 1000 + t), 1e-2 * random_unit(seed, 2000 + t)});
    for (std::uint64_t i = 0; i < problem.dims.size(); ++i)
      problem.after.push_back(static_cast<std::int32_t>(random_unit(seed, 3000 + i) * 5) - 1);
    problem.start_s = 5e-3;
    for (const auto place :
         {place_by_search, place_longest_first, place_in_turn, place_everywhere}) {
      PlacementProblem waiting = problem;
      std::ranges::fill(waiting.after, 3);
      EXPECT_LE(overlapped_s(problem, place(problem)),
                overlapped_s(waiting, place(waiting)) * (1 + 1e-12))
          << "seed " << seed;
    }
    EXPECT_LE(overlapped_s(problem, place_by_search(problem)),
              overlapped_s(problem, place_everywhere(problem)));
  }
}

// Six layers on a grid of two rows and two columns: columns are balanced, then their ranks.
TEST(InversePlacement, LayersFillAGridByColumns) {
  const std::vector<double> seconds = {6, 5, 4, 3, 2, 1};
  const std::vector<std::int32_t> owner = place_layers(seconds, 4, 2);
  std::vector<double> column(2), rank(4);
  for (std::size_t i = 0; i < owner.size(); ++i) {
    column[to_index(owner[i] % 2)] += seconds[i];
    rank[to_index(owner[i])] += seconds[i];
  }
  // 6 | 5, 5 + 4, 6 + 3, 6 + 3 + 2, 5 + 4 + 1; within columns 6 | 3 + 2 and 5 | 4 + 1.
  EXPECT_THAT(column, ::testing::ElementsAre(11, 10));
  EXPECT_THAT(rank, ::testing::ElementsAre(6, 5, 5, 5));
}

}  // namespace
}  // namespace linerate::plan
