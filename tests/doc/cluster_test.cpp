#include "linerate/doc/cluster.hpp"

#include <gmock/gmock.h>

#include "linerate/core/error.hpp"

namespace linerate::doc {
namespace {

TEST(Cluster, RoundTripsThroughJson) {
  Cluster c;
  c.ranks = 16;
  c.ranks_per_node = 8;
  c.network = {1.25e9, 2e-5};
  c.node = Link{1e11, 1e-6};
  c.collectives.push_back({Collective::all_reduce,
                           16,
                           DType::f16,
                           true,
                           "log",
                           {{1, 100, 1e-5, 1e-9, 0.9, 1.1}},
                           {{50, 60}},
                           {{1, 2e-5, 0, 0}},
                           0.01,
                           0.02});
  c.codecs.push_back({"topk", 0, 1e9, 0, 2e9});
  c.contention = Contention{1.1, 1.2};
  c.rank_speeds = {{3, 1.5, 0.01}};
  c.memory_bytes = 1e9;
  const std::string text = to_json(c);
  EXPECT_EQ(to_json(cluster_from_json(text, "c.json")), text);
}

TEST(Cluster, MayBeWrittenByHandWithUnits) {
  const Cluster c = cluster_from_json(
      R"({"document": "cluster", "schema": 1, "ranks": 4, "network": {"bandwidth": "100 Gbit/s", "latency": "20 us"}})",
      "c");
  EXPECT_DOUBLE_EQ(c.network.bandwidth_bytes_per_s, 12.5e9);
  EXPECT_DOUBLE_EQ(c.network.latency_s, 2e-5);
}

TEST(Cluster, AWrongUnitNamesThePlace) {
  try {
    cluster_from_json(
        R"({"document": "cluster", "schema": 1, "network": {"bandwidth": "100 Gbit"}})", "c.json");
    FAIL();
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("c.json: /network/bandwidth: unknown unit \"Gbit\""));
  }
}

TEST(Cluster, WithoutLinksOrMeasurementsIsRefused) {
  EXPECT_THROW(cluster_from_json(R"({"document": "cluster", "schema": 1})", "c.json"), InputError);
}

}  // namespace
}  // namespace linerate::doc
