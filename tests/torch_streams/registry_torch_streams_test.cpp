// Every strategy of the registry: a device of PyTorch's is asked for what StreamRunner asks a
// StreamDevice for, which unit.exec_streams holds to the Plan.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "agreement/cases.hpp"
#include "exec/streams/recorded_streams.hpp"
#include "linerate/exec/streams/make_stream_program.hpp"
#include "linerate/models/workload.hpp"
#include "torch_streams/logged_work.hpp"

namespace linerate::support {
namespace {

/// A call, with its event as what was recorded in it: the number of that record among all calls.
struct Asked {
  StreamCall::Kind kind = StreamCall::Kind::enqueue;
  exec::StreamId stream = -1;
  std::int64_t point = -1;
  exec::TaskId id = {};
  std::int32_t variant = 0;
  bool operator==(const Asked&) const = default;
};

/// Gives events the record that they mean.
class Points {
 public:
  std::int64_t of(StreamCall::Kind kind, std::int64_t event, std::size_t call) {
    if (kind == StreamCall::Kind::enqueue) return -1;
    if (kind == StreamCall::Kind::record) meaning_[event] = static_cast<std::int64_t>(call);
    return meaning_.at(event);
  }

 private:
  std::map<std::int64_t, std::int64_t> meaning_;
};

void run_steps(exec::StreamRunner& runner, const doc::Plan& plan) {
  for (std::size_t s = 0; s < plan.warm_up.size() + plan.cycle.size() + 1; ++s) runner.run_step();
}

std::vector<Asked> asked_by_runner(const std::shared_ptr<const exec::StreamProgram>& program) {
  RecordedStreams device(*program->plan);
  exec::StreamRunner runner(program, device);
  run_steps(runner, *program->plan);
  std::vector<Asked> all;
  Points points;
  for (const StreamCall& c : device.calls)
    all.push_back({c.kind, c.stream, points.of(c.kind, c.event, all.size()), c.id, c.variant});
  return all;
}

StreamCall::Kind kind_of(const GuardCall& call) {
  switch (call.kind) {
    case GuardCall::Kind::work:
      return StreamCall::Kind::enqueue;
    case GuardCall::Kind::record:
      return StreamCall::Kind::record;
    case GuardCall::Kind::block:
      return StreamCall::Kind::wait;
    case GuardCall::Kind::host_wait:
      return StreamCall::Kind::host_wait;
    case GuardCall::Kind::other_wait:
    case GuardCall::Kind::query:
    case GuardCall::Kind::mark:
    case GuardCall::Kind::mark_wait:
      break;
  }
  ADD_FAILURE() << "a device was asked for times, or for more than one event";
  return StreamCall::Kind::host_wait;
}

/// What reached the guard of the device, where the host waits if it does not wait for a stream.
std::vector<Asked> asked_of_device(const std::shared_ptr<const exec::StreamProgram>& program,
                                   c10::DeviceIndex index) {
  forget_guard_calls();
  const exec::LaneStreams& lanes = program->lanes;
  torch_streams::TorchStreamDevice device(logged_device(index), lanes.count(),
                                          logged_work(*program->plan), lanes.of_network());
  exec::StreamRunner runner(program, device);
  run_steps(runner, *program->plan);
  std::map<c10::StreamId, exec::StreamId> lane_of{{-1, -1}};
  for (exec::StreamId s = 0; s < static_cast<exec::StreamId>(lanes.count()); ++s) {
    EXPECT_TRUE(lane_of.emplace(device.stream(s).id(), s).second) << "two lanes in one stream";
    if (s == exec::LaneStreams::kComputeStream) continue;
    const bool is_urgent = lanes.name(s).starts_with("network");
    EXPECT_EQ(guard_log().priorities.at(to_index(s - 1)), is_urgent ? -1 : 0) << lanes.name(s);
  }
  std::vector<Asked> all;
  Points points;
  for (const GuardCall& c : guard_log().calls) {
    const StreamCall::Kind kind = kind_of(c);
    EXPECT_TRUE(c.stream < 0 || c.device == index);
    all.push_back(
        {kind, lane_of.at(c.stream), points.of(kind, c.event, all.size()), c.id, c.variant});
  }
  return all;
}

/// Calls of a kind.
std::ptrdiff_t count(const std::vector<Asked>& asked, StreamCall::Kind kind) {
  return std::count_if(asked.begin(), asked.end(), [&](const Asked& a) { return a.kind == kind; });
}

TEST(RegistryTorchStreams, ADeviceIsAskedForWhatTheRunnerAsks) {
  models::WorkloadOptions options;
  options.batch = 32;
  options.step_s = 0.1;
  const Setting setting{"lenet", models::workload("lenet", options), false};
  int cases = 0, dense = 0;
  for (const std::string& strategy : strategies())
    for (const int ranks : {1, 2, 3}) {
      const bool training = cases % 2 == 0;
      const auto plan = plan_of(strategy, setting, cluster_of(setting, ranks), ranks, training);
      if (!plan) continue;
      const auto program =
          exec::make_stream_program(std::make_shared<const doc::Plan>(*plan), cases % ranks);
      const auto expected = asked_by_runner(program);
      const auto found = asked_of_device(program, static_cast<c10::DeviceIndex>(++cases % 2));
      ASSERT_TRUE(found == expected) << strategy << ", " << ranks << " ranks";
      if (!doc::parse_strategy(strategy).extras.empty()) continue;
      ++dense;
      ASSERT_EQ(count(found, StreamCall::Kind::host_wait), 0) << strategy;
    }
  fmt::print("{} cases, {} of them dense\n", cases, dense);
  EXPECT_GE(cases, 500);
  EXPECT_GE(dense, 30);
}

}  // namespace
}  // namespace linerate::support
