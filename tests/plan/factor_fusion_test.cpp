// Which factors travel together: the exact program against brute force, the authors' rule and the
// published table.
#include "linerate/plan/kfac/factor_fusion.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "linerate/core/random.hpp"
#include "plan/kfac_dimensions.hpp"

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
  support::FactorDimensions dims = support::resnet50_dimensions();
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
  std::uint64_t drawn = 0;
  const auto unit = [&] { return random_unit(seed, drawn++); };
  const auto decades = [&](double from) { return from * std::pow(100, unit()); };
  FactorInstance x;
  const auto count = 1 + static_cast<std::size_t>(unit() * static_cast<double>(most));
  double now_s = 0;
  for (std::size_t l = 0; l < count; ++l) {
    now_s += decades(1e-4);
    const bool back = seed % 4 == 0 && unit() < 0.3;
    x.ready_s.push_back(back ? 0.5 * now_s : now_s);
    x.elements.push_back(static_cast<std::int64_t>(decades(1e4)));
    if (seed % 3 == 0) x.kind.push_back(l < count / 2 ? 0 : 1);
  }
  x.alpha_s = decades(1e-4), x.beta_s = decades(1e-10);
  double other_s = 0;
  for (int i = 0; seed % 5 == 0 && i < 3; ++i)
    x.others.push_back({other_s += unit() * now_s / 2, decades(1e-4)});
  if (seed % 7 == 0) x.tensor_s = decades(1e-5);
  if (seed % 6 == 0) x.channel = {now_s * unit(), 1 + 2 * unit()};
  return x;
}

bool keeps_kinds_apart(const FactorInstance& x, const FactorGroups& groups) {
  std::int32_t begin = 0;
  for (const std::int32_t end : groups) {
    for (std::int32_t l = begin; l < end && !x.kind.empty(); ++l)
      if (x.kind[static_cast<std::size_t>(l)] != x.kind[static_cast<std::size_t>(begin)])
        return false;
    begin = end;
  }
  return true;
}

/// The least finish over all 2^(L-1) ways to cut.
double brute_force(const FactorInstance& x) {
  const auto count = static_cast<std::int32_t>(x.ready_s.size());
  double least_s = std::numeric_limits<double>::infinity();
  for (std::uint32_t cuts = 0; cuts < 1u << (count - 1); ++cuts) {
    FactorGroups groups;
    for (std::int32_t l = 1; l < count; ++l)
      if (cuts >> (l - 1) & 1) groups.push_back(l);
    groups.push_back(count);
    if (keeps_kinds_apart(x, groups)) least_s = std::min(least_s, finish(x, groups));
  }
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

TEST(FactorFusion, ExactIsNeverLaterThanAnyRule) {
  int worse = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const FactorInstance x = random_factors(seed, 40);
    const auto problem = x.problem();
    const double exact_s = finish(x, fuse_optimally(problem));
    for (const FactorGroups& groups :
         {fuse_greedily(problem, x.alpha_s), fuse_nothing(problem), fuse_each_kind(problem)}) {
      ASSERT_TRUE(keeps_kinds_apart(x, groups)) << "seed " << seed;
      EXPECT_LE(exact_s, finish(x, groups) + 1e-12) << "seed " << seed;
    }
    worse += finish(x, fuse_greedily(problem, x.alpha_s)) > 1.001 * exact_s;
  }
  EXPECT_GT(worse, 100);  // else the search would not be worth having
}

TEST(FactorFusion, GroupsPartitionTheFactorsInTheirOrder) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const FactorInstance x = random_factors(seed, 40);
    const auto problem = x.problem();
    for (const FactorGroups& groups : {fuse_optimally(problem), fuse_greedily(problem, x.alpha_s),
                                       fuse_nothing(problem), fuse_each_kind(problem)}) {
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

}  // namespace
}  // namespace linerate::plan
