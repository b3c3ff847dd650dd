#include "linerate/doc/cluster.hpp"

#include <gmock/gmock.h>

#include "linerate/core/error.hpp"
#include "support/message_of.hpp"

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

std::string refusal_of_cluster(const std::string& network, const std::string& more) {
  return support::message_of<InputError>([&] {
    return cluster_from_json(
        R"({"document": "cluster", "schema": 1, "network": {)" + network + "}" + more + "}",
        "c.json");
  });
}

// A Cluster on 10 Gbit/s with one more member.
std::string cluster_error(const std::string& member) {
  return refusal_of_cluster(R"("bandwidth": "10 Gbit/s")", ", " + member);
}

TEST(Cluster, AWrongUnitNamesThePlace) {
  EXPECT_THAT(refusal_of_cluster(R"("bandwidth": "100 Gbit")", ""),
              testing::HasSubstr("c.json: /network/bandwidth: expected a rate such as 10Gbit/s, "
                                 "found the unknown unit \"Gbit\""));
}

TEST(UnknownKeys, AreRefusedWhereTheyStandWithTheNearestKnown) {
  EXPECT_THAT(refusal_of_cluster(R"("bandwidth": "10 Gbit/s", "latncy": "20us")", ""),
              testing::AllOf(testing::HasSubstr("c.json: /network: unknown key \"latncy\""),
                             testing::HasSubstr("latency")));
  EXPECT_THAT(cluster_error(R"("contenton": {})"), testing::HasSubstr("contention"));
  EXPECT_THAT(
      cluster_error(R"("rank_speeds": [{"rank": 0, "delay_s": 1}, {"rank": 1, "dealy_s": 1}])"),
      testing::HasSubstr("/rank_speeds/1: unknown key \"dealy_s\"; did you mean \"delay_s\"?"));
}

TEST(UnknownKeys, CommentsMayStandNextToThem) {
  EXPECT_EQ(cluster_error(R"("_measured": "on a Sunday", "comment": ["as", "it", "was"])"),
            "no error");
}

/// What the reader says. That it refuses every rule's breach is in validate_test.cpp.
TEST(Cluster, ThatIsImpossibleIsRefusedWhereItIs) {
  for (const auto& [member, said] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"("ranks": -3)", "c.json: /ranks: expected 0 to"},
           {R"("contention": {"compute_slowdown": 0, "communication_slowdown": 1})",
            "/contention/compute_slowdown: expected more than 0, found 0"},
           {R"("second_order": 3)", "/second_order: expected an object, found number 3"},
           {R"("second_order": ["x"])", "/second_order: expected an object, found array"},
           {R"("rank_speeds": [7])", "/rank_speeds/0: expected an object with key"},
           {R"("noise_floor": -1)", "/noise_floor: expected at least 0"},
           {R"("collectives": [{"collective": "all-reduce", "ranks": 4, "segments": [
               {"from_bytes": 0, "to_bytes": 10, "alpha_s": 1e300, "beta_s_per_byte": 0}]}])",
            "/segments/0/alpha_s: expected a number of at most 1e+30, found 1e+300"},
           {R"("second_order": {"device": 1})",
            "/second_order/device: expected a text, found number 1"}})
    EXPECT_THAT(cluster_error(member), testing::HasSubstr(said));
}

TEST(Cluster, WithoutLinksOrMeasurementsIsRefused) {
  EXPECT_THROW(
      static_cast<void>(cluster_from_json(R"({"document": "cluster", "schema": 1})", "c.json")),
      InputError);
}

}  // namespace
}  // namespace linerate::doc
