// The search for dear's buckets against one that leaves nothing out.
#include "linerate/plan/exchange/fusion.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "linerate/core/random.hpp"

namespace linerate::plan {
namespace {

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
  std::uint64_t counter = 0;
  const auto unit = [&] { return random_unit(seed, counter++); };
  const auto below = [&](std::uint64_t n) { return random_below(seed, counter++, n); };
  Case c;
  const double speed = std::exp2(12 * unit() - 6);
  double ready = 0, left = 0;
  for (std::uint64_t l = 0, count = 1 + below(48); l < count; ++l) {
    c.ready_s.push_back(ready += unit());
    c.bytes.push_back(1 + 100 * unit() * unit());
    left += unit();
    c.forward_left_s.push_back(seed % 4 == 0 ? unit() * static_cast<double>(count) : left);
    const auto own = static_cast<std::int32_t>(l);
    c.fence.push_back(l == 0 || (seed % 5 == 0 && below(8) == 0) ? own : c.fence.back());
  }
  c.backward_s = ready + unit();
  c.reduce_scatter.line = {unit() * speed, unit() * speed / 50};
  c.all_gather.line = {unit() * speed,
                       seed % 2 ? c.reduce_scatter.line.beta_s_per_byte : unit() * speed / 50};
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
  std::vector<double> prefix{0};
  for (const double bytes : c.bytes) prefix.push_back(prefix.back() + bytes);
  std::vector<std::vector<Times>> ways{{Times{}}};
  for (std::size_t to = 1; to <= c.bytes.size(); ++to) {
    std::vector<Times> all;
    for (auto from = static_cast<std::size_t>(c.fence[to - 1]); from < to; ++from)
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
  std::vector<double> prefix{0};
  for (const double bytes : c.bytes) prefix.push_back(prefix.back() + bytes);
  for (const std::int32_t end : ends) {
    const auto to = static_cast<std::size_t>(end);
    EXPECT_GE(from, static_cast<std::size_t>(c.fence[to - 1]));
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
