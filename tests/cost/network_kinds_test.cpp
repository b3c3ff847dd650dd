#include "linerate/cost/network_kinds.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "linerate/cost/cost_model.hpp"
#include "support/message_of.hpp"

namespace linerate::cost {
namespace {

using ::testing::HasSubstr;

const NetworkKind& kind(const std::string& name) {
  const auto& all = network_kinds();
  return *std::find_if(all.begin(), all.end(), [&](const auto& k) { return k.name == name; });
}

Estimate all_reduce(const doc::Cluster& cluster, int ranks, double bytes,
                    const CostOptions& options = {}) {
  return CostModel(cluster, options).collective(Collective::all_reduce, std::llround(bytes), ranks);
}

/// Every kind inside nodes with every kind between them: {name, Cluster}.
std::vector<doc::Cluster> every_network() {
  std::vector<doc::Cluster> all;
  for (const NetworkKind& inside : network_kinds())
    for (const NetworkKind& between : network_kinds())
      if (!inside.between && between.between)
        all.push_back(nominal_cluster((inside.name == "1x" ? "1x" : "4x" + inside.name) + "," +
                                      between.name + ":100Gbit/s"));
  return all;
}

TEST(NetworkKinds, OneRingTakesItsSlowestLinkForTheBytesOfAllRanks) {
  const NetworkKind &tcp = kind("tcp"), &pcie = kind("pcie3");
  const doc::Cluster box = nominal_cluster("4xpcie3,tcp:10Gbit/s");
  const double bytes = 1 << 28, line = tcp.level.goodput(1.25e9);
  // 8 ranks: 14 message steps over the line, 2 * 7/8 of the data at the line's rate.
  EXPECT_NEAR(all_reduce(box, 8, bytes).seconds,
              tcp.level.start_s + 14 * tcp.step_s + 1.75 * bytes / line, 1e-9);
  // On one node only its own links count; over a line that is quicker than those, too.
  const double inside = pcie.level.goodput(pcie.line_bytes_per_s);
  EXPECT_NEAR(all_reduce(box, 4, bytes).seconds,
              pcie.level.start_s + 6 * pcie.step_s + 1.5 * bytes / inside, 1e-9);
  EXPECT_NEAR(all_reduce(nominal_cluster("4xpcie3,rdma:1000Gbit/s"), 8, bytes).seconds,
              kind("rdma").start_up_s(8) + 1.75 * bytes / inside, 1e-9);
}

TEST(NetworkKinds, ByNodeTheLineCarriesTheBytesOfNodes) {
  const NetworkKind& efa = kind("efa");
  const doc::Cluster nodes = nominal_cluster("8xnvlink4,efa:100Gbit/s");
  const double bytes = 1 << 30, line = efa.level.goodput(12.5e9);
  const auto bulk = [&](int ranks) {
    return all_reduce(nodes, ranks, 2 * bytes).seconds - all_reduce(nodes, ranks, bytes).seconds;
  };
  EXPECT_NEAR(bulk(16), 2 * 0.5 * bytes / line, 1e-9);
  EXPECT_NEAR(bulk(64), 2 * 7.0 / 8 * bytes / line, 1e-9);
}

// Up to the switches and down again at once: the data crosses the line once.
TEST(NetworkKinds, SwitchesThatAddTakeTheBytesOnce) {
  const doc::Cluster sharp = nominal_cluster("8xnvlink4,sharp:100Gbit/s");
  const double bytes = 1 << 30, line = kind("sharp").level.goodput(12.5e9);
  for (const int ranks : {16, 64, 512}) {
    const CostModel model(sharp);
    EXPECT_NEAR(
        all_reduce(sharp, ranks, 2 * bytes).seconds - all_reduce(sharp, ranks, bytes).seconds,
        bytes / line, 1e-9);
    if (ranks > 16) {  // between two nodes either sends the bytes once
      EXPECT_LT(
          all_reduce(sharp, ranks, bytes).seconds,
          0.7 * all_reduce(nominal_cluster("8xnvlink4,rdma:100Gbit/s"), ranks, bytes).seconds);
    }
    for (const std::int64_t size : {1 << 10, 1 << 20, 1 << 30})
      EXPECT_LE(model.collective(Collective::all_gather, size, ranks).seconds,
                model.collective(Collective::all_reduce, size, ranks).seconds);
  }
}

// The widest part is named first, with what remains without it.
TEST(NetworkKinds, TheNoteNamesWhatHalvesTheInterval) {
  const doc::Cluster cluster = nominal_cluster("4xpcie3,tcp:10Gbit/s");
  const auto note_of = [&](double inside, double between, double step) {
    return nominal_note(cluster, 8, [&](const doc::Cluster& c) {
      return (c.nominal->inside.transfer_spread > 1 ? inside : 0) +
             (c.nominal->between.transfer_spread > 1 ? between : 0) +
             (c.nominal->step_spread > 0 ? step : 0);
    });
  };
  EXPECT_THAT(note_of(1, 6, 1),
              HasSubstr("first measure all-reduces of 64 KiB to 256 MiB between nodes"));
  EXPECT_THAT(note_of(1, 6, 1), HasSubstr("leaves 25 % of its width."));
  EXPECT_THAT(note_of(6, 1, 1), HasSubstr("first measure all-reduces of 64 KiB to 256 MiB among"));
  EXPECT_THAT(note_of(3, 2, 4), testing::AllOf(HasSubstr("first measure one rank's step"),
                                               HasSubstr("56 % of its width; then all-reduces"),
                                               HasSubstr("22 % of its width.")));
  EXPECT_THAT(note_of(0, 0, 0), testing::Not(HasSubstr("halve")));
}

TEST(NetworkKinds, EveryNetworkKeepsItsOrder) {
  for (const doc::Cluster& cluster : every_network()) {
    const int g = cluster.ranks_per_node;
    double before = 0;
    for (const int nodes : {1, 2, 4, 8, 64}) {
      const int ranks = g * nodes;
      if (ranks == 1) continue;
      const double bytes = 1 << 26;
      const Estimate e = all_reduce(cluster, ranks, bytes);
      EXPECT_LT(e.low, e.seconds) << cluster.name << ranks;
      EXPECT_GT(e.high, e.seconds) << cluster.name << ranks;
      EXPECT_GT(e.seconds, before) << cluster.name << ranks << " took less than fewer ranks";
      // No law sends less over a line than what nodes have to.
      if (nodes > 1) {
        EXPECT_GE(e.seconds,
                  (cluster.nominal->between.adds ? 1 : bus_factor(Collective::all_reduce, nodes)) *
                      bytes / 12.5e9)
            << cluster.name << ranks;
      }
      const CostModel model(cluster);
      for (const Collective half : {Collective::reduce_scatter, Collective::all_gather})
        EXPECT_LT(model.collective(half, 1 << 26, ranks).seconds, e.seconds) << cluster.name;
      before = e.seconds;
    }
  }
}

TEST(NetworkKinds, AnotherBandwidthIsAnotherLine) {
  const CostOptions faster{.bandwidth = BytesPerSecond{5e9}};
  const double bytes = 1 << 28;
  EXPECT_NEAR(all_reduce(nominal_cluster("tcp:1Gbit/s"), 4, bytes, faster).seconds,
              all_reduce(nominal_cluster("tcp:40Gbit/s"), 4, bytes).seconds, 1e-9);
}

// The ring's own point; the interval holds every kind within a data centre.
TEST(NetworkKinds, ABandwidthAloneReachesUpToTheSlowestKind) {
  for (const double gbit : {1.0, 10.0, 100.0, 400.0}) {
    doc::Cluster alone;
    alone.network.bandwidth_bytes_per_s = gbit * 1e9 / 8;
    const double point = all_reduce(alone, 16, 1 << 26).seconds;
    alone.nominal = any_network();
    const Estimate e = all_reduce(alone, 16, 1 << 26);
    EXPECT_EQ(e.seconds, point);
    EXPECT_EQ(e.low, point);
    for (const NetworkKind& k : network_kinds())
      if (k.between && k.name != "wan") {
        EXPECT_GE(
            e.high,
            all_reduce(nominal_cluster(k.name + ":" + std::to_string(gbit) + "Gbit/s"), 16, 1 << 26)
                .seconds)
            << k.name;
      }
  }
}

TEST(NetworkKinds, KindsNobodyMeasuredHaveTheWidestSpread) {
  double widest = 1;
  for (const NetworkKind& k : network_kinds()) widest = std::max(widest, k.level.transfer_spread);
  for (const NetworkKind& k : network_kinds()) {
    EXPECT_FALSE(k.sources.empty()) << k.name;
    EXPECT_TRUE(k.level.measurements > 0 || k.level.transfer_spread == widest) << k.name;
  }
}

TEST(NetworkKinds, RefusalsSayWhatIsExpected) {
  const auto error = [](const char* text) {
    return support::message_of([&] { return nominal_cluster(text); });
  };
  struct Case {
    const char *text, *said;
  };
  for (const auto& [text, part] :
       {Case{"4xpcie9,tcp:1Gbit/s", "did you mean pcie"},
        Case{"4x,tcp:1Gbit/s", "the link between the 4"},
        Case{"4xpcie3,tpc:1Gbit/s", "one of tcp, rdma"}, Case{"4xpcie3,tcp", "line of a node"},
        Case{"tcp:10", "a rate with a unit"}, Case{"", "expected a network"},
        Case{"1x", "line of a node"}, Case{"0xpcie3", "ranks a node"},
        Case{"tcp:1Gbit/s,efa:1Gbit/s", "one line"}, Case{"a,b,c", "expected a network"}})
    EXPECT_THAT(error(text), HasSubstr(part)) << text;
}

TEST(NetworkKinds, ADocumentKeepsItsKind) {
  for (const doc::Cluster& cluster : every_network()) {
    const doc::Cluster read = doc::cluster_from_json(to_json(cluster), "c.json");
    EXPECT_EQ(to_json(read), to_json(cluster));
    EXPECT_EQ(all_reduce(read, 8, 1e6).high, all_reduce(cluster, 8, 1e6).high);
  }
}

TEST(NetworkKinds, NotesSayThatNothingWasMeasuredUnlessSomethingWas) {
  const auto unknown = [](const doc::Cluster&) { return 0.0; };
  EXPECT_THAT(nominal_note(nominal_cluster("4xpcie3,tcp:10Gbit/s"), 8, unknown),
              HasSubstr("4xpcie3,tcp:10Gbit/s is known by its kind alone"));
  doc::Cluster measured;
  measured.nominal = any_network();
  EXPECT_THAT(nominal_note(measured, 8, unknown), HasSubstr("its kind is not known"));
  doc::CollectiveCost& cost = measured.collectives.emplace_back();
  cost.ranks = 2;
  cost.segments = {{0, 100, 0, 1e-9}};
  EXPECT_EQ(nominal_note(measured, 8, unknown), "");
}

}  // namespace
}  // namespace linerate::cost
