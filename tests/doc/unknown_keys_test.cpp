// Keys that no reader asks for.
#include <gmock/gmock.h>

#include "linerate/core/error.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/timeline.hpp"
#include "linerate/doc/workload.hpp"

namespace linerate::doc {
namespace {

using testing::HasSubstr;

std::string refusal_of(const std::string& text) {
  try {
    static_cast<void>(cluster_from_json(text, "c.json"));
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

std::string cluster(const std::string& network, const std::string& more = "") {
  return R"({"document": "cluster", "schema": 1, "ranks": 4, "network": {)" + network + "}" + more +
         "}";
}

const std::string kLink = R"("bandwidth": "10 Gbit/s", "latency": "20us")";

TEST(UnknownKeys, AreRefusedWhereTheyStandWithTheNearestKnown) {
  EXPECT_EQ(refusal_of(cluster(kLink)), "");
  const std::string misspelt = refusal_of(cluster(R"("bandwidth": "10 Gbit/s", "latncy": "20us")"));
  EXPECT_THAT(misspelt, HasSubstr("c.json: /network: unknown key \"latncy\""));
  EXPECT_THAT(misspelt, HasSubstr("latency"));
  EXPECT_THAT(refusal_of(cluster(kLink, R"(, "contenton": {})")), HasSubstr("contention"));
  EXPECT_THAT(
      refusal_of(cluster(
          kLink, R"(, "rank_speeds": [{"rank": 0, "delay_s": 1}, {"rank": 1, "dealy_s": 1}])")),
      HasSubstr("/rank_speeds/1: unknown key \"dealy_s\"; did you mean \"delay_s\"?"));
}

TEST(UnknownKeys, CommentsMayStandBesideThem) {
  EXPECT_EQ(
      refusal_of(cluster(kLink, R"(, "_measured": "on a Sunday", "comment": ["as", "it", "was"])")),
      "");
}

TEST(UnknownKeys, AreRefusedInDocumentsOfEveryKind) {
  Workload w;
  w.name = "w";
  Gradient g;
  g.name = "g";
  g.elements = 1;
  w.gradients = {g};
  std::string text = to_json(w);
  EXPECT_NO_THROW(static_cast<void>(workload_from_json(text, "w.json")));
  const std::string key = "\"ready_s\"";
  text.insert(text.find(key), "\"elments\": 3, ");
  EXPECT_THROW(static_cast<void>(workload_from_json(text, "w.json")), InputError);
  std::string timeline = to_json(Timeline{});
  EXPECT_NO_THROW(static_cast<void>(timeline_from_json(timeline, "t.json")));
  timeline.insert(timeline.find("\"mode\""), "\"moed\": 3, ");
  EXPECT_THROW(static_cast<void>(timeline_from_json(timeline, "t.json")), InputError);
}

}  // namespace
}  // namespace linerate::doc
