// Which factors travel together: the exact program against brute force, the authors' rule and the
// published table.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "linerate/plan/kfac/factor_fusion.hpp"
#include "plan/cuts.hpp"
#include "plan/kfac_dimensions.hpp"
#include "plan/random.hpp"

namespace linerate::plan {
namespace {

using ::testing::ElementsAre;

/// Owns what a problem looks at.
struct FactorInstance {
  std::vector<double> ready_s;
  std::vector<std::int64_t> elements;
  std::vector<std::int32_t> kind;
  std::vector<Transfer> others;
  double alpha_s = 0, beta_s = 0, tensor_s = 0;
  Channel channel;

  double seconds_of(std::int64_t n, std::int64_t tensors) const {
    return alpha_s + beta_s * static_cast<double>(n) + tensor_s * static_cast<double>(tensors);
  }
  FactorFusionProblem problem() const {
    const auto seconds = [this](std::int64_t n, std::int64_t tensors) {
      return seconds_of(n, tensors);
    };
    return {ready_s, elements, kind, seconds, others, channel};
  }
};

double finish(const FactorInstance& x, const FactorGroups& groups) {
  return finish_s(x.problem(), groups);
}

/// Factors of these dimensions, one every `gap_s` seconds.
FactorInstance every(double gap_s, const support::Dimensions& dims, double alpha_s, double beta_s) {
  FactorInstance x;
  for (std::size_t l = 0; l < dims.size(); ++l) {
    x.ready_s.push_back(gap_s * static_cast<double>(l + 1));
    x.elements.push_back(doc::triangle_elements(dims[l]));
  }
  x.alpha_s = alpha_s, x.beta_s = beta_s;
  return x;
}

struct Row {
  double gap_s, alpha_s, beta_s;
  bool is_g;
  double bulk_ms, each_ms, greedy_ms;
  std::size_t greedy_groups;
  double exact_ms;
};

// Exposed milliseconds of ResNet-50's factors.
TEST(FactorFusion, MeetsTheReferenceTable) {
  const Row rows[] = {
      {2e-3, 1.22e-2, 1.45e-9, false, 102.606, 643.206, 102.606, 1, 74.350},
      {2e-3, 1.22e-2, 1.45e-9, true, 33.397, 573.997, 33.397, 1, 12.310},
      {1e-3, 9.29e-4, 1.4335e-9, false, 90.306, 86.666, 61.833, 21, 60.629},
      {1e-3, 8.063e-4, 5.8878e-10, false, 37.516, 29.816, 17.482, 30, 16.753},
      {1e-3, 9.29e-4, 1.4335e-9, true, 21.884, 18.121, 0.932, 27, 0.932},
  };
  support::FactorDimensions dims = support::dimensions_of("resnet50");
  std::reverse(dims.g.begin(), dims.g.end());
  for (const Row& row : rows) {
    const FactorInstance x = every(row.gap_s, row.is_g ? dims.g : dims.a, row.alpha_s, row.beta_s);
    const auto exposed_ms = [&](const FactorGroups& groups) {
      return 1e3 * (finish(x, groups) - x.ready_s.back());
    };
    const FactorGroups greedy = fuse_greedily(x.problem(), x.alpha_s);
    EXPECT_NEAR(exposed_ms(fuse_each_kind(x.problem())), row.bulk_ms, 1e-3);
    EXPECT_NEAR(exposed_ms(fuse_nothing(x.problem())), row.each_ms, 1e-3);
    EXPECT_NEAR(exposed_ms(greedy), row.greedy_ms, 1e-3);
    EXPECT_EQ(greedy.size(), row.greedy_groups);
    EXPECT_NEAR(exposed_ms(fuse_optimally(x.problem())), row.exact_ms, 1e-3);
  }
}

/// Sizes, gaps and costs over two decades; every third has two kinds, every fourth falls back in
/// its ready times, every fifth shares the channel, which every sixth slows down.
FactorInstance random_factors(std::uint64_t seed, std::size_t most) {
  support::Random random(seed);
  const auto decades = [&](double from) { return from * std::pow(100, random.unit()); };
  FactorInstance x;
  const auto count = 1 + static_cast<std::size_t>(random.unit() * static_cast<double>(most));
  double now_s = 0;
  for (std::size_t l = 0; l < count; ++l) {
    now_s += decades(1e-4);
    const bool back = seed % 4 == 0 && random.unit() < 0.3;
    x.ready_s.push_back(back ? 0.5 * now_s : now_s);
    x.elements.push_back(static_cast<std::int64_t>(decades(1e4)));
    if (seed % 3 == 0) x.kind.push_back(l < count / 2 ? 0 : 1);
  }
  x.alpha_s = decades(1e-4), x.beta_s = decades(1e-10);
  double other_s = 0;
  for (int i = 0; seed % 5 == 0 && i < 3; ++i)
    x.others.push_back({other_s += random.unit() * now_s / 2, decades(1e-4)});
  if (seed % 7 == 0) x.tensor_s = decades(1e-5);
  if (seed % 6 == 0) x.channel = {now_s * random.unit(), 1 + 2 * random.unit()};
  return x;
}

bool keeps_kinds_apart(const FactorInstance& x, const FactorGroups& groups) {
  std::int32_t begin = 0;
  for (const std::int32_t end : groups) {
    for (std::int32_t l = begin; l < end && !x.kind.empty(); ++l)
      if (x.kind[to_index(l)] != x.kind[to_index(begin)]) return false;
    begin = end;
  }
  return true;
}

/// The least finish over all 2^(L-1) ways to cut.
double brute_force(const FactorInstance& x) {
  double least_s = std::numeric_limits<double>::infinity();
  for (const FactorGroups& groups : support::every_cut(x.ready_s.size()))
    if (keeps_kinds_apart(x, groups)) least_s = std::min(least_s, finish(x, groups));
  return least_s;
}

TEST(FactorFusion, ExactIsBruteForce) {
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    const FactorInstance x = random_factors(seed, 10);
    const FactorGroups groups = fuse_optimally(x.problem());
    ASSERT_TRUE(keeps_kinds_apart(x, groups)) << "seed " << seed;
    EXPECT_NEAR(finish(x, groups), brute_force(x), 1e-12) << "seed " << seed;
  }
}

TEST(FactorFusion, GroupsPartitionTheFactorsInTheirOrder) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const FactorInstance x = random_factors(seed, 40);
    const auto problem = x.problem();
    for (const FactorGroups& groups : {fuse_optimally(problem), fuse_greedily(problem, x.alpha_s),
                                       fuse_nothing(problem), fuse_each_kind(problem)}) {
      ASSERT_TRUE(keeps_kinds_apart(x, groups)) << "seed " << seed;
      ASSERT_TRUE(std::is_sorted(groups.begin(), groups.end()));
      ASSERT_TRUE(std::adjacent_find(groups.begin(), groups.end()) == groups.end());
      ASSERT_GT(groups.front(), 0);
      ASSERT_EQ(groups.back(), static_cast<std::int32_t>(x.ready_s.size()));
    }
  }
}

// Without a start-up no message is worth waiting for; where all is ready at once, one is enough.
TEST(FactorFusion, TiesTakeFewerGroups) {
  FactorInstance x;
  x.ready_s = {1, 1, 1}, x.elements = {10, 10, 10};
  x.beta_s = 0.125;
  EXPECT_THAT(fuse_optimally(x.problem()), ElementsAre(3));
}

// The gradient leaves at 1 s for 4 s, so factor 1 (ready at 2 s) starts at 5 s, with factor 2 for
// the same start-up: 5 + 1 + 2 s.
TEST(FactorFusion, WaitsForWhatWasReadyBefore) {
  FactorInstance x;
  x.ready_s = {2, 4}, x.elements = {1, 1};
  x.alpha_s = 1, x.beta_s = 1;
  x.others = {{1, 4}};
  EXPECT_THAT(fuse_optimally(x.problem()), ElementsAre(2));
  EXPECT_DOUBLE_EQ(finish(x, {2}), 8);
  EXPECT_DOUBLE_EQ(finish(x, {1, 2}), 9);
  x.others.clear();
  EXPECT_DOUBLE_EQ(finish(x, {1, 2}), 6);  // 2 + 2, then 4 + 2
}

// Half the speed until 4 s: from 2 s on 1 s of work is done by then, the other takes until 5 s.
TEST(FactorFusion, ChannelIsSlowUnderComputation) {
  const Channel channel{4, 2};
  EXPECT_DOUBLE_EQ(channel.end_of(2, 2), 5);
  EXPECT_DOUBLE_EQ(channel.end_of(2, 0.5), 3);
  EXPECT_DOUBLE_EQ(channel.end_of(4, 2), 6);
}

// What travels together of inverses and directions: against every way to cut and order them.

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
  support::Random random(seed);
  BroadcastInstance x;
  const auto count = 1 + static_cast<std::size_t>(random.unit() * static_cast<double>(most));
  const auto roots = 1 + static_cast<std::int32_t>(seed % 3);
  std::vector<double> load_s(to_index(roots));
  for (std::size_t i = 0; i < count; ++i) {
    x.root.push_back(static_cast<std::int32_t>(i) % roots);
    x.elements.push_back(1 + static_cast<std::int64_t>(100 * random.unit()));
    x.done_s.push_back(load_s[to_index(x.root.back())] += 3 * random.unit());
  }
  x.alpha_s = 2 * random.unit(), x.beta_s = 0.02 * random.unit(), x.free_s = 2 * random.unit();
  if (seed % 4 == 0) x.slow_until_s = 5, x.slowdown = 1.5;
  return x;
}

double end_s(const BroadcastInstance& x, const Broadcasts& b) {
  return ends_s(x.problem(), b).back();
}

bool has_one_root_a_message(const BroadcastInstance& x, const Broadcasts& b) {
  auto begin = b.order.begin();
  for (const std::int32_t end : b.ends)
    for (const std::int32_t root = x.root[to_index(*begin)]; begin != b.order.begin() + end;)
      if (x.root[to_index(*begin++)] != root) return false;
  return true;
}

/// The earliest end over all orders of all cuts into messages of one root each.
double brute_force_s(const BroadcastInstance& x) {
  double least_s = std::numeric_limits<double>::infinity();
  std::vector<std::int32_t> order(x.done_s.size());
  std::iota(order.begin(), order.end(), 0);
  const auto cuts = support::every_cut(order.size());
  do {
    for (const auto& ends : cuts)
      if (const Broadcasts b{order, ends}; has_one_root_a_message(x, b))
        least_s = std::min(least_s, end_s(x, b));
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
      std::vector<std::int32_t> all(x.done_s.size());
      std::iota(all.begin(), all.end(), 0);
      ASSERT_THAT(b.order, ::testing::UnorderedElementsAreArray(all));
      ASSERT_TRUE(std::is_sorted(b.ends.begin(), b.ends.end()));
      ASSERT_EQ(b.ends.back(), static_cast<std::int32_t>(b.order.size()));
      ASSERT_TRUE(has_one_root_a_message(x, b));
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
