// What travels together of inverses and directions: against every way to cut and order them.
#include "linerate/plan/kfac/factor_fusion.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "linerate/core/random.hpp"

namespace linerate::plan {
namespace {

/// Owns what a problem looks at.
struct BroadcastInstance {
  std::vector<double> done_s;
  std::vector<std::int32_t> root;
  std::vector<std::int64_t> elements;
  double alpha_s = 1, beta_s = 0, free_s = 0, slow_until_s = 0, slowdown = 1;

  BroadcastProblem problem() const {
    return {
        done_s,
        root,
        elements,
        [this](std::int64_t n, std::int64_t) { return alpha_s + beta_s * static_cast<double>(n); },
        free_s,
        {slow_until_s, slowdown}};
  }
};

BroadcastInstance random_broadcasts(std::uint64_t seed, std::size_t most) {
  std::uint64_t drawn = 0;
  const auto unit = [&] { return random_unit(seed, drawn++); };
  BroadcastInstance x;
  const auto count = 1 + static_cast<std::size_t>(unit() * static_cast<double>(most));
  const auto roots = 1 + static_cast<std::int32_t>(seed % 3);
  std::vector<double> load_s(static_cast<std::size_t>(roots));
  for (std::size_t i = 0; i < count; ++i) {
    x.root.push_back(static_cast<std::int32_t>(i) % roots);
    x.elements.push_back(1 + static_cast<std::int64_t>(100 * unit()));
    x.done_s.push_back(load_s[static_cast<std::size_t>(x.root.back())] += 3 * unit());
  }
  x.alpha_s = 2 * unit(), x.beta_s = 0.02 * unit(), x.free_s = 2 * unit();
  if (seed % 4 == 0) x.slow_until_s = 5, x.slowdown = 1.5;
  return x;
}

double end_s(const BroadcastInstance& x, const Broadcasts& b) {
  return ends_s(x.problem(), b).back();
}

/// The earliest end over all orders of all cuts into messages of one root each.
double brute_force_s(const BroadcastInstance& x) {
  const BroadcastProblem problem = x.problem();
  double least_s = std::numeric_limits<double>::infinity();
  std::vector<std::int32_t> order(x.done_s.size());
  std::iota(order.begin(), order.end(), 0);
  do {
    // Bit i: a message ends behind place i.
    for (unsigned cut = 0; cut < 1u << (order.size() - 1); ++cut) {
      Broadcasts b{order, {}};
      bool fits = true;
      for (std::size_t i = 0; i < order.size(); ++i) {
        const bool ends = i + 1 == order.size() || (cut >> i & 1u) != 0;
        if (ends) b.ends.push_back(static_cast<std::int32_t>(i) + 1);
        fits = fits && (ends || x.root[static_cast<std::size_t>(order[i])] ==
                                    x.root[static_cast<std::size_t>(order[i + 1])]);
      }
      if (fits) least_s = std::min(least_s, ends_s(problem, b).back());
    }
  } while (std::next_permutation(order.begin(), order.end()));
  return least_s;
}

TEST(BroadcastFusion, IsNeverLaterThanAMessageEachNorEarlierThanBruteForce) {
  double fused = 0, each = 0, best = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    const BroadcastInstance x = random_broadcasts(seed, 5);
    const double fused_s = end_s(x, fuse_broadcasts(x.problem()));
    const double each_s = end_s(x, send_each(x.problem())), least_s = brute_force_s(x);
    EXPECT_LE(fused_s, each_s) << "seed " << seed;
    EXPECT_GE(fused_s, least_s * (1 - 1e-12)) << "seed " << seed;
    fused += fused_s, each += each_s, best += least_s;
  }
  // Most of what there is to gain.
  EXPECT_LT(fused - best, 0.2 * (each - best));
}

// The root that waits longest sends what it has; a channel that never idles while something is done
// and pays fewer start-ups ends no later.
TEST(BroadcastFusion, WhatIsDoneTogetherHoldsNothingBack) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const BroadcastInstance x = random_broadcasts(seed, 40);
    EXPECT_LE(end_s(x, send_what_is_done(x.problem())), end_s(x, send_each(x.problem())) + 1e-12)
        << "seed " << seed;
  }
}

TEST(BroadcastFusion, EverythingIsSentOnceAndByItsRoot) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const BroadcastInstance x = random_broadcasts(seed, 40);
    for (const auto rule : {send_each, send_what_is_done, send_each_root, fuse_broadcasts}) {
      const Broadcasts b = rule(x.problem());
      std::vector<std::int32_t> order = b.order;
      std::sort(order.begin(), order.end());
      ASSERT_EQ(order.size(), x.done_s.size());
      for (std::size_t i = 0; i < order.size(); ++i)
        ASSERT_EQ(order[i], static_cast<std::int32_t>(i));
      ASSERT_TRUE(std::is_sorted(b.ends.begin(), b.ends.end()));
      ASSERT_EQ(b.ends.back(), static_cast<std::int32_t>(b.order.size()));
      auto begin = b.order.begin();
      for (const std::int32_t end : b.ends) {
        std::set<std::int32_t> roots;
        for (; begin != b.order.begin() + end; ++begin)
          roots.insert(x.root[static_cast<std::size_t>(*begin)]);
        ASSERT_EQ(roots.size(), 1u);
      }
    }
  }
}

// Rank 0 is done at 1, 2 and 3 s, rank 1 at 2 s; a message takes 2 s. Each by itself they end at 3,
// 5, 7 and 9 s. What is done: at 1 s the first of rank 0, at 3 s what rank 0 has done since, both,
// at 5 s rank 1's: 7 s. One message a root: rank 1's at 2 s, rank 0's at 4 s: 6 s.
TEST(BroadcastFusion, WaitsWhereAStartUpCostsMore) {
  const BroadcastInstance x{{1, 2, 3, 2}, {0, 0, 0, 1}, {1, 1, 1, 1}, 2};
  EXPECT_DOUBLE_EQ(end_s(x, send_each(x.problem())), 9);
  const Broadcasts done = send_what_is_done(x.problem());
  EXPECT_THAT(done.order, ::testing::ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(done.ends, ::testing::ElementsAre(1, 3, 4));
  EXPECT_DOUBLE_EQ(end_s(x, done), 7);
  const Broadcasts fused = fuse_broadcasts(x.problem());
  EXPECT_THAT(fused.order, ::testing::ElementsAre(3, 0, 1, 2));
  EXPECT_DOUBLE_EQ(end_s(x, fused), 6);
}

TEST(BroadcastFusion, WithoutStartUpsNothingIsFused) {
  BroadcastInstance x = random_broadcasts(7, 30);
  x.alpha_s = 0;
  EXPECT_EQ(fuse_broadcasts(x.problem()).ends.size(), x.done_s.size());
}

}  // namespace
}  // namespace linerate::plan
