#include "linerate/trace/export/perfetto.hpp"

#include <gmock/gmock.h>

#include <map>
#include <vector>

#include "linerate/doc/json.hpp"

namespace linerate::trace {
namespace {

using doc::Json;
using doc::Resource;
using doc::TaskKind;

/// Two ranks, one step each: backward of two layers, an all-reduce of both that starts inside the
/// second, a counter.
doc::Timeline sample() {
  doc::Timeline t;
  t.mode = "trained";
  t.ranks = 2;
  t.names = {"fc", "conv", "bucket 0"};
  t.parameter_names = {"conv.weight", "fc.weight"};
  t.parameter_sets = {{1}, {0}, {0, 1}};
  const auto add = [&](TaskKind kind, Resource resource, int rank, int name, int set,
                       std::int64_t start, std::int64_t end) {
    doc::Event e;
    e.kind = kind, e.resource = resource, e.rank = rank, e.name = name, e.set = set;
    e.start_ns = start, e.end_ns = end;
    t.events.push_back(e);
  };
  for (int rank = 0; rank < 2; ++rank) {
    t.steps.push_back({rank, 0, 5'000, 100'500, "steady"});
    add(TaskKind::backward, Resource::compute, rank, 0, 0, 10'000, 20'000);
    add(TaskKind::backward, Resource::compute, rank, 1, 1, 20'000, 40'001);
    add(TaskKind::all_reduce, Resource::network, rank, 2, 2, 41'000, 90'000);
    add(TaskKind::broadcast, Resource::network, rank, -1, -1, 60'000,
        95'000);  // still overlaps the all-reduce
  }
  t.counters.push_back({"cpu_share", 1, 1e-5, {{10'000, 0.5}, {20'000, 1}}});
  return t;
}

std::vector<Json> of_phase(const Json& trace, const std::string& phase) {
  std::vector<Json> found;
  for (const Json& e : trace.at("traceEvents"))
    if (e.at("ph") == phase) found.push_back(e);
  return found;
}

TEST(Perfetto, RanksAreProcessesAndResourcesAreTracks) {
  const Json trace = Json::parse(to_perfetto(sample()));
  std::map<std::pair<int, int>, std::string> tracks;
  int processes = 0;
  for (const Json& e : of_phase(trace, "M")) {
    processes += e.at("name") == "process_name";
    if (e.at("name") == "thread_name") tracks[{e.at("pid"), e.at("tid")}] = e.at("args").at("name");
  }
  EXPECT_EQ(processes, 2);
  for (const Json& e : of_phase(trace, "X")) {
    const std::string track = tracks.at({e.at("pid"), e.at("tid")}), category = e.at("cat");
    const std::map<std::string, std::string> expected = {{"backward", "compute"},
                                                         {"all-reduce", "network"},
                                                         {"step", "steps"},
                                                         {"broadcast", "network 2"}};
    EXPECT_EQ(track, expected.at(category));
  }
}

TEST(Perfetto, TimesAreMicrosecondsFromTheEarliestWithNanosecondDigits) {
  const Json trace = Json::parse(to_perfetto(sample()));
  for (const Json& e : of_phase(trace, "X")) {
    if (e.at("name") != "backward conv") continue;
    EXPECT_DOUBLE_EQ(e.at("ts"), 15);       // 20 us - 5 us of the step's start
    EXPECT_DOUBLE_EQ(e.at("dur"), 20.001);  // 40.001 - 20 us
  }
}

TEST(Perfetto, SlicesOfATrackLieBesideOrInsideEachOther) {
  // The broadcast overlaps the all-reduce without nesting in it, so it needs a track of its own.
  const Json trace = Json::parse(to_perfetto(sample()));
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> slices;
  for (const Json& e : of_phase(trace, "X")) {
    const double start = e.at("ts");
    slices[{e.at("pid"), e.at("tid")}].emplace_back(start, start + e.at("dur").get<double>());
  }
  EXPECT_EQ(slices.size(), 8u);  // on 2 ranks: steps, compute, network, network 2
  constexpr double kRounding = 1e-6;
  for (const auto& [track, list] : slices)
    for (const auto& [a0, a1] : list)
      for (const auto& [b0, b1] : list) {
        const bool beside = a1 <= b0 + kRounding || b1 <= a0 + kRounding;
        const bool inside = (a0 >= b0 && a1 <= b1) || (b0 >= a0 && b1 <= a1);
        EXPECT_TRUE(beside || inside) << a0 << ".." << a1 << " and " << b0 << ".." << b1;
      }
}

TEST(Perfetto, ArrowsLeadFromTheLastProducerToTheCollective) {
  const Json trace = Json::parse(to_perfetto(sample()));
  const std::vector<Json> starts = of_phase(trace, "s"), ends = of_phase(trace, "f");
  ASSERT_EQ(starts.size(), 2u);  // one a rank: the broadcast has no parameters
  ASSERT_EQ(ends.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(starts[i].at("id"), ends[i].at("id"));
    EXPECT_EQ(starts[i].at("pid"), ends[i].at("pid"));
    EXPECT_EQ(ends[i].at("bp"), "e");
    EXPECT_DOUBLE_EQ(starts[i].at("ts"),
                     15);                    // inside backward of conv, which ends after that of fc
    EXPECT_DOUBLE_EQ(ends[i].at("ts"), 36);  // the all-reduce starts
  }
  EXPECT_NE(starts[0].at("id"), starts[1].at("id"));
}

TEST(Perfetto, CountersKeepTheirValues) {
  const std::vector<Json> counters = of_phase(Json::parse(to_perfetto(sample())), "C");
  ASSERT_EQ(counters.size(), 2u);
  EXPECT_EQ(counters[0].at("pid"), 1);
  EXPECT_DOUBLE_EQ(counters[0].at("args").at("value"), 0.5);
}

TEST(Perfetto, AnEmptyTimelineIsAnEmptyTrace) {
  EXPECT_TRUE(Json::parse(to_perfetto({})).at("traceEvents").empty());
}

}  // namespace
}  // namespace linerate::trace
