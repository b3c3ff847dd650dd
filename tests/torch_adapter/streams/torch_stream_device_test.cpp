// What reaches the streams and events of a device of PyTorch's, call by call: of a simulated one.
#include "linerate/torch_adapter/streams/torch_stream_device.hpp"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <torch/types.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "exec/sample_plans.hpp"
#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"
#include "linerate/exec/streams/stream_runner.hpp"
#include "linerate/exec/streams/stream_times.hpp"
#include "linerate/torch_adapter/stream_steps.hpp"
#include "simulated_device/simulated_device.hpp"
#include "torch_adapter/rank_tests.hpp"
#include "torch_adapter/warnings.hpp"

namespace linerate::torch_adapter {
namespace {

using simulated::current_stream;
using simulated::event_log;
using testing::ElementsAre;
using testing::HasSubstr;

/// The calls of devices 0 and 1 are logged from now on. Their next streams are 1 and, of high
/// priority, simulated::kPool + 1.
void log_calls() {
  for (const int index : {0, 1}) {
    const c10::impl::VirtualGuardImpl guard(c10::kPrivateUse1);
    while (guard.getNewStream(simulated::device(index)).id() != simulated::kPool) continue;
    while (guard.getNewStream(simulated::device(index), -1).id() != 2 * simulated::kPool) continue;
    event_log(index) = {.keeps_calls = true};
  }
}

/// Since the last time.
std::vector<std::string> taken_calls() {
  std::vector<std::string> all;
  for (const int index : {0, 1})
    for (std::string& call : std::exchange(event_log(index).calls, {}))
      all.push_back(std::move(call));
  return all;
}

/// A task's work is done in this stream.
void note_task(const c10::Stream& where, std::uint32_t task) {
  const int device = where.device_index();
  event_log(device).calls.push_back(fmt::format("{}:{} does task {}", device, where.id(), task));
}

c10::Device current_device() { return c10::impl::VirtualGuardImpl(c10::kPrivateUse1).getDevice(); }

/// Only notes down the device and the stream that are current when it is called.
void logged_work(const exec::StreamWork& work) {
  note_task(current_stream(current_device().index()), work.id.task);
}

c10::Stream stream_of(int device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, simulated::device(device), id);
}

class TorchStreamDeviceTest : public testing::Test {
 protected:
  void SetUp() override { log_calls(); }

  /// Task 0 of a plan of one gradient.
  exec::StreamWork work() const {
    const doc::TaskGraph& graph = plan_->variants[0];
    return {{0, 0}, graph, graph.tasks[0]};
  }
  std::shared_ptr<doc::Plan> plan_ = exec::plan_of(1, {exec::exchange_graph("steady", {1})}, 1);
};

// Tasks of {2, 1}: backward 0, backward 1, all-reduce (2), backward 2 (3), all-reduce (4).
TEST_F(TorchStreamDeviceTest, AStepReachesTheStreamsAsTheRunnerSays) {
  const auto plan = exec::plan_of(1, {exec::exchange_graph("steady", {2, 1})}, 3);
  const auto program = exec::make_stream_program(plan, 0);
  TorchStreamDevice device(simulated::device(1), program->lanes.count(), logged_work);
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
  const c10::StreamGuard current(stream_of(0, 7));
  TorchStreamDevice device(simulated::device(0), 2, logged_work);
  EXPECT_EQ(device.stream(0).id(), 7);
  EXPECT_EQ(device.stream(1).id(), 1);
  device.enqueue(0, work());
  EXPECT_THAT(taken_calls(), ElementsAre("0:7 does task 0"));
}

TEST_F(TorchStreamDeviceTest, ADeviceWithoutAnIndexIsTheCurrentOne) {
  const c10::StreamGuard current(stream_of(1, 0));
  const TorchStreamDevice device({c10::DeviceType::PrivateUse1}, 2, logged_work);
  EXPECT_EQ(device.stream(1).device(), simulated::device(1));
}

TEST_F(TorchStreamDeviceTest, WhatWasCurrentIsCurrentAgainAlsoAfterAnException) {
  TorchStreamDevice device(simulated::device(1), 3, [](const exec::StreamWork&) {
    EXPECT_EQ(current_stream(1).id(), 2);
    throw std::runtime_error("out of memory");
  });
  const c10::StreamGuard own_of_1(stream_of(1, 8));
  const c10::StreamGuard own(stream_of(0, 7));
  EXPECT_THROW(device.enqueue(2, work()), std::runtime_error);
  EXPECT_EQ(current_device().index(), 0);
  EXPECT_EQ(current_stream(0).id(), 7);
  EXPECT_EQ(current_stream(1).id(), 8);
}

/// Autograd's threads have current streams of their own.
TEST_F(TorchStreamDeviceTest, StreamsAreCurrentInTheThreadThatEnqueues) {
  TorchStreamDevice device(simulated::device(0), 2, logged_work);
  std::thread([&] {
    device.enqueue(1, work());
    EXPECT_EQ(current_stream(0).id(), 0);
  }).join();
  EXPECT_THAT(taken_calls(), ElementsAre("0:1 does task 0"));
}

TEST_F(TorchStreamDeviceTest, AnEventIsRecordedAgainAndEndsWithTheDevice) {
  {
    TorchStreamDevice device(simulated::device(0), 3, logged_work);
    device.record(0, 1);
    device.wait(2, 0);
    device.record(0, 2);
    device.record(1, 0);
    device.host_wait(0);
    EXPECT_THAT(taken_calls(), ElementsAre("0:1 records 0", "0:2 waits 0", "0:2 records 0",
                                           "0:0 records 1", "host waits 0"));
    EXPECT_EQ(event_log(0).events_made, 2);
    EXPECT_EQ(event_log(0).events_destroyed, 0);
  }
  EXPECT_EQ(event_log(0).events_destroyed, 2);
}

/// c10 would not wait, and say nothing.
TEST_F(TorchStreamDeviceTest, WhatWasNotRecordedIsNotWaitedFor) {
  TorchStreamDevice device(simulated::device(0), 2, logged_work);
  EXPECT_THROW(device.wait(1, 0), InternalError);
  device.record(1, 0);
  EXPECT_THROW(device.wait(1, 0), InternalError);  // made with event 1
  EXPECT_THROW(device.host_wait(0), InternalError);
  EXPECT_NO_THROW(device.wait(1, 1));
}

// Times by events: which events, in which streams, and who waits.

class EventClockTest : public testing::Test {
 protected:
  EventClockTest() {
    log_calls();
    clock.follow({stream(0), stream(4)});
  }
  static c10::Stream stream(c10::StreamId id) { return stream_of(1, id); }
  EventClock clock{c10::DeviceType::PrivateUse1};
};

TEST_F(EventClockTest, MarksAreEventsWithTimesInTheirStream) {
  clock.set(0, 0);
  clock.set(1, 1);
  clock.set(0, 1);  // again
  EXPECT_THAT(taken_calls(), ElementsAre("1:0 sets a mark", "1:4 sets a mark", "1:4 sets a mark"));
  EXPECT_EQ(event_log(1).marks_made, 2);
  EXPECT_EQ(event_log(1).events_made, 0);
  clock.follow({stream(7)});
  clock.set(1, 0);
  EXPECT_THAT(taken_calls(), ElementsAre("1:7 sets a mark"));
}

/// A launch takes a microsecond.
TEST_F(EventClockTest, MillisecondsOfADeviceAreNanoseconds) {
  clock.set(0, 1);
  const c10::StreamGuard current(stream(4));
  at::zeros({1}, simulated::device(1)).add_(1);
  clock.set(1, 1);
  clock.wait_for(1);
  EXPECT_DOUBLE_EQ(clock.ns_between(0, 1), 2e3);
  EXPECT_DOUBLE_EQ(clock.ns_between(1, 0), -2e3);
}

TEST_F(EventClockTest, NothingWaitsButTheHostWhenItIsToldTo) {
  at::zeros({1}, simulated::device(1));  // which the host does not know to be over
  clock.set(0, 0);
  EXPECT_FALSE(clock.is_over(0));
  EXPECT_THAT(taken_calls(), ElementsAre("1:0 sets a mark"));
  clock.wait_for(0);
  EXPECT_THAT(taken_calls(), ElementsAre("host waits for a mark"));
  EXPECT_TRUE(clock.is_over(0));
}

// Devices by PyTorch's names.

template <typename Kind>
std::string refusal(const std::string& name) {
  return thrown_by<Kind>([&] { static_cast<void>(named_device(name, 0)); });
}

TEST(NamedDevice, IsThatOfPyTorchsName) {
  EXPECT_EQ(named_device("cpu", 5), c10::Device(c10::kCPU));
  EXPECT_EQ(named_device("sim:1", 0), simulated::device(1));
  EXPECT_EQ(type_name(simulated::device(1)), "sim");
  EXPECT_EQ(type_name(c10::Device(c10::kCUDA, 3)), "cuda");
}

/// The ranks of a machine that has no more devices begin again.
TEST(NamedDevice, WithoutAnIndexIsOneAfterTheOther) {
  for (int turn = 0; turn < 2 * simulated::kDevices; ++turn)
    EXPECT_EQ(named_device("sim", turn), simulated::device(turn % simulated::kDevices));
}

TEST(NamedDevice, SaysWhatIsNoName) {
  for (const char* name : {"gpu", "cuda:x", "cuda:-2", "", "0"})
    EXPECT_THAT(refusal<UsageError>(name),
                HasSubstr("expected cpu, or an accelerator as PyTorch names it, found neither; "
                          "name one such as cuda, cuda:1 or xpu"))
        << name;
}

TEST(NamedDevice, SaysWhatIsNotHere) {
  for (const char* name : {"meta", "xla:0"})
    EXPECT_THAT(refusal<DeviceError>(name),
                HasSubstr(std::string("device ") + name +
                          ": expected one with streams and events, found that this PyTorch has "
                          "none of this type; take cpu, or build with"));
  EXPECT_THAT(refusal<DeviceError>("sim:4"),
              HasSubstr("expected an index below the number of devices, found 4 of them"));
  if (!c10::impl::hasDeviceGuardImpl(c10::kCUDA)) {
    EXPECT_THAT(refusal<DeviceError>("cuda"), HasSubstr("device cuda: expected one with streams"));
  }
  EXPECT_THAT(thrown_by<DeviceError>([] { TorchStreamDevice(c10::Device(c10::kCPU), 2, {}); }),
              HasSubstr("device cpu: expected"));
}

// ---- What training steps ask of a device, besides the tasks of their Plan: the order with what
// the program enqueues, and times.

/// Of one rank, whose sum is what it has: says in which stream it is asked for it.
class LoggedGroup final : public comm::TensorGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(at::Tensor, comm::Reduce, const std::string&) override {
    note_task(current_stream(0), 0);
  }
  void reduce_scatter(at::Tensor, comm::Reduce, const std::string&) override {}
  void all_gather(at::Tensor, const std::string&) override {}
  void all_to_all(at::Tensor, at::Tensor, const std::string&) override {}
  void broadcast(at::Tensor, int, const std::string&) override {}
  std::unique_ptr<comm::TensorGroup> part(const std::vector<int>&, const std::string&) override {
    return std::make_unique<LoggedGroup>();
  }
};

/// Steps of three gradients in buckets of two and one. The group's stream, 33, has high priority.
struct LoggedSteps {
  explicit LoggedSteps(comm::Communicator& communicator, exec::Recorder* recorder = nullptr)
      : steps(communicator, memory, simulated::device(0), std::make_unique<LoggedGroup>(),
              recorder) {
    for (int i = 0; i < 3; ++i)
      parameters.push_back({fmt::format("g{}", i), torch::zeros({1}), DType::f32, {1}, {1}});
    memory.lay_out(plan->variants[0], {&parameters[0], &parameters[1], &parameters[2]});
    steps.set_plan(plan, 0);
  }

  std::vector<std::string> begin(int step) {
    taken_calls();
    steps.begin_variant("steady", fmt::format("step {}", step));
    return taken_calls();
  }
  std::vector<std::string> rest() {
    for (const int gradient : {0, 1, 2}) steps.report_backward(gradient);
    steps.end_step();
    steps.drain();
    return taken_calls();
  }

  std::shared_ptr<doc::Plan> plan = exec::plan_of(1, {exec::exchange_graph("steady", {2, 1})}, 3);
  std::vector<Parameter> parameters;
  PayloadMemory memory{false};
  StreamSteps steps;
};

/// Of a decoupled exchange the next forward pass waits for what it needs, when it needs it.
TEST_ON(LoggedSteps, WaitForOneTaskAlone, comm::run_ranks, 1) {
  log_calls();
  LoggedSteps logged(communicator);
  logged.begin(0);
  for (const int gradient : {0, 1, 2}) logged.steps.report_backward(gradient);
  logged.steps.end_step();
  taken_calls();
  const exec::TaskId first = logged.steps.current(2), second = logged.steps.current(4);
  EXPECT_FALSE(logged.steps.is_done(first));
  logged.steps.wait_for(first);
  EXPECT_THAT(taken_calls(), ElementsAre("0:0 waits 1"));
  EXPECT_TRUE(logged.steps.is_done(first));
  EXPECT_FALSE(logged.steps.is_done(second));
  logged.steps.drain();
  EXPECT_THAT(taken_calls(), ElementsAre("0:0 waits 3"));
  EXPECT_TRUE(logged.steps.is_done(second));
}

/// What is no mark.
std::vector<std::string> without_marks(std::vector<std::string> lines) {
  std::erase_if(lines, [](const std::string& line) { return line.ends_with("a mark"); });
  return lines;
}

TEST_ON(LoggedSteps, AreRecordedWithoutAWait, comm::run_ranks, 1) {
  log_calls();
  std::vector<std::vector<std::string>> plain;
  {
    LoggedSteps logged(communicator);
    for (const int step : {0, 1, 2})
      plain.push_back(logged.begin(step)), plain.push_back(logged.rest());
  }
  log_calls();
  exec::Recorder recorder(communicator, exec::agree_origin(communicator), "trained");
  LoggedSteps logged(communicator, &recorder);
  std::vector<std::vector<std::string>> recorded;
  for (const int step : {0, 1, 2}) {
    recorder.begin_step(step);
    recorded.push_back(logged.begin(step)), recorded.push_back(logged.rest());
  }
  // The anchor before all; a gradient's end before its bucket's sum, and the sum between two.
  EXPECT_THAT(recorded[0], ElementsAre("0:0 sets a mark", "0:0 records 0", "0:33 waits 0"));
  EXPECT_THAT(
      recorded[1],
      ElementsAre("0:0 sets a mark", "0:0 sets a mark", "0:0 records 0", "0:33 waits 0",
                  "0:33 sets a mark", "0:33 does task 0", "0:33 sets a mark", "0:33 records 1",
                  "0:0 sets a mark", "0:0 records 2", "0:33 waits 2", "0:33 sets a mark",
                  "0:33 does task 0", "0:33 sets a mark", "0:33 records 3", "0:0 waits 3"));
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(without_marks(recorded[i]), plain[i]);
  EXPECT_GT(event_log(0).marks_asked, 0);
  EXPECT_EQ(recorder.timeline().events.size(), 6u);
  EXPECT_EQ(recorder.timeline().device, "sim");
  EXPECT_THAT(taken_calls(), testing::Contains("host waits for a mark"));
}

TEST_ON(LoggedSteps, AskForNoTimesWhileNothingIsKept, comm::run_ranks, 1) {
  log_calls();
  exec::Recorder recorder(communicator, exec::agree_origin(communicator), "trained");
  recorder.keep(false);
  LoggedSteps logged(communicator, &recorder);
  const auto made = event_log(0).marks_made, asked = event_log(0).marks_asked;
  EXPECT_THAT(logged.begin(0), ElementsAre("0:0 records 0", "0:33 waits 0"));
  EXPECT_EQ(logged.rest().size(), 9u);
  EXPECT_EQ(event_log(0).marks_made, made);
  EXPECT_EQ(event_log(0).marks_asked, asked);
}

/// By the device's clock, tied to the host's when it began and when the Timeline is asked for.
TEST_ON(LoggedSteps, TakeTheTimesOfTheDevice, comm::run_ranks, 1) {
  log_calls();
  exec::Recorder recorder(communicator, exec::agree_origin(communicator), "trained");
  LoggedSteps logged(communicator, &recorder);
  const auto pass = [](int launches) {  // a microsecond each
    const at::Tensor there = at::empty({1}, simulated::device(0));
    for (int i = 0; i < launches; ++i) there.fill_(i);
  };
  recorder.begin_step(7);
  const std::int64_t start = recorder.now();
  pass(4);
  logged.begin(0);
  pass(2);
  logged.steps.report_backward(0);
  logged.steps.report_backward(1);
  pass(3);
  logged.steps.report_backward(2);
  recorder.add_step(7, start, recorder.now(), "steady");
  const doc::Timeline t = recorder.timeline();
  ASSERT_EQ(t.events.size(), 2u);
  ASSERT_EQ(t.steps.size(), 1u);
  // The device's 9 us are what passed on the host between two comparisons, whatever that was.
  const double unit = t.steps[0].seconds() / 9;
  const auto since_start = [&](std::int64_t ns) {
    return static_cast<double>(ns - t.steps[0].start_ns) * 1e-9 / unit;
  };
  for (const auto& [event, us] : {std::pair{t.events[0], 6.0}, std::pair{t.events[1], 9.0}}) {
    EXPECT_EQ(event.kind, doc::TaskKind::all_reduce);
    EXPECT_EQ(event.step, 7);
    EXPECT_NEAR(since_start(event.ready_ns), us, 0.01);
    EXPECT_NEAR(since_start(event.start_ns), us, 0.01);
    EXPECT_NEAR(since_start(event.end_ns), us, 0.01);
  }
  EXPECT_EQ(t.names[static_cast<std::size_t>(t.events[1].name)], "all-reduce bucket 1");
}

}  // namespace
}  // namespace linerate::torch_adapter
