#include "linerate/doc/cluster.hpp"

#include <gmock/gmock.h>

namespace linerate::doc {
namespace {

/// Older readers refuse keys that they do not know: only what needs a new one has it.
TEST(Cluster, OfProcessorsHasNoKeysOfDevices) {
  Cluster c;
  c.network = {1e9, 1e-5};
  c.codecs.push_back({"topk", 0, 1e9, 0, 2e9});
  c.second_order = SecondOrderCost{1e-3, 4e-13};
  EXPECT_THAT(to_json(c), testing::Not(testing::HasSubstr("device")));
  EXPECT_THAT(to_json(c), testing::Not(testing::HasSubstr("batches")));
}

TEST(Cluster, MayBeWrittenByHandWithUnits) {
  const Cluster c = cluster_from_json(
      R"({"document": "cluster", "schema": 1, "ranks": 4, "network": {"bandwidth": "100 Gbit/s",)"
      R"( "latency": "20 us"}})",
      "c");
  EXPECT_DOUBLE_EQ(c.network.bandwidth_bytes_per_s, 12.5e9);
  EXPECT_DOUBLE_EQ(c.network.latency_s, 2e-5);
}

}  // namespace
}  // namespace linerate::doc
