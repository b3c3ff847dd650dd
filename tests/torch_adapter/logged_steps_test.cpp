// What training steps ask of a device, besides the tasks of their Plan: the order with what the
// program enqueues, and times.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "exec/sample_plans.hpp"
#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/torch_adapter/stream_steps.hpp"
#include "torch_adapter/streams/logged_lines.hpp"

namespace linerate::torch_adapter {
namespace {

using support::guard_log;
using support::taken_calls;
using testing::ElementsAre;

/// Of one rank, whose sum is what it has: says in which stream it is asked for it.
class LoggedGroup final : public comm::TensorGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce(at::Tensor, comm::Reduce, const std::string&) override {
    guard_log().calls.push_back({.stream = support::current_stream(0).id()});
  }
  void reduce_scatter(at::Tensor, comm::Reduce, const std::string&) override {}
  void all_gather(at::Tensor, const std::string&) override {}
  void all_to_all(at::Tensor, at::Tensor, const std::string&) override {}
  void broadcast(at::Tensor, int, const std::string&) override {}
  std::unique_ptr<comm::TensorGroup> part(const std::vector<int>&, const std::string&) override {
    return std::make_unique<LoggedGroup>();
  }
};

/// Steps of three gradients in buckets of two and one.
class LoggedSteps {
 public:
  explicit LoggedSteps(comm::Communicator& communicator, exec::Recorder* recorder = nullptr)
      : steps(communicator, memory_, support::logged_device(0), std::make_unique<LoggedGroup>(),
              recorder) {
    for (int i = 0; i < 3; ++i)
      parameters_.push_back({fmt::format("g{}", i), torch::zeros({1}), DType::f32, {1}, {1}});
    memory_.lay_out(plan_->variants[0], {&parameters_[0], &parameters_[1], &parameters_[2]});
    steps.set_plan(plan_, 0);
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

 private:
  std::shared_ptr<doc::Plan> plan_ = exec::plan_of(1, {exec::exchange_graph("steady", {2, 1})}, 3);
  std::vector<Parameter> parameters_;
  PayloadMemory memory_{false};

 public:
  StreamSteps steps;
};

/// Of a decoupled exchange the next forward pass waits for what it needs, when it needs it.
TEST(LoggedSteps, WaitForOneTaskAlone) {
  comm::run_ranks(1, [](comm::Communicator& communicator) {
    support::forget_guard_calls();
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
  });
}

/// What is no mark.
std::vector<std::string> without_marks(std::vector<std::string> lines) {
  std::erase_if(lines, [](const std::string& line) { return line.ends_with("a mark"); });
  return lines;
}

TEST(LoggedSteps, AreRecordedWithoutAWait) {
  comm::run_ranks(1, [](comm::Communicator& communicator) {
    support::forget_guard_calls();
    std::vector<std::vector<std::string>> plain;
    {
      LoggedSteps logged(communicator);
      for (const int step : {0, 1, 2})
        plain.push_back(logged.begin(step)), plain.push_back(logged.rest());
    }
    support::forget_guard_calls();
    exec::Recorder recorder(communicator, exec::agree_origin(communicator), "trained");
    LoggedSteps logged(communicator, &recorder);
    guard_log().marks_wait = true;  // as if the device were far behind
    std::vector<std::vector<std::string>> recorded;
    for (const int step : {0, 1, 2}) {
      recorder.begin_step(step);
      recorded.push_back(logged.begin(step)), recorded.push_back(logged.rest());
    }
    // The anchor before all; a gradient's end before its bucket's sum, and the sum between two.
    EXPECT_THAT(recorded[0], ElementsAre("0:0 sets a mark", "0:0 records 0", "0:1 waits 0"));
    EXPECT_THAT(
        recorded[1],
        ElementsAre("0:0 sets a mark", "0:0 sets a mark", "0:0 records 0", "0:1 waits 0",
                    "0:1 sets a mark", "0:1 does task 0", "0:1 sets a mark", "0:1 records 1",
                    "0:0 sets a mark", "0:0 records 2", "0:1 waits 2", "0:1 sets a mark",
                    "0:1 does task 0", "0:1 sets a mark", "0:1 records 3", "0:0 waits 3"));
    for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(without_marks(recorded[i]), plain[i]);
    EXPECT_GT(guard_log().marks_asked, 0);
    EXPECT_EQ(recorder.timeline().events.size(), 6u);
    EXPECT_EQ(recorder.timeline().device, "privateuseone");
    EXPECT_THAT(taken_calls(), testing::Contains("host waits for a mark"));
  });
}

TEST(LoggedSteps, AskForNoTimesWhileNothingIsKept) {
  comm::run_ranks(1, [](comm::Communicator& communicator) {
    support::forget_guard_calls();
    exec::Recorder recorder(communicator, exec::agree_origin(communicator), "trained");
    recorder.keep(false);
    LoggedSteps logged(communicator, &recorder);
    const auto made = guard_log().marks_made, asked = guard_log().marks_asked;
    EXPECT_THAT(logged.begin(0), ElementsAre("0:0 records 0", "0:1 waits 0"));
    EXPECT_EQ(logged.rest().size(), 9u);
    EXPECT_EQ(guard_log().marks_made, made);
    EXPECT_EQ(guard_log().marks_asked, asked);
  });
}

/// By the device's clock, tied to the host's when it began and when the Timeline is asked for.
TEST(LoggedSteps, TakeTheTimesOfTheDevice) {
  comm::run_ranks(1, [](comm::Communicator& communicator) {
    support::forget_guard_calls();
    exec::Recorder recorder(communicator, exec::agree_origin(communicator), "trained");
    LoggedSteps logged(communicator, &recorder);
    const auto pass = [](double ms) { guard_log().device_ms += ms; };
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
    // The device's 9 ms are what passed on the host between two comparisons, whatever that was.
    const double unit = t.steps[0].seconds() / 9;
    const auto since_start = [&](std::int64_t ns) {
      return static_cast<double>(ns - t.steps[0].start_ns) * 1e-9 / unit;
    };
    for (const auto& [event, ms] : {std::pair{t.events[0], 6.0}, std::pair{t.events[1], 9.0}}) {
      EXPECT_EQ(event.kind, doc::TaskKind::all_reduce);
      EXPECT_EQ(event.step, 7);
      EXPECT_NEAR(since_start(event.ready_ns), ms, 0.01);
      EXPECT_NEAR(since_start(event.start_ns), ms, 0.01);
      EXPECT_NEAR(since_start(event.end_ns), ms, 0.01);
    }
    EXPECT_EQ(t.names[static_cast<std::size_t>(t.events[1].name)], "all-reduce bucket 1");
  });
}

}  // namespace
}  // namespace linerate::torch_adapter
