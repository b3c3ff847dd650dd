// Who touches which payload, as it follows from a Plan's edges.
#include "linerate/exec/streams/stream_program.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <set>
#include <string>
#include <vector>

#include "agreement/cases.hpp"

namespace linerate::exec {
namespace {

/// "encode writes encoded", of the tasks of the last variant that is scheduled: each once.
std::set<std::string> uses_of(const std::string& strategy, bool training) {
  const support::Setting setting = support::settings()[0];
  const doc::Cluster cluster = support::cluster_of(setting, 2);
  const doc::Plan plan = *support::plan_of(strategy, setting, cluster, 2, training);
  const PayloadUses uses(plan);
  const std::int32_t v = plan.cycle.front();
  const doc::TaskGraph& graph = plan.variants[static_cast<std::size_t>(v)];
  std::set<std::string> lines;
  for (std::uint32_t i = 0; i < graph.tasks.size(); ++i)
    for (const PayloadUse& use : uses.of(v, i)) {
      std::string content;  // of the payload with as many bytes: each has another number here
      for (const doc::Payload& p : graph.payloads)
        if (p.bytes() == uses.bytes(use.array)) content = name_of(p.content);
      lines.insert(fmt::format("{} {} {}", name_of(graph.tasks[i].kind),
                               use.writes ? "writes" : "reads", content));
    }
  return lines;
}

struct Uses {
  std::string strategy;
  bool training;
  std::vector<std::string> lines;
};

TEST(PayloadUses, FollowFromThePlansEdges) {
  const std::vector<Uses> cases = {
      {"ddp",
       false,
       {"backward writes gradients", "all-reduce writes gradients", "update reads gradients"}},
      // Autograd leaves gradients elsewhere; flags ride with the bucket, buffers travel alone.
      {"ddp",
       true,
       {"copy writes gradients", "copy reads gradients", "all-reduce writes gradients",
        "update reads gradients", "copy writes buffers", "broadcast writes buffers",
        "copy reads buffers"}},
      {"ddp(wire=fp16)",
       false,
       {"backward writes gradients", "encode reads gradients", "encode writes encoded",
        "all-reduce writes encoded", "decode reads encoded", "decode writes gradients",
        "update reads gradients"}},
      // halves that reach into the next step
      {"dear",
       false,
       {"backward writes gradients", "reduce-scatter writes gradients",
        "all-gather writes gradients", "update reads gradients"}}};
  for (const auto& [strategy, training, lines] : cases)
    EXPECT_THAT(uses_of(strategy, training), testing::UnorderedElementsAreArray(lines)) << strategy;
}

}  // namespace
}  // namespace linerate::exec
