// Probes over ranks that are threads: what they return, never how quick the machine is.
#include "linerate/calibrate/probe.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <ctime>

#include "faults/interposed_communicator.hpp"
#include "linerate/calibrate/contention_probe.hpp"
#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"

namespace linerate::calibrate {
namespace {

using comm::Communicator;
using comm::run_ranks;

/// Counts slices; a slice takes no time.
struct CountingLoad final : ComputeLoad {
  std::atomic<int> slices{0};
  void run_slice() override { ++slices; }
};

TEST(CollectiveProbe, GivesEveryRankTheSameSamplesOfFourOperationsAtWholeBlocks) {
  std::vector<std::string> seen(3);
  run_ranks(3, [&](Communicator& comm) {
    const CollectiveProbe probe = probe_collectives(
        comm, {.smallest = KiB(1), .largest = KiB(64), .budget = Duration{1e3}, .most_rounds = 2});
    EXPECT_EQ(probe.rounds, 2);
    doc::Cluster cluster;
    cluster.collectives = probe.tables;
    seen[static_cast<std::size_t>(comm.rank())] = to_json(cluster);
    ASSERT_EQ(probe.tables.size(), 4u);
    EXPECT_EQ(probe.tables[0].samples.size(), 7u);  // 1, 2, 4 ... 64 KiB
    EXPECT_EQ(probe.tables[1].samples.size(), 4u);  // 1, 4, 16, 64 KiB
    for (const doc::CollectiveCost& table : probe.tables)
      for (const doc::CostSample& s : table.samples) {
        EXPECT_EQ(static_cast<std::int64_t>(s.bytes) % 12, 0);  // 3 ranks, 4 bytes
        EXPECT_GT(s.seconds, 0);
        EXPECT_LE(s.low_s, s.seconds);
        EXPECT_GE(s.high_s, s.seconds);
      }
  });
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
}

TEST(ContentionProbe, ComputesOnlyWhileTheExchangeIsInFlightOrAlone) {
  run_ranks(2, [](Communicator& comm) {
    CountingLoad load;
    const doc::Contention c = probe_contention(
        comm, load, {.exchange = {KiB(64), KiB(256)}, .budget = Duration{0}, .fewest_rounds = 2});
    EXPECT_GT(load.slices, 0);
    EXPECT_GE(c.compute_slowdown, 1);
    EXPECT_GE(c.communication_slowdown, 1);
    EXPECT_GE(c.coding_slowdown, 1);
    EXPECT_GE(c.message_s, 0);
    EXPECT_LT(c.message_s, 1);
  });
}

/// What is sent is through before the call returns; `open` until the next barrier.
struct AtOnce final : faults::InterposedCommunicator {
  using InterposedCommunicator::InterposedCommunicator;
  comm::WorkPtr submit(comm::Submission what) override {
    const comm::CollectiveCall call = what.call;
    if (call == comm::CollectiveCall::barrier) open = false;
    comm::WorkPtr work = InterposedCommunicator::submit(std::move(what));
    if (call == comm::CollectiveCall::all_reduce) {
      work->wait();
      open = true;
    }
    return work;
  }
  bool open = false;
};

struct SlicesOverMessages final : ComputeLoad {
  explicit SlicesOverMessages(const AtOnce& over) : comm(over) {}
  void run_slice() override { found += comm.open; }
  const AtOnce& comm;
  int found = 0;
};

// Without a slice its rate was 0, and the slowdown infinite.
TEST(ContentionProbe, ComputesOverAnExchangeThatIsThroughAtOnce) {
  run_ranks(1, [](Communicator& inner) {
    AtOnce comm(inner);
    SlicesOverMessages load(comm);
    const doc::Contention c = probe_contention(
        comm, load, {.exchange = {KiB(64)}, .budget = Duration{0}, .fewest_rounds = 2});
    EXPECT_GE(load.found, 2);
    EXPECT_TRUE(std::isfinite(c.compute_slowdown) && std::isfinite(c.communication_slowdown));
  });
}

/// Each message keeps a processor busy for at least so long.
struct Costly final : faults::InterposedCommunicator {
  using InterposedCommunicator::InterposedCommunicator;
  double seconds = 0;
  comm::WorkPtr submit(comm::Submission what) override {
    const auto used = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
    for (const double begin = used(); used() - begin < seconds;) {
    }
    return InterposedCommunicator::submit(std::move(what));
  }
};

// The one rank of this process: what messages take of others' is no time of its processor.
TEST(ContentionProbe, AMessageTakesTheProcessorTimeThatItNeeds) {
  run_ranks(1, [](Communicator& inner) {
    for (const double seconds : {1e-3, 4e-3}) {
      Costly comm(inner);
      comm.seconds = seconds;
      CountingLoad load;
      const doc::Contention c = probe_contention(
          comm, load, {.exchange = {KiB(64)}, .budget = Duration{0}, .fewest_rounds = 1});
      EXPECT_GE(c.message_s, 0.99 * seconds);
    }
  });
}

TEST(IdleStart, ACallLastsFromItsSubmissionUntilItsWaiterGoesOn) {
  run_ranks(1, [](Communicator& inner) {
    Costly comm(inner);
    comm.seconds = 2e-3;
    EXPECT_GE(probe_idle_start(comm).call_s, 0.99 * comm.seconds);
  });
}

/// Says that a message over which slices ran took 2 ms longer than it did.
struct HeldUpWork final : comm::Work {
  HeldUpWork(comm::WorkPtr of, const CountingLoad& l) : inner(std::move(of)), load(l) {}
  void wait() override { inner->wait(); }
  bool done() const override { return inner->done(); }
  void on_done(std::function<void()> action) override { inner->on_done(std::move(action)); }
  comm::WorkTimes times() const override {
    comm::WorkTimes times = inner->times();
    if (load.slices > before) times.end_ns += 2'000'000;
    return times;
  }
  comm::WorkPtr inner;
  const CountingLoad& load;
  int before = load.slices;
};

struct HeldUp final : faults::InterposedCommunicator {
  HeldUp(comm::Communicator& inner, const CountingLoad& l)
      : InterposedCommunicator(inner), load(l) {}
  comm::WorkPtr submit(comm::Submission what) override {
    const bool sums = what.call == comm::CollectiveCall::all_reduce;
    comm::WorkPtr work = InterposedCommunicator::submit(std::move(what));
    return sums ? std::make_shared<HeldUpWork>(std::move(work), load) : work;
  }
  const CountingLoad& load;
};

// Ten messages in a row that end 2 ms later are each .2 ms late.
TEST(ContentionProbe, AMessageIsLateByTheMeanOfARow) {
  run_ranks(1, [](Communicator& inner) {
    CountingLoad load;
    HeldUp comm(inner, load);
    const doc::Contention c = probe_contention(
        comm, load,
        {.exchange = {KiB(64)}, .budget = Duration{0}, .fewest_rounds = 3, .messages = 10});
    EXPECT_NEAR(c.message_delay_s, 2e-4, 1e-4);
  });
}

TEST(ProbeCluster, CarriesFitsContentionSleepAndNoise) {
  run_ranks(2, [](Communicator& comm) {
    EmulatedTraining load;
    double last = 0;
    const doc::Cluster cluster = probe_cluster(
        comm, load, {.budget = Duration{0.2}, .largest = MiB(1), .progress = [&](double done) {
                       last = done;
                     }});
    EXPECT_EQ(cluster.ranks, 2);
    ASSERT_EQ(cluster.collectives.size(), 4u);
    for (const doc::CollectiveCost& cost : cluster.collectives) EXPECT_FALSE(cost.segments.empty());
    EXPECT_TRUE(cluster.contention && cluster.progress_sleep_s && cluster.noise_floor);
    EXPECT_GT(cluster.network.bandwidth_bytes_per_s, 0);
    EXPECT_EQ(last, 1);
    EXPECT_EQ(doc::cluster_from_json(to_json(cluster), "c.json").collectives.size(), 4u);
  });
}

TEST(ProbeCluster, OneRankHasNoNetwork) {
  run_ranks(1, [](Communicator& comm) {
    EmulatedTraining load;
    EXPECT_THROW(probe_cluster(comm, load), UsageError);
  });
}

TEST(EmulatedTraining, EndsItsThreads) {
  EmulatedTraining load(3);
  for (int i = 0; i < 3; ++i) load.run_slice();
}

}  // namespace
}  // namespace linerate::calibrate
