// Which of a rank's inverses may be computed at once, and where each goes.
#include "linerate/exec/streams/inverse_runs.hpp"

#include <gmock/gmock.h>

#include "exec/sample_plans.hpp"
#include "linerate/core/error.hpp"

namespace linerate::exec {
namespace {

using doc::TaskGraph;
using doc::TaskKind;
using testing::ElementsAre;

/// One letter a task of the compute lane: i an inverse, a an average of factors, c something else,
/// o an inverse that others observe; with its seconds. Bytes are 1.
TaskGraph lane(const std::string& letters, const std::vector<double>& seconds = {}) {
  TaskGraph graph;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    doc::Task task;
    const bool inverts = letters[i] == 'i' || letters[i] == 'o';
    task.kind = inverts ? TaskKind::inverse : TaskKind::copy;
    task.origin = letters[i] == 'o' ? doc::Origin::observed : doc::Origin::executed;
    task.resource = doc::Resource::compute;
    task.operation = letters[i] == 'a' ? 2 : 1;
    task.bytes = 1;
    task.seconds = i < seconds.size() ? seconds[i] : 0;
    graph.add(task);
  }
  return graph;
}

std::shared_ptr<doc::Plan> plan_with(const TaskGraph& graph, int ranks = 1) {
  auto plan = plan_of(ranks, {graph}, 0);
  plan->operations.push_back({"average-factors", {}});
  return plan;
}

std::vector<std::int32_t> runs(const doc::Plan& plan, const InverseRuns& found) {
  std::vector<std::int32_t> all;
  for (std::uint32_t i = 0; i < plan.variants[0].tasks.size(); ++i)
    all.push_back(found.run_of(0, i));
  return all;
}

std::vector<std::int32_t> places(const doc::Plan& plan, const InverseStreams& inverses = {}) {
  const InverseRuns found(plan, 0, inverses);
  std::vector<std::int32_t> all;
  for (std::uint32_t i = 0; i < plan.variants[0].tasks.size(); ++i)
    all.push_back(found.place_of(0, i));
  return all;
}

TEST(InverseRuns, AreInversesThatFollowEachOther) {
  const auto plan = plan_with(lane("ciiciiioi"));
  EXPECT_THAT(runs(*plan, InverseRuns(*plan, 0, {})), ElementsAre(-1, 0, 0, -1, 1, 1, 1, -1, 2));
}

/// Averages have a run only with an inverse.
TEST(InverseRuns, GoOnOverAveragesOfFactors) {
  const auto plan = plan_with(lane("aciaaiacaaia"));
  EXPECT_THAT(runs(*plan, InverseRuns(*plan, 0, {})),
              ElementsAre(-1, -1, 0, 0, 0, 0, 0, -1, 1, 1, 1, 1));
}

/// What is in the compute stream makes averages wait, and the inverses that wait for those.
TEST(InverseRuns, GoToSideStreamsFirstWhileAveragesAreLeft) {
  const auto plan = plan_with(lane("aiaiaiaii"));
  EXPECT_THAT(places(*plan, {.at_once = 3}), ElementsAre(0, 1, 0, 2, 0, 0, 0, 0, 1));
  EXPECT_THAT(places(*plan, {.at_once = 1}), testing::Each(0));
}

TEST(InverseRuns, AreOfOneRank) {
  const auto plan = plan_with(lane("icii"), 2);
  plan->groups.push_back({"rank 1", {{1}}});
  plan->variants[0].tasks[1].group = 1;  // rank 0 does not have what is in between
  plan->variants[0].tasks[2].group = 1;
  EXPECT_THAT(runs(*plan, InverseRuns(*plan, 0, {})), ElementsAre(0, -1, -1, 0));
  EXPECT_THAT(runs(*plan, InverseRuns(*plan, 1, {})), ElementsAre(0, -1, 1, 1));
}

TEST(InverseRuns, GoWhereThereIsLeastToDo) {
  // 5 s in the compute stream; 2 s, then 2 s on side streams; 1 s joins the first 2 s, 1 s the
  // second.
  const auto plan = plan_with(lane("iiiii", {5, 2, 2, 1, 1}));
  EXPECT_THAT(places(*plan, {.at_once = 3}), ElementsAre(0, 1, 2, 1, 2));
  EXPECT_THAT(places(*plan, {.at_once = 2}), ElementsAre(0, 1, 1, 1, 0));
}

TEST(InverseRuns, WithoutSecondsTakeTurns) {
  const auto plan = plan_with(lane("iiiiicii"));
  EXPECT_THAT(places(*plan, {.at_once = 3}), ElementsAre(0, 1, 2, 0, 1, 0, 0, 1));
  EXPECT_EQ(InverseRuns(*plan, 0, {}).sides(), 3);
}

TEST(InverseRuns, OneAtOnceStaysInTheLane) {
  const auto plan = plan_with(lane("iiii"));
  EXPECT_THAT(places(*plan, {.at_once = 1}), ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(InverseRuns(*plan, 0, {.at_once = 1}).sides(), 0);
  EXPECT_THROW(InverseRuns(*plan, 0, {.at_once = 0}), InternalError);
}

/// A stream keeps what its largest inverse has taken.
TEST(InverseRuns, TakeNoMoreMemoryOnSideStreamsThanIsSaid) {
  const auto plan = plan_with(lane("iiiiiciii"));
  std::vector<doc::Task>& tasks = plan->variants[0].tasks;
  for (const std::uint32_t i : {1u, 6u, 7u, 8u}) tasks[i].bytes = 3;
  const std::int64_t room = inverse_workspace(tasks[1]) + inverse_workspace(tasks[0]);
  // 3 and 1 on side streams; then 3 where 3 has been, and nowhere else.
  EXPECT_THAT(places(*plan, {.at_once = 3, .workspace_bytes = room}),
              ElementsAre(0, 1, 2, 0, 1, 0, 0, 1, 0));
  EXPECT_THAT(places(*plan, {.at_once = 3, .workspace_bytes = room - 1}),
              ElementsAre(0, 1, 0, 1, 0, 0, 0, 1, 0));
  EXPECT_THAT(places(*plan, {.at_once = 3, .workspace_bytes = 2}), testing::Each(0));
}

}  // namespace
}  // namespace linerate::exec
