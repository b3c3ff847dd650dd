// The probe before the first planned step, over ranks that are threads: what it returns, never how
// quick the machine is.
#include "linerate/calibrate/probe.hpp"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"
#include "linerate/cost/fitted.hpp"
#include "linerate/doc/validate.hpp"

namespace linerate::calibrate {
namespace {

using comm::Communicator;
using comm::run_ranks;

constexpr std::int64_t kBytes = 1 << 20;

doc::Cluster probed(Communicator& comm, const std::vector<Collective>& kinds) {
  CallTrain train(comm, kBytes);
  return quick_probe(comm, train, kBytes, kinds);
}

TEST(QuickProbe, GivesATableForEachKindTheSameOnEveryRank) {
  const std::vector<Collective> kinds = {Collective::reduce_scatter, Collective::all_gather,
                                         Collective::all_reduce, Collective::all_to_all};
  std::vector<std::string> seen(3);
  run_ranks(3, [&](Communicator& comm) {
    const doc::Cluster cluster = probed(comm, kinds);
    EXPECT_EQ(cluster.ranks, 3);
    ASSERT_EQ(cluster.collectives.size(), kinds.size());
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      const doc::CollectiveCost& cost = cluster.collectives[k];
      EXPECT_EQ(cost.collective, kinds[k]);
      EXPECT_EQ(cost.ranks, 3);
      ASSERT_FALSE(cost.samples.empty());
      EXPECT_LE(cost.samples.back().bytes, kBytes + 12);
      for (const doc::CostSample& s : cost.samples) {
        EXPECT_EQ(static_cast<std::int64_t>(s.bytes) % 12, 0);  // 3 ranks, 4 bytes
        EXPECT_GT(s.seconds, 0);
        EXPECT_NEAR(cost::evaluate(cost, s.bytes).seconds, s.seconds, 1e-6 * s.seconds);
      }
    }
    seen[static_cast<std::size_t>(comm.rank())] = to_json(cluster);
  });
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
}

TEST(QuickProbe, RefusesNoKindAndOneThatNobodyTimes) {
  run_ranks(1, [](Communicator& comm) {
    EXPECT_THROW(probed(comm, {}), UsageError);
    EXPECT_THROW(probed(comm, {Collective::barrier}), UsageError);
  });
}

/// Whatever was timed, planning takes the Cluster: no line falls below zero, and all go through the
/// samples.
TEST(QuickProbe, NoSegmentHasANegativeTime) {
  const std::vector<std::vector<doc::CostSample>> tables = {
      {{4096, 1e-6, 0, 0}, {16384, 9e-6, 0, 0}, {65536, 2e-5, 0, 0}},  // falls to -1.7 us at 0
      {{4096, 1e-5, 0, 0}, {16384, 1e-5, 0, 0}},
      {{4096, 1e-5, 0, 0}, {16384, 2e-5, 0, 0}, {65536, 1e-4, 0, 0}},
      {{4096, 0.3, 0, 0}}};
  for (const std::vector<doc::CostSample>& samples : tables) {
    doc::CollectiveCost cost;
    cost.collective = Collective::all_reduce, cost.ranks = 2;
    cost.samples = samples, cost.segments = segments_between(samples);
    doc::Cluster cluster;
    cluster.ranks = 2, cluster.collectives = {cost};
    EXPECT_NO_THROW(doc::validate(cluster));
    for (const doc::CostSample& s : samples)
      EXPECT_NEAR(cost::evaluate(cost, s.bytes).seconds, s.seconds, 1e-9 * s.seconds);
    EXPECT_LE(cost::evaluate(cost, 2048).seconds, samples[0].seconds);
  }
}

/// 1 ms a MB and 0.1 ms to start; the 4 MB call was timed 3 % too long.
TEST(QuickProbe, NoiseOfASampleIsNoReasonToMergeCalls) {
  std::vector<doc::CostSample> samples;
  for (const double mb : {0.1, 1.0, 4.0, 16.0})
    samples.push_back({mb * 1e6, 1e-4 + mb * 1e-3 * (mb == 4.0 ? 1.03 : 1), 0, 0});
  EXPECT_GT(4 * samples[2].seconds - samples[3].seconds, 4e-4);
  bound_start_ups(samples);
  for (std::size_t i = 1; i < samples.size(); ++i) {
    const double parts = samples[i].bytes / samples[i - 1].bytes;
    EXPECT_LE(parts * samples[i - 1].seconds - samples[i].seconds,
              (parts - 1) * samples[0].seconds * (1 + 1e-9))
        << i;
  }
  EXPECT_DOUBLE_EQ(samples[3].seconds, 1e-4 + 16e-3);
  EXPECT_NEAR(samples[1].seconds, 1.1e-3, 1e-9);  // what was right stays
}

}  // namespace
}  // namespace linerate::calibrate
