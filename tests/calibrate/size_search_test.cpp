// Which size is measured next, on times with known answers; and a whole probe over a timer that
// measures nothing: synthetic costs and a clock that the calls move.
#include "linerate/calibrate/collective_probe.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "linerate/calibrate/fit.hpp"
#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"
#include "linerate/cost/fitted.hpp"

namespace linerate::calibrate {
namespace {

using comm::Communicator;
using comm::run_ranks;

using Law = double (*)(double bytes);

double slow_line(double s) { return 80e-6 + s / 25e6; }
/// Single calls over a link of 200 Mbit/s whose token bucket holds 72 KiB: those pass at 5 GB/s.
double bucket(double s) { return 80e-6 + s / 5e9 + std::max(0.0, s - 73728) / 25e6; }
/// Another algorithm above 100 kB.
double jump(double s) { return slow_line(s) * (s > 1e5 ? 3 : 1); }

/// Every second doubling from 1 KiB up, `times` times each, spread evenly by `spread` around the
/// law.
std::vector<ProbedSize> probed(Law law, double spread = 0, int times = 5) {
  std::vector<ProbedSize> sizes;
  for (std::int64_t bytes = 1024; bytes <= 16 << 20; bytes *= 4) {
    ProbedSize& size = sizes.emplace_back(ProbedSize{bytes});
    for (int i = 0; i < times; ++i)
      size.seconds.push_back(law(static_cast<double>(bytes)) *
                             (1 + spread * (2.0 * i / (times - 1) - 1)));
  }
  return sizes;
}

TEST(SizeSearch, NeedsTheMiddleOfTheGapOfABend) {
  const auto next = [](const std::vector<ProbedSize>& sizes) {
    return next_size(Collective::all_reduce, 2, sizes);
  };
  EXPECT_EQ(next(probed(slow_line)), std::nullopt);
  EXPECT_EQ(next(probed(bucket)), 131072);  // its end, 73.7 kB, lies between 65.5 and 262 kB
  // The same medians. Ten times between 1/10 and 19/10: no error below 1.4 / sqrt(10) = 45 % says
  // anything, and so on until the times are enough.
  const auto bent = [](double s) { return slow_line(s) * (s == 65536 ? 1.25 : 1); };
  EXPECT_TRUE(next(probed(bent, 0.0)));
  EXPECT_FALSE(next(probed(bent, 0.9, 10)));
  EXPECT_TRUE(next(probed(bent, 0.9, 1000)));
}

TEST(SizeSearch, AJumpIsLocatedAndThenLeftAlone) {
  std::vector<ProbedSize> sizes = probed(jump);
  int added = 0;
  while (const auto next = next_size(Collective::all_reduce, 2, sizes)) {
    const auto at = std::ranges::upper_bound(sizes, *next, {}, &ProbedSize::bytes);
    const double seconds = jump(static_cast<double>(*next));
    sizes.insert(at, {*next, 0, {seconds, seconds, seconds}});
    ASSERT_LT(++added, 24) << "never ends";
  }
  const auto above = std::ranges::upper_bound(sizes, 100'000, {}, &ProbedSize::bytes);
  EXPECT_LT(10 * above->bytes, 11 * (above - 1)->bytes);
}

/// Costs by a law, with 2 % of noise that differs between the ranks, as their clocks do.
class SyntheticTimer final : public CallTimer {
 public:
  SyntheticTimer(Law law, int rank) : law_(law), rank_(rank) {}

  std::vector<double> time(std::span<const CallRun> runs) override {
    std::vector<double> seconds;
    for (const CallRun& run : runs) {
      const double u = random_unit(random_key(3, static_cast<std::uint64_t>(rank_)), count_++);
      seconds.push_back(law_(static_cast<double>(run.call.bytes)) * (0.98 + 0.04 * u));
      elapsed_ += run.calls * seconds.back();
    }
    return seconds;
  }
  double elapsed() const override { return elapsed_ * (1 + 0.01 * rank_); }

 private:
  Law law_;
  int rank_;
  std::uint64_t count_ = 0;
  double elapsed_ = 0;
};

struct SearchOutcome {
  CollectiveProbe probe;
  double elapsed = 0;
  std::vector<std::string> seen;  // the tables, by rank
};

SearchOutcome probe_law(Law law, double budget_s) {
  SearchOutcome outcome;
  outcome.seen.resize(3);
  run_ranks(3, [&](Communicator& comm) {
    SyntheticTimer timer(law, comm.rank());
    const CollectiveProbe probe = probe_collectives(
        comm, timer, {.largest = MiB(4), .budget = Duration{budget_s}, .most_rounds = 50});
    outcome.seen[to_index(comm.rank())] = to_json(doc::Cluster{.collectives = probe.tables});
    if (comm.rank() == 0) outcome.probe = probe, outcome.elapsed = timer.elapsed();
  });
  return outcome;
}

TEST(AdaptiveProbe, FewMoreSizesBringTheErrorBelowTenPercentWhereTheCurveBends) {
  doc::CollectiveCost first;  // every second doubling, as the probe begins
  first.ranks = 3;
  for (double bytes = 1024; bytes <= 4 << 20; bytes *= 4)
    first.samples.push_back({bytes, bucket(bytes)});
  const doc::CollectiveCost coarse = fit_collective(first, {});
  EXPECT_GT(coarse.error_mean, 1);
  const SearchOutcome after = probe_law(bucket, 30);
  ASSERT_EQ(after.probe.tables.size(), 4u);
  for (std::size_t k = 1; k < 3; ++k) {  // reduce-scatter and all-gather, at every second doubling
    const doc::CollectiveCost fine = fit_collective(after.probe.tables[k], {});
    EXPECT_LT(fine.error_mean, 0.10) << name_of(fine.collective);
    EXPECT_LE(fine.samples.size(), coarse.samples.size() + 16) << name_of(fine.collective);
    // And the truth, between 1 KiB and 4 MiB.
    double worst = 0, sum = 0;
    for (int i = 0; i < 100; ++i) {
      const double bytes = 1024 * std::pow(4096, (i + 0.5) / 100);
      const double error = std::abs(cost::evaluate(fine, bytes).seconds / bucket(bytes) - 1);
      worst = std::max(worst, error), sum += error / 100;
    }
    EXPECT_LT(sum, 0.05) << name_of(fine.collective);
    EXPECT_LT(worst, 0.50) << name_of(fine.collective);
  }
  // The same on every rank.
  EXPECT_EQ(after.seen[0], after.seen[1]);
  EXPECT_EQ(after.seen[0], after.seen[2]);
}

TEST(AdaptiveProbe, StopsWhenItsTimeIsSpentAndAddsNothingToALine) {
  EXPECT_EQ(probe_law(slow_line, 30).probe.added, 0);
  // Rounds take about a sixth of the budget, and none is begun that would end half too late.
  for (const double budget : {1.0, 4.0, 15.0})
    EXPECT_LT(probe_law(bucket, budget).elapsed, 1.2 * budget);
}

}  // namespace
}  // namespace linerate::calibrate
