// The exact fusion against brute force over all 2^(L-1) cuts.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>

#include "linerate/core/index.hpp"
#include "linerate/plan/exchange/fusion.hpp"
#include "plan/cuts.hpp"
#include "plan/random.hpp"

namespace linerate::plan {
namespace {

using support::Random;
using ::testing::ElementsAre;

struct Instance {
  std::vector<double> ready, bytes;
  cost::CostCurve curve;
  cost::AddTable table;
  double cap = std::numeric_limits<double>::infinity();

  std::vector<std::int32_t> solve() const { return optimal_fusion({ready, bytes, {}, cap}, curve); }
  double least_s() const;
};

std::vector<double> prefix_sums(const std::vector<double>& bytes) {
  std::vector<double> sums(bytes.size() + 1);
  std::partial_sum(bytes.begin(), bytes.end(), sums.begin() + 1);
  return sums;
}

/// Of buckets that end behind these; infinite where a bucket of several gradients exceeds the cap.
double finish_of(const Instance& in, const std::vector<std::int32_t>& ends) {
  double finish = 0;
  std::size_t begin = 0;
  for (const std::int32_t end : ends) {
    const auto last = to_index(end);
    double size = 0;
    for (std::size_t l = begin; l < last; ++l) size += in.bytes[l];
    if (last - begin > 1 && size > in.cap) return std::numeric_limits<double>::infinity();
    finish = std::max(finish, in.ready[last - 1]) + in.curve.seconds(size);
    begin = last;
  }
  return finish;
}

double brute_force(const Instance& in) {
  double best = std::numeric_limits<double>::infinity();
  for (const auto& ends : support::every_cut(in.bytes.size()))
    best = std::min(best, finish_of(in, ends));
  return best;
}

double Instance::least_s() const { return finish_of(*this, solve()); }

Instance random_instance(std::uint64_t seed) {
  Random random(seed);
  Instance in;
  const auto count = 1 + random.below(9);
  double t = 0;
  for (std::uint64_t l = 0; l < count; ++l) {
    t += random.unit() * 3;
    in.ready.push_back(t);
    in.bytes.push_back(1 + std::floor(random.unit() * 5));
  }
  in.curve.line = {random.unit() * 4, 0.2 + random.unit()};
  return in;
}

void add_table(Instance& in, const std::vector<doc::AddCost>& points) {
  in.table = cost::AddTable(points);
  in.curve.add = &in.table;
  in.curve.add_steps = 3;
  in.curve.add_share = 0.25;
}

cost::FittedPart on_ranks(const cost::TableLaw& law, int ranks) {
  return {{cost::Anchor(law, Collective::all_reduce)}, Collective::all_reduce, ranks};
}

// The search adds prefix sums, which round differently: it may take one of two that are as good.
TEST(Optimal, EqualsBruteForceForEveryKindOfCost) {
  doc::CollectiveCost fitted;
  fitted.ranks = 4;
  fitted.segments = {{0, 6, 1, 0.1, 1, 1}, {6, 1000, 3, 0.3, 1, 1}};  // from 1.6 to 4.8 at 6
  const cost::TableLaw law(fitted);
  const std::function<void(Instance&, std::uint64_t)> kinds[] = {
      [](Instance&, std::uint64_t) {},  // a straight line
      [](Instance& in, std::uint64_t seed) {
        std::vector<doc::AddCost> points;  // not monotone
        for (int k = 0; k < 6; ++k)
          points.push_back({std::pow(2.0, k - 1), 0.1 + random_unit(seed, 100 + k)});
        add_table(in, points);
      },
      [&](Instance& in, std::uint64_t) { in.curve.fitted = on_ranks(law, fitted.ranks); },
      [](Instance& in, std::uint64_t) { in.cap = 6; }};
  for (std::uint64_t seed = 0; seed < 2000; ++seed)
    for (const auto& kind : kinds) {
      Instance in = random_instance(seed);
      kind(in, seed);
      EXPECT_NEAR(in.least_s(), brute_force(in), 1e-12 * brute_force(in)) << "seed " << seed;
    }
}

// The recurrence as written, over all i < j.
double every_pair(const Instance& in) {
  std::vector<double> finish{0};
  const std::vector<double> prefix = prefix_sums(in.bytes);
  for (std::size_t j = 0; j < in.bytes.size(); ++j) {
    double best = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i <= j; ++i)
      best = std::min(
          best, std::max(finish[i], in.ready[j]) + in.curve.seconds(prefix[j + 1] - prefix[i]));
    finish.push_back(best);
  }
  return finish.back();
}

TEST(Optimal, EqualsTheWholeRecurrenceForLongNoisyTables) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    Instance in;
    double t = 0;
    for (int l = 0; l < 120; ++l) {
      t += random.unit() * 1e-3;
      in.ready.push_back(t);
      in.bytes.push_back(
          std::floor(std::pow(10, 2 + 4.5 * random.unit())));  // biases to convolutions
    }
    std::vector<doc::AddCost> points;  // falls often, as measured tables do
    for (int k = 0; k < 24; ++k)
      points.push_back({std::pow(2.0, k), 1e-5 + random.unit() * 4e-6 + std::pow(2.0, k) * 5e-11});
    add_table(in, points);
    in.curve.line = {1e-4 * random.unit(),
                     std::pow(10.0, -11 + 3 * random.unit())};  // 100 GB/s to 0.1 GB/s
    EXPECT_NEAR(in.least_s(), every_pair(in), 1e-12 * in.least_s()) << "seed " << seed;
  }
}

doc::CollectiveCost random_table(std::uint64_t seed) {
  Random random(seed + 5000);
  doc::CollectiveCost fitted;
  fitted.ranks = 4;
  std::int64_t from = 256;
  for (int k = 0; k < 12; ++k) {  // jumps both ways, slopes that fall, as switches of algorithms do
    const std::int64_t to = from * 2 + static_cast<std::int64_t>(random.unit() * 1000);
    fitted.segments.push_back({from, to, 2e-5 * random.unit(),
                               1e-10 + 3e-9 * random.unit() * (random.unit() < 0.1 ? -0.1 : 1), 1,
                               1});
    from = to;
  }
  return fitted;
}

TEST(Optimal, EqualsTheWholeRecurrenceForFittedTablesAndWhatMovesThem) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    Instance in;
    double t = 0;
    for (int l = 0; l < 150; ++l) {
      if (random.unit() < 0.6) t += random.unit() * 3e-5;  // layers have several gradients
      in.ready.push_back(t);
      in.bytes.push_back(std::floor(std::pow(10, 1.5 + 4 * random.unit())));
    }
    const doc::CollectiveCost fitted = random_table(seed);
    const cost::TableLaw law(fitted);
    in.curve.fitted = on_ranks(law, seed % 3 == 0 ? 16 : 4);
    if (seed % 2 == 0) in.curve.fitted.set_move({1e-6, 0.5, 1e-9, true});
    const double expected = every_pair(in);
    EXPECT_NEAR(in.least_s(), expected, 1e-12 * expected) << "seed " << seed;
    in.cap = 3e5;
    EXPECT_LE(expected, in.least_s() * (1 + 1e-12));
  }
}

TEST(Optimal, DoesNotChooseByRounding) {
  // Gradients of a layer are ready together: a cut between them costs what one behind them does.
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Instance in;
    Random random(seed);
    double t = 0;
    for (int l = 0; l < 60; ++l) {
      if (l % 3 == 0) t += 1e-3 * random.unit();
      in.ready.push_back(t);
      in.bytes.push_back(std::floor(1e6 * random.unit()));
    }
    in.curve.line = {3e-4, 1e-9};
    const std::vector<std::int32_t> here = in.solve();
    for (double& r : in.ready) r += 0.1;
    EXPECT_EQ(in.solve(), here) << "seed " << seed;
  }
}

TEST(Optimal, TiesGoToFewerBuckets) {
  // Without start-up costs everything ready at 0 costs the same however it is cut.
  Instance in{{0, 0, 0, 0}, {4, 4, 4, 4}, {}, {}};
  in.curve.line = {0, 1};
  EXPECT_THAT(in.solve(), ElementsAre(4));
  in.curve.line = {0, 0};
  EXPECT_THAT(in.solve(), ElementsAre(4));
}

// The search for dear's buckets against one that leaves nothing out.

constexpr std::size_t kMostKept = 16;  // of the search, by prefix

struct Case {
  std::vector<double> ready_s, bytes, forward_left_s;
  std::vector<std::int32_t> fence;
  cost::CostCurve reduce_scatter, all_gather;
  double backward_s = 0;

  DecoupledProblem problem() const { return {ready_s, bytes, fence, forward_left_s, backward_s}; }
  double forward_s() const {
    return *std::max_element(forward_left_s.begin(), forward_left_s.end());
  }
};

// Networks from far too slow to far too fast; gradients that are needed in any order in one case of
// four, of several dtypes in one of five, costs with a bend in one of seven.
Case random_case(std::uint64_t seed) {
  Random random(seed);
  Case c;
  const double speed = std::exp2(12 * random.unit() - 6);
  double ready = 0, left = 0;
  for (std::uint64_t l = 0, count = 1 + random.below(48); l < count; ++l) {
    c.ready_s.push_back(ready += random.unit());
    c.bytes.push_back(1 + 100 * random.unit() * random.unit());
    left += random.unit();
    c.forward_left_s.push_back(seed % 4 == 0 ? random.unit() * static_cast<double>(count) : left);
    const auto own = static_cast<std::int32_t>(l);
    c.fence.push_back(l == 0 || (seed % 5 == 0 && random.below(8) == 0) ? own : c.fence.back());
  }
  c.backward_s = ready + random.unit();
  c.reduce_scatter.line = {random.unit() * speed, random.unit() * speed / 50};
  c.all_gather.line = {random.unit() * speed, seed % 2 ? c.reduce_scatter.line.beta_s_per_byte
                                                       : random.unit() * speed / 50};
  if (seed % 7 == 0)
    c.all_gather.trees = {cost::Line{c.all_gather.line.alpha_s / 2, speed / 25},
                          cost::Line{c.all_gather.line.alpha_s / 4, speed / 10}};
  return c;
}

struct Times {
  double scattered_s = 0, gathered_s = 0;
};

Times after(const Case& c, const Times& before, std::size_t from, std::size_t to, double bytes) {
  const double left =
      *std::max_element(c.forward_left_s.begin() + static_cast<std::ptrdiff_t>(from),
                        c.forward_left_s.begin() + static_cast<std::ptrdiff_t>(to));
  return {std::max(before.scattered_s, c.ready_s[to - 1]) + c.reduce_scatter.seconds(bytes),
          std::max(before.gathered_s, left) + c.all_gather.seconds(bytes)};
}

// Those that no other beats or equals.
std::vector<Times> unbeaten(std::vector<Times> all) {
  std::sort(all.begin(), all.end(), [](const Times& a, const Times& b) {
    return a.scattered_s != b.scattered_s ? a.scattered_s < b.scattered_s
                                          : a.gathered_s < b.gathered_s;
  });
  std::vector<Times> kept;
  for (const Times& t : all)
    if (kept.empty() || t.gathered_s < kept.back().gathered_s) kept.push_back(t);
  return kept;
}

// Absent where the search may have left out ways for their number.
std::optional<double> best_step_s(const Case& c) {
  const std::vector<double> prefix = prefix_sums(c.bytes);
  std::vector<std::vector<Times>> ways{{Times{}}};
  for (std::size_t to = 1; to <= c.bytes.size(); ++to) {
    std::vector<Times> all;
    for (auto from = to_index(c.fence[to - 1]); from < to; ++from)
      for (const Times& before : ways[from])
        all.push_back(after(c, before, from, to, prefix[to] - prefix[from]));
    ways.push_back(unbeaten(std::move(all)));
    if (ways.back().size() > kMostKept) return std::nullopt;
  }
  double best = std::numeric_limits<double>::infinity();
  for (const Times& way : ways.back())
    best = std::min(best, std::max(way.scattered_s + way.gathered_s, c.backward_s + c.forward_s()));
  return best;
}

double step_s_of(const Case& c, const std::vector<std::int32_t>& ends) {
  Times times;
  std::size_t from = 0;
  const std::vector<double> prefix = prefix_sums(c.bytes);
  for (const std::int32_t end : ends) {
    const auto to = to_index(end);
    EXPECT_GE(from, to_index(c.fence[to - 1]));
    times = after(c, times, from, to, prefix[to] - prefix[from]);
    from = to;
  }
  EXPECT_EQ(from, c.bytes.size());
  return std::max(times.scattered_s + times.gathered_s, c.backward_s + c.forward_s());
}

TEST(DecoupledFusion, FindsTheBestOfAllFusions) {
  int compared = 0, several = 0, network_bound = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    const Case c = random_case(seed);
    const DecoupledResult found = decoupled_fusion(c.problem(), c.reduce_scatter, c.all_gather);
    EXPECT_EQ(step_s_of(c, found.ends), found.step_s) << "seed " << seed;
    const std::optional<double> best = best_step_s(c);
    if (!best) continue;
    EXPECT_EQ(found.step_s, *best) << "seed " << seed;
    ++compared;
    several += found.ends.size() > 1;
    network_bound += *best > c.backward_s + c.forward_s();
  }
  EXPECT_GT(compared, 1300);
  EXPECT_GT(several, 700);
  EXPECT_GT(network_bound, 350);
}

}  // namespace
}  // namespace linerate::plan
