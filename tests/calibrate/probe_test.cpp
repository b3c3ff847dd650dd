// Probes over ranks that are threads: what they return, never how quick the machine is.
#include "linerate/calibrate/probe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <ctime>
#include <string>
#include <vector>

#include "faults/interposed_communicator.hpp"
#include "linerate/calibrate/collective_probe.hpp"
#include "linerate/calibrate/contention_probe.hpp"
#include "linerate/calibrate/fit.hpp"
#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/random.hpp"
#include "linerate/cost/fitted.hpp"
#include "linerate/doc/validate.hpp"

namespace linerate::calibrate {
namespace {

using comm::Communicator;
using comm::run_ranks;

/// Counts slices; a slice takes no time.
struct CountingLoad final : ComputeLoad {
  std::atomic<int> slices{0};
  void run_slice() override { ++slices; }
};

doc::Contention contention(Communicator& comm, ComputeLoad& load, int rounds,
                           const std::vector<Bytes>& exchange = {KiB(64)}) {
  return probe_contention(
      comm, load,
      {.exchange = exchange, .budget = Duration{0}, .fewest_rounds = rounds, .messages = 10});
}

TEST(CollectiveProbe, GivesEveryRankTheSameSamplesOfFourOperationsAtWholeBlocks) {
  std::vector<std::string> seen(3);
  run_ranks(3, [&](Communicator& comm) {
    const CollectiveProbe probe = probe_collectives(
        comm, {.smallest = KiB(1), .largest = KiB(64), .budget = Duration{1e3}, .most_rounds = 2});
    EXPECT_EQ(probe.rounds, 2);
    seen[to_index(comm.rank())] = to_json(doc::Cluster{.collectives = probe.tables});
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
    const doc::Contention c = contention(comm, load, 2, {KiB(64), KiB(256)});
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
    const doc::Contention c = contention(comm, load, 2);
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
      EXPECT_GE(contention(comm, load, 1).message_s, 0.99 * seconds);
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
    EXPECT_NEAR(contention(comm, load, 3).message_delay_s, 2e-4, 1e-4);
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

TEST(ProbeCluster, OneRankHasNoNetworkAndTheLoadEndsItsThreads) {
  run_ranks(1, [](Communicator& comm) {
    EmulatedTraining load(3);
    for (int i = 0; i < 3; ++i) load.run_slice();
    EXPECT_THROW(probe_cluster(comm, load), UsageError);
  });
}

// ---- the probe before the first planned step ----

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
    seen[to_index(comm.rank())] = to_json(cluster);
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
    const doc::CollectiveCost cost{
        .ranks = 2, .segments = segments_between(samples), .samples = samples};
    EXPECT_NO_THROW(doc::validate(doc::Cluster{.ranks = 2, .collectives = {cost}}));
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

// ---- what was measured on a device becomes costs of a Cluster ----

/// 20 us and 1 ns a byte, 10 us and 2 ns a byte.
CodecSamples linear_codec(const std::string& name) {
  CodecSamples samples{name, {}, {}};
  for (const double bytes : {1e4, 1e5, 1e6, 1e7}) {
    samples.encode.push_back({.bytes = bytes, .seconds = 20e-6 + 1e-9 * bytes});
    samples.decode.push_back({.bytes = bytes, .seconds = 10e-6 + 2e-9 * bytes});
  }
  return samples;
}

doc::Cluster cluster_of_processors() {
  return {
      .network = {1e9, 1e-5}, .codecs = {{"fp16", 7, 1, 7, 1}, {"other", 1, 1, 1, 1}}, .cores = 8};
}

TEST(DeviceSamples, AreFittedAndStandWhereThoseOfProcessorsDid) {
  doc::Cluster cluster = cluster_of_processors();
  add_device_samples(cluster, {.device = "cuda", .codecs = {linear_codec("fp16")}});
  ASSERT_EQ(cluster.codecs.size(), 2u);
  EXPECT_EQ(cluster.codecs[0].name, "other");
  EXPECT_EQ(cluster.codecs[0].device, "");
  const doc::CodecCost& cost = cluster.codecs[1];
  EXPECT_EQ(cost.name, "fp16");
  EXPECT_EQ(cost.device, "cuda");
  EXPECT_TRUE(cost.is_own());
  EXPECT_NEAR(cost.encode_tensor_s, 20e-6, 1e-9);
  EXPECT_NEAR(cost.encode_bytes_per_s, 1e9, 1e5);
  EXPECT_NEAR(cost.decode_tensor_s, 10e-6, 1e-9);
  EXPECT_NEAR(cost.decode_bytes_per_s, 5e8, 1e5);
  EXPECT_FALSE(cluster.second_order.has_value());
  EXPECT_EQ(doc::cluster_from_json(doc::to_json(cluster), "c").codecs[1].device, "cuda");
}

/// The code for devices on processors is still theirs.
TEST(DeviceSamples, OfAnAcceleratorShareNoCores) {
  doc::Cluster cluster = cluster_of_processors();
  add_device_samples(cluster, {.device = "cpu"});
  EXPECT_EQ(cluster.cores, 8);
  add_device_samples(cluster, {.device = "xpu"});
  EXPECT_FALSE(cluster.cores.has_value());
  EXPECT_THROW(add_device_samples(cluster, {.device = "cuda", .codecs = {{"topk", {}, {}}}}),
               UsageError);  // compresses nothing
}

TEST(DeviceSamples, OfKfacNameTheirDeviceAndKeepBatches) {
  doc::Cluster cluster = cluster_of_processors();
  doc::SecondOrderSamples samples;
  samples.inverses = {{64, 1e-4}, {256, 5e-4}};
  samples.factors = {{.flops = 1e9, .inputs = 1e5, .elements = 1e4, .seconds = 1e-3}};
  samples.directions = {{.flops = 1e8, .seconds = 1e-4}};
  samples.batches = {{64, 4, 4e-4, 1.1e-4}, {256, 4, 2e-3, 1.8e-3}};
  add_device_samples(cluster, {.device = "cuda", .second_order = samples});
  const doc::Cluster read = doc::cluster_from_json(doc::to_json(cluster), "c");
  ASSERT_TRUE(read.second_order.has_value());
  EXPECT_EQ(read.second_order->device, "cuda");
  EXPECT_EQ(read.second_order->inverses.size(), 2u);
  ASSERT_EQ(read.second_order->batches.size(), 2u);
  EXPECT_EQ(read.second_order->batches[1].dim, 256);
  EXPECT_EQ(read.second_order->batches[1].count, 4);
  EXPECT_EQ(read.second_order->batches[1].together_s, 1.8e-3);
}

/// So do its devices go to them in turn.
TEST(DeviceSamples, AreOfTheRanksOfAMachineInOrder) {
  comm::run_ranks(3, [](comm::Communicator& communicator) {
    EXPECT_EQ(rank_on_machine(communicator), communicator.rank());
  });
}

// ---- which size is measured next, on times with known answers; then a whole probe over a timer
// that measures nothing ----

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
