// What a rank asks of its device, call by call, for Plans written by hand.
#include "linerate/exec/streams/stream_runner.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "exec/sample_plans.hpp"
#include "exec/streams/simulated_device.hpp"
#include "linerate/core/error.hpp"

namespace linerate::exec {
namespace {

using doc::Resource;
using doc::TaskGraph;
using doc::TaskKind;
using support::RecordedStreams;
using support::StreamCall;
using testing::ElementsAre;

/// "compute: 0", "compute records 0", "network whole waits 0", "host waits 1": of plans that
/// compute and exchange among all ranks.
std::vector<std::string> lines_of(const std::vector<StreamCall>& calls) {
  std::vector<std::string> lines;
  const auto name = [](StreamId stream) {
    return stream == LaneStreams::kComputeStream ? "compute" : "network whole";
  };
  for (const StreamCall& c : calls) switch (c.kind) {
      case StreamCall::Kind::enqueue:
        lines.push_back(fmt::format("{}: {}", name(c.stream), c.id.task));
        break;
      case StreamCall::Kind::record:
        lines.push_back(fmt::format("{} records {}", name(c.stream), c.event));
        break;
      case StreamCall::Kind::wait:
        lines.push_back(fmt::format("{} waits {}", name(c.stream), c.event));
        break;
      case StreamCall::Kind::host_wait:
        lines.push_back(fmt::format("host waits {}", c.event));
        break;
      default:
        ADD_FAILURE() << "nobody reads times";
    }
  return lines;
}

/// A rank's calls, by step.
struct Enqueued {
  explicit Enqueued(std::shared_ptr<doc::Plan> plan)
      : program(make_stream_program(plan, 0)), device(*plan), runner(program, device) {}
  std::vector<std::string> step() {
    runner.run_step();
    return taken();
  }
  std::vector<std::string> taken() { return lines_of(std::exchange(device.calls, {})); }
  std::shared_ptr<const StreamProgram> program;
  RecordedStreams device;
  StreamRunner runner;
};

doc::Task task_at(TaskKind kind, Resource lane, std::int32_t payload = 0) {
  return {.kind = kind,
          .origin = lane == Resource::compute ? doc::Origin::observed : doc::Origin::executed,
          .resource = lane,
          .subject = doc::Subject::payloads,
          .operation = lane == Resource::network ? std::int16_t{0} : std::int16_t{1},
          .first = payload,
          .last = payload,
          .bytes = 4};
}

// Tasks of {2, 1}: backward 0, backward 1, all-reduce (2), backward 2 (3), all-reduce (4); then an
// update that waits for both.
TEST(StreamRunner, AnEdgeIsAnEventAndWhatOneImpliesIsLeftOut) {
  TaskGraph g = exchange_graph("steady", {2, 1});
  doc::Task update = task_at(TaskKind::update, Resource::compute);
  update.last = 1;
  g.add(update, 2u, 4u);
  Enqueued e(plan_of(1, {g}, 3));
  // The second all-reduce implies the first; what follows the update in its stream needs no wait.
  EXPECT_THAT(
      e.step(),
      ElementsAre("compute: 0", "compute: 1", "compute records 0", "network whole waits 0",
                  "network whole: 2", "compute: 3", "compute records 1", "network whole waits 1",
                  "network whole: 4", "network whole records 2", "compute waits 2", "compute: 5"));
  e.step();
  EXPECT_EQ(e.runner.counts().waits, 6);
  EXPECT_EQ(e.runner.counts().host_waits, 0);
  EXPECT_EQ(e.runner.counts().memory_waits, 0);
  // Events of the first step are free again.
  EXPECT_THAT(e.step()[2],
              testing::AnyOf("compute records 0", "compute records 1", "compute records 2"));
}

TEST(StreamRunner, SettlingWaitsForAllThatIsEnqueuedAndOnce) {
  Enqueued e(plan_of(1, {exchange_graph("steady", {2, 1})}, 3));
  // The next step writes the buckets again, so the sums have events: 1 and 3.
  EXPECT_THAT(
      e.step(),
      ElementsAre("compute: 0", "compute: 1", "compute records 0", "network whole waits 0",
                  "network whole: 2", "network whole records 1", "compute: 3", "compute records 2",
                  "network whole waits 2", "network whole: 4", "network whole records 3"));
  e.runner.settle();
  EXPECT_THAT(e.taken(), ElementsAre("compute waits 3"));
  e.runner.settle();
  EXPECT_THAT(e.taken(), ElementsAre());
  EXPECT_THAT(e.step()[0], "compute: 0");  // which would have waited for the sums
}

TEST(StreamRunner, SettlingOneTaskWaitsForItAlone) {
  Enqueued e(plan_of(1, {exchange_graph("steady", {2, 1})}, 3));
  e.step();
  EXPECT_TRUE(e.runner.is_settled({0, 3}));  // in the compute stream itself
  EXPECT_FALSE(e.runner.is_settled({0, 2}));
  e.runner.settle({0, 2});
  EXPECT_THAT(e.taken(), ElementsAre("compute waits 1"));
  EXPECT_TRUE(e.runner.is_settled({0, 2}));
  EXPECT_FALSE(e.runner.is_settled({0, 4}));
  e.runner.settle({0, 2});
  EXPECT_THAT(e.taken(), ElementsAre());
  e.runner.settle({0, 4});
  EXPECT_THAT(e.taken(), ElementsAre("compute waits 3"));
  e.step(), e.step();
  EXPECT_THROW(e.runner.settle({0, 4}), InternalError);  // its step is long over
}

/// As the number of samples, which no task writes: no edge leads to their sum.
TEST(StreamRunner, WhatAProgramWritesBeforeAStepIsWaitedForInEveryStream) {
  Enqueued e(plan_of(1, {exchange_graph("steady", {2, 1})}, 3));
  e.runner.fork();
  EXPECT_THAT(e.taken(), ElementsAre("compute records 0", "network whole waits 0"));
  e.runner.fork();  // the event is free again
  EXPECT_THAT(e.taken(), ElementsAre("compute records 0", "network whole waits 0"));
}

TEST(StreamRunner, WhatNoDriverMayDoIsAnError) {
  TaskGraph g = exchange_graph("steady", {1});
  g.add(task_at(TaskKind::update, Resource::compute), 1u);
  Enqueued e(plan_of(1, {g}, 1));
  e.runner.begin_step();
  EXPECT_THROW(e.runner.open(2), InternalError);       // its all-reduce is not enqueued
  EXPECT_THROW(e.runner.begin_step(), InternalError);  // nor is the step
}

}  // namespace
}  // namespace linerate::exec
