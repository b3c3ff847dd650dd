// A Plan as a graph, and schedules as text. tests/cli/plan.cli has the tables.
#include <gmock/gmock.h>

#include "linerate/report/texts.hpp"

namespace linerate::report {
namespace {

using testing::HasSubstr;

// Two variants of three tasks and three edges, the first one reaching into the second.
doc::Plan plan_of(const std::string& gradient) {
  doc::Plan plan;
  plan.strategy = "ddp";
  plan.workload = "tiny";
  plan.ranks = 2;
  plan.gradient_names = {gradient};
  for (const char* name : {"first-step", "steady"}) {
    doc::TaskGraph& g = plan.variants.emplace_back();
    g.name = name;
    g.members = {0};
    g.payloads = {{.begin = 0, .end = 1, .elements = 1001, .padded = 1002}};
    const auto backward = g.add({.kind = doc::TaskKind::backward,
                                 .origin = doc::Origin::observed,
                                 .resource = doc::Resource::compute,
                                 .subject = doc::Subject::gradients,
                                 .operation = plan.operation({"autograd", {}}),
                                 .first = 0,
                                 .last = 0,
                                 .seconds = 0.25});
    const auto exchange = g.add({.kind = doc::TaskKind::all_reduce,
                                 .resource = doc::Resource::network,
                                 .subject = doc::Subject::payloads,
                                 .operation = plan.operation({"sum", {}}),
                                 .first = 0,
                                 .last = 0,
                                 .bytes = 4008},
                                backward);
    g.add({.kind = doc::TaskKind::update, .resource = doc::Resource::compute}, backward, exchange);
  }
  plan.variants[0].next_step = {{2, 0, 1}};
  plan.warm_up = {0};
  plan.cycle = {1};
  return plan;
}

int occurrences(const std::string& text, const std::string& word) {
  int found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    ++found;
  return found;
}

TEST(PlanDot, HasNodesArrowsAndFramesOfTheLanesThatHaveTasks) {
  const std::string dot = to_dot(plan_of("w"));
  const std::pair<const char*, int> all[] = {{"t0 [label", 2},
                                             {"t1 [label", 2},
                                             {"t2 [label", 2},
                                             {" -> ", 2 * 3 + 1},
                                             {"v0t2 -> v1t0 [style=dashed", 1},
                                             {"style=dashed", 1},
                                             {"style=rounded", 2},  // autograd's
                                             {"subgraph ", 2 * (1 + 2)},
                                             {"label=\"compute\"", 2},
                                             {"label=\"codec\"", 0}};
  for (const auto& [word, times] : all) EXPECT_EQ(occurrences(dot, word), times) << word;
  EXPECT_EQ(occurrences(dot, "{"), occurrences(dot, "}"));
}

TEST(PlanDot, QuotesOddNames) {
  EXPECT_THAT(to_dot(plan_of("a \"b\"\\")),
              HasSubstr(R"dot([label="backward a \"b\"\\ (autograd)", style=rounded];)dot"));
  EXPECT_THAT(to_dot(plan_of("two\nlines")), HasSubstr("backward two lines"));
}

}  // namespace
}  // namespace linerate::report
