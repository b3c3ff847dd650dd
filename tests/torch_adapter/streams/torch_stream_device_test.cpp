// What reaches the streams and events of a device of PyTorch's, call by call.
#include "linerate/torch_adapter/streams/torch_stream_device.hpp"

#include <c10/core/StreamGuard.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "exec/sample_plans.hpp"
#include "linerate/core/error.hpp"
#include "linerate/exec/streams/stream_runner.hpp"
#include "torch_adapter/streams/logged_lines.hpp"
#include "torch_adapter/streams/logged_work.hpp"

namespace linerate::torch_adapter {
namespace {

using support::taken_calls;
using testing::ElementsAre;
using testing::HasSubstr;

class TorchStreamDeviceTest : public testing::Test {
 protected:
  void SetUp() override { support::forget_guard_calls(); }

  /// Task 0 of a plan of one gradient.
  exec::StreamWork work() const {
    const doc::TaskGraph& graph = plan_->variants[0];
    return {{0, 0}, graph, graph.tasks[0]};
  }
  std::shared_ptr<doc::Plan> plan_ = exec::plan_of(1, {exec::exchange_graph("steady", {1})}, 1);
};

c10::Stream stream_of(c10::Device device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, device, id);
}

// Tasks of {2, 1}: backward 0, backward 1, all-reduce (2), backward 2 (3), all-reduce (4).
TEST_F(TorchStreamDeviceTest, AStepReachesTheStreamsAsTheRunnerSays) {
  const auto plan = exec::plan_of(1, {exec::exchange_graph("steady", {2, 1})}, 3);
  const auto program = exec::make_stream_program(plan, 0);
  TorchStreamDevice device(support::logged_device(1), program->lanes.count(),
                           support::logged_work(*plan));
  exec::StreamRunner runner(program, device);
  runner.run_step();
  // The program computes in the default stream; the group's is the first new one. Events of its
  // sums are for the next step, which writes the buckets again.
  EXPECT_THAT(taken_calls(),
              ElementsAre("1:0 does task 0", "1:0 does task 1", "1:0 records 0", "1:1 waits 0",
                          "1:1 does task 2", "1:1 records 1", "1:0 does task 3", "1:0 records 2",
                          "1:1 waits 2", "1:1 does task 4", "1:1 records 3"));
}

TEST_F(TorchStreamDeviceTest, ComputesInTheStreamThatWasCurrent) {
  const c10::StreamGuard current(stream_of(support::logged_device(0), 7));
  TorchStreamDevice device(support::logged_device(0), 2, support::logged_work(*plan_));
  EXPECT_EQ(device.stream(0).id(), 7);
  EXPECT_EQ(device.stream(1).id(), 1);
  device.enqueue(0, work());
  EXPECT_THAT(taken_calls(), ElementsAre("0:7 does task 0"));
}

TEST_F(TorchStreamDeviceTest, ADeviceWithoutAnIndexIsTheCurrentOne) {
  const c10::StreamGuard current(stream_of(support::logged_device(1), 0));
  const TorchStreamDevice device({c10::DeviceType::PrivateUse1}, 2, support::logged_work(*plan_));
  EXPECT_EQ(device.stream(1).device(), support::logged_device(1));
}

TEST_F(TorchStreamDeviceTest, WhatWasCurrentIsCurrentAgain) {
  TorchStreamDevice device(support::logged_device(1), 3, support::logged_work(*plan_));
  const c10::StreamGuard own_of_1(stream_of(support::logged_device(1), 8));
  const c10::StreamGuard own(stream_of(support::logged_device(0), 7));
  device.enqueue(2, work());
  EXPECT_THAT(taken_calls(), ElementsAre("1:2 does task 0"));
  EXPECT_EQ(support::current_device().index(), 0);
  EXPECT_EQ(support::current_stream(0).id(), 7);
  EXPECT_EQ(support::current_stream(1).id(), 8);
}

TEST_F(TorchStreamDeviceTest, AndAfterAnException) {
  TorchStreamDevice device(support::logged_device(1), 3, [](const exec::StreamWork&) {
    EXPECT_EQ(support::current_stream(1).id(), 2);
    throw std::runtime_error("out of memory");
  });
  const c10::StreamGuard own_of_1(stream_of(support::logged_device(1), 8));
  const c10::StreamGuard own(stream_of(support::logged_device(0), 7));
  EXPECT_THROW(device.enqueue(2, work()), std::runtime_error);
  EXPECT_EQ(support::current_device().index(), 0);
  EXPECT_EQ(support::current_stream(0).id(), 7);
  EXPECT_EQ(support::current_stream(1).id(), 8);
}

/// Autograd's threads have current streams of their own.
TEST_F(TorchStreamDeviceTest, StreamsAreCurrentInTheThreadThatEnqueues) {
  TorchStreamDevice device(support::logged_device(0), 2, support::logged_work(*plan_));
  std::thread([&] {
    device.enqueue(1, work());
    EXPECT_EQ(support::current_stream(0).id(), 0);
  }).join();
  EXPECT_THAT(taken_calls(), ElementsAre("0:1 does task 0"));
}

TEST_F(TorchStreamDeviceTest, AnEventIsRecordedAgainAndEndsWithTheDevice) {
  {
    TorchStreamDevice device(support::logged_device(0), 3, support::logged_work(*plan_));
    device.record(0, 1);
    device.wait(2, 0);
    device.record(0, 2);
    device.record(1, 0);
    device.host_wait(0);
    EXPECT_THAT(taken_calls(), ElementsAre("0:1 records 0", "0:2 waits 0", "0:2 records 0",
                                           "0:0 records 1", "host waits 0"));
    EXPECT_EQ(support::guard_log().events_made, 2);
    EXPECT_EQ(support::guard_log().events_destroyed, 0);
  }
  EXPECT_EQ(support::guard_log().events_destroyed, 2);
}

/// c10 would not wait, and say nothing.
TEST_F(TorchStreamDeviceTest, WhatWasNotRecordedIsNotWaitedFor) {
  TorchStreamDevice device(support::logged_device(0), 2, support::logged_work(*plan_));
  EXPECT_THROW(device.wait(1, 0), InternalError);
  device.record(1, 0);
  EXPECT_THROW(device.wait(1, 0), InternalError);  // made with event 1
  EXPECT_THROW(device.host_wait(0), InternalError);
  EXPECT_NO_THROW(device.wait(1, 1));
}

std::string refusal_of(c10::Device device) {
  try {
    const TorchStreamDevice made(device, 2, [](const exec::StreamWork&) {});
  } catch (const DeviceError& e) {
    return e.what();
  }
  return "none";
}

TEST_F(TorchStreamDeviceTest, DevicesWithoutStreamsAreRefused) {
  EXPECT_THAT(refusal_of(c10::Device(c10::kCPU)), HasSubstr("device cpu: expected"));
  EXPECT_THAT(refusal_of(c10::Device(c10::kMeta)), HasSubstr("device meta: expected"));
  EXPECT_THAT(refusal_of(c10::Device(c10::kXLA, 0)), HasSubstr("device xla:0: expected"));
  EXPECT_THAT(refusal_of(support::logged_device(2)), HasSubstr("found 2 of them"));
  EXPECT_EQ(refusal_of(support::logged_device(1)), "none");
}

}  // namespace
}  // namespace linerate::torch_adapter
