#include "linerate/doc/cluster.hpp"

#include <gmock/gmock.h>

#include "linerate/core/error.hpp"

namespace linerate::doc {
namespace {

TEST(Cluster, RoundTripsThroughJson) {
  Cluster c;
  c.ranks = 16;
  c.ranks_per_node = 8;
  c.network = {1.25e9, 2e-5, 2.5e9};
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
                           0.02,
                           8});
  c.codecs.push_back({"topk", 0, 1e9, 0, 2e9});
  c.second_order =
      SecondOrderCost{1e-3, 4e-13, {{64, 1e-4}, {128, 2e-4}}, 1e-4, 1e13, 1e-10, 1e-9, 1e-5, 1e12};
  c.codecs[0].device = c.second_order->device = "cuda";
  c.second_order->batches = {{8, 4, 4e-4, 1e-4}, {64, 4, 8e-4, 7e-4}};
  c.contention = Contention{1.1, 1.2, 1.3};
  c.rank_speeds = {{3, 1.5, 0.01}};
  c.memory_bytes = 1e9;
  c.tensor_s = 1e-4;
  c.half_sum_s_per_byte = 1e-9;
  c.cores = 2;
  c.start_delay_s = 2e-5;
  const std::string text = to_json(c);
  EXPECT_EQ(to_json(cluster_from_json(text, "c.json")), text);
  EXPECT_EQ(cluster_from_json(text, "c.json").start_delay_s, 2e-5);
  EXPECT_EQ(cluster_from_json(text, "c.json").codecs.at(0).device, "cuda");
  EXPECT_EQ(cluster_from_json(text, "c.json").second_order->batches.at(1).together_s, 7e-4);
}

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

TEST(Cluster, AWrongUnitNamesThePlace) {
  try {
    static_cast<void>(cluster_from_json(
        R"({"document": "cluster", "schema": 1, "network": {"bandwidth": "100 Gbit"}})", "c.json"));
    FAIL();
  } catch (const InputError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("c.json: /network/bandwidth: expected a rate such as "
                                             "10Gbit/s, found the unknown unit \"Gbit\""));
  }
}

// A Cluster on 10 Gbit/s with one more member.
std::string cluster_error(const std::string& member) {
  try {
    static_cast<void>(cluster_from_json(
        R"({"document": "cluster", "schema": 1, "network": {"bandwidth": "10 Gbit/s"}, )" + member +
            "}",
        "c.json"));
  } catch (const InputError& e) {
    return e.what();
  }
  return "no error";
}

/// What the reader says. That it refuses every rule's breach is in validate_test.cpp.
struct Impossible {
  const char* member;
  const char* place;
};

class ImpossibleCluster : public testing::TestWithParam<Impossible> {};

TEST_P(ImpossibleCluster, IsRefusedWhereItStands) {
  EXPECT_THAT(cluster_error(GetParam().member), testing::HasSubstr(GetParam().place));
}

INSTANTIATE_TEST_SUITE_P(
    Cluster, ImpossibleCluster,
    testing::Values(
        Impossible{R"("ranks": -3)", "c.json: /ranks: expected 0 to"},
        Impossible{R"("contention": {"compute_slowdown": 0, "communication_slowdown": 1})",
                   "/contention/compute_slowdown: expected more than 0, found 0"},
        Impossible{R"("second_order": 3)", "/second_order: expected an object, found number 3"},
        Impossible{R"("second_order": ["x"])", "/second_order: expected an object, found array"},
        Impossible{R"("rank_speeds": [7])", "/rank_speeds/0: expected an object with key"},
        Impossible{R"("noise_floor": -1)", "/noise_floor: expected at least 0"},
        Impossible{
            R"("collectives": [{"collective": "all-reduce", "ranks": 4, "segments": [
               {"from_bytes": 0, "to_bytes": 10, "alpha_s": 1e300, "beta_s_per_byte": 0}]}])",
            "/segments/0/alpha_s: expected a number of at most 1e+30, found 1e+300"},
        Impossible{R"("second_order": {"device": 1})",
                   "/second_order/device: expected a text, found number 1"}));

TEST(Cluster, WithoutLinksOrMeasurementsIsRefused) {
  EXPECT_THROW(
      static_cast<void>(cluster_from_json(R"({"document": "cluster", "schema": 1})", "c.json")),
      InputError);
}

}  // namespace
}  // namespace linerate::doc
