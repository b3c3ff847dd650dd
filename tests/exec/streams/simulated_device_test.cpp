// The simulated devices notice what they are there for.
#include <gmock/gmock.h>

#include "exec/sample_plans.hpp"
#include "exec/streams/stream_jobs.hpp"

namespace linerate::support {
namespace {

using testing::HasSubstr;

/// Two gradients, a sum each, an update after both; two ranks, two steps.
StreamJob small_job() {
  doc::TaskGraph graph = exec::exchange_graph("steady", {1, 1});
  graph.add({.kind = doc::TaskKind::update,
             .origin = doc::Origin::observed,
             .resource = doc::Resource::compute,
             .subject = doc::Subject::payloads,
             .last = 1},
            1u, 3u);
  return enqueue_steps(exec::plan_of(2, {graph}, 2), 2);
}

/// Two collectives of no payload.
StreamJob collectives() {
  doc::Plan plan = empty_plan(2);
  for (const std::int64_t bytes : {4, 8}) plan.variants.front().add(exchange(bytes));
  return enqueue_steps(std::make_shared<const doc::Plan>(plan), 1);
}

std::size_t find_call(const StreamJob& job, int rank, exec::TaskId id) {
  const auto& calls = job.calls[static_cast<std::size_t>(rank)];
  return static_cast<std::size_t>(std::find_if(calls.begin(), calls.end(),
                                               [&](const StreamCall& c) {
                                                 return c.kind == StreamCall::Kind::enqueue &&
                                                        c.id == id;
                                               }) -
                                  calls.begin());
}

TEST(SimulatedDevices, RunEveryTaskOfEveryRank) {
  const StreamJob job = small_job();
  const SimulatedDevices devices(job, 1);
  EXPECT_EQ(devices.error(), "");
  EXPECT_EQ(devices.tasks(), 2 * 2 * 5);
}

TEST(SimulatedDevices, NoticeCollectivesInTwoOrders) {
  StreamJob job = collectives();
  std::swap(job.calls[1][find_call(job, 1, {0, 0})].id, job.calls[1][find_call(job, 1, {0, 1})].id);
  EXPECT_THAT(SimulatedDevices(job, 1).error(), HasSubstr("meets step 0 task"));
}

TEST(SimulatedDevices, NoticeACollectiveThatOneRankLacks) {
  const StreamJob job = collectives();
  const Tampering without{1, find_call(job, 1, {0, 1}), {}};
  EXPECT_THAT(SimulatedDevices(job, 1, without).error(), HasSubstr("does not come to its end"));
}

TEST(SimulatedDevices, NoticeATaskThatBeginsTooEarly) {
  const StreamJob job = small_job();
  for (const Tampering& wait : waits_of(job, 0))
    EXPECT_THAT(error_without(job, wait, 1), HasSubstr("begins before"));
}

TEST(SimulatedDevices, NoticeMemoryThatIsInUse) {
  // The Plan has no edge from the sum to the gradient of the next step, which goes where it is.
  const StreamJob job =
      enqueue_steps(exec::plan_of(1, {exec::exchange_graph("steady", {1})}, 1), 2);
  const std::vector<Tampering> waits = waits_of(job, 0);
  ASSERT_EQ(waits.size(), 3u);
  EXPECT_THAT(error_without(job, waits[1], 1), HasSubstr("finds array 0 as it was or will be"));
}

}  // namespace
}  // namespace linerate::support
