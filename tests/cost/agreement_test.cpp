// Costs agree with each other on Clusters of every kind, made at random.
#include "cost/agreement.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <set>

#include "linerate/core/random.hpp"
#include "linerate/cost/closed_form.hpp"

namespace linerate::cost {
namespace {

using testing::IsEmpty;

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : seed_(seed) {}

  double unit() { return random_unit(seed_, next_++); }
  int below(int n) {
    return static_cast<int>(random_below(seed_, next_++, static_cast<std::uint64_t>(n)));
  }
  bool chance(double p) { return unit() < p; }
  double between(double low, double high) { return low * std::pow(high / low, unit()); }

 private:
  std::uint64_t seed_, next_ = 0;
};

/// A ring's cost with up to two switches of algorithm, measured with noise, sometimes with samples
/// that are far off. Every fourth table is no measurement of anything: any time at any size. Lines
/// between the samples; below and above them any that fit.
doc::CollectiveCost random_table(Draw& draw, Collective what, int ranks, double alpha,
                                 double beta) {
  doc::CollectiveCost cost;
  cost.collective = what;
  cost.ranks = ranks;
  const bool wild = draw.chance(0.25);
  const double noise = draw.chance(0.5) ? 0.02 : 0.5;
  const int first = draw.below(22), count = 1 + draw.below(16);
  const int change = draw.chance(0.5) ? first + draw.below(count) : 99;
  for (int k = 0; k < count; ++k) {
    const double bytes = std::exp2(first + k);
    double seconds = message_steps(what, ranks) * alpha + bus_factor(what, ranks) * beta * bytes;
    if (first + k < change && change < 99) seconds = seconds / draw.between(2, 30) + alpha / 10;
    seconds *= std::exp(noise * (draw.unit() - 0.5));
    if (draw.chance(0.05)) seconds *= draw.between(0.1, 20);
    if (wild) seconds = draw.between(1e-6, 1);
    cost.samples.push_back({bytes, seconds});
  }
  if (change > first && change < first + count)
    cost.switches = {{std::llround(std::exp2(change - 1)), std::llround(std::exp2(change))}};
  const auto low = draw.between(0.3, 1), high = draw.between(1, 3);
  const auto& samples = cost.samples;
  const double slope = draw.chance(0.3) ? 0 : draw.unit();
  cost.segments.push_back({0, std::llround(samples.front().bytes),
                           samples.front().seconds * (1 - slope),
                           samples.front().seconds * slope / samples.front().bytes, low, high});
  for (std::size_t i = 1; i < samples.size(); ++i) {
    const double b =
        (samples[i].seconds - samples[i - 1].seconds) / (samples[i].bytes - samples[i - 1].bytes);
    cost.segments.push_back({std::llround(samples[i - 1].bytes), std::llround(samples[i].bytes),
                             samples[i].seconds - b * samples[i].bytes, b, low, high});
  }
  const double last = samples.back().bytes, all = samples.back().seconds;
  cost.segments.push_back(
      {std::llround(last), 2 * std::llround(last), all * draw.unit(), 0, low, high});
  cost.segments.back().beta_s_per_byte = (all - cost.segments.back().alpha_s) / last;
  if (draw.chance(0.1)) cost.samples.clear(), cost.segments.pop_back();
  return cost;
}

doc::Cluster random_cluster(std::uint64_t seed) {
  Draw draw(seed);
  doc::Cluster c;
  const double alpha = draw.between(1e-6, 1e-3), beta = draw.between(1e-11, 1e-7);
  if (draw.chance(0.7)) c.network = {1 / beta, alpha};
  if (draw.chance(0.4)) c.ranks_per_node = 2 + draw.below(7);
  if (c.ranks_per_node > 1 && draw.chance(0.7))
    c.node = doc::Link{draw.between(1, 100) / beta, alpha * draw.unit()};
  if (draw.chance(0.3)) c.reduce_s_per_byte = beta * draw.unit();
  if (draw.chance(0.2)) {
    c.network = {1 / beta, alpha};
    return c;
  }
  constexpr int kCounts[] = {2, 3, 4, 6, 8, 16, 64, 256};
  std::set<int> counts;
  for (int k = 1 + draw.below(3); k-- > 0;) counts.insert(kCounts[draw.below(8)]);
  for (const std::string_view name : kCollectiveNames) {
    const Collective what = parse_collective(name);
    for (const int ranks : counts) {
      if (!draw.chance(what == Collective::all_reduce ? 0.8 : 0.4)) continue;
      if (what == Collective::barrier) continue;
      c.collectives.push_back(random_table(draw, what, ranks, alpha, beta));
      constexpr int kNotKnown = 0;
      const int per_node[] = {kNotKnown, 1, c.ranks_per_node};
      c.collectives.back().ranks_per_node = per_node[draw.below(3)];
    }
  }
  if (c.collectives.empty()) c.network = {1 / beta, alpha};
  return c;
}

TEST(CostsAgree, OnRandomClusters) {
  Agreement agreement;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const doc::Cluster cluster = random_cluster(seed);
    const auto& forms = all_reduce_forms().lines();
    CostOptions options;
    if (cluster.collectives.empty()) options.all_reduce = forms[seed / 3 % forms.size()].name;
    agreement.check(CostModel(cluster, options), fmt::format("seed {}", seed),
                    sizes_around(cluster), kRanksAround);
  }
  EXPECT_THAT(agreement.broken, IsEmpty());
  EXPECT_GT(agreement.cases, 1'000'000);
  RecordProperty("cases", std::to_string(agreement.cases));
}

}  // namespace
}  // namespace linerate::cost
