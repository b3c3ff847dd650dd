// What is recorded of steps on streams: the times that the devices took, and nothing that waits.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "exec/fake_communicator.hpp"
#include "exec/streams/simulated_device.hpp"
#include "exec/streams/stream_jobs.hpp"
#include "linerate/doc/plan_index.hpp"
#include "linerate/exec/streams/stream_program.hpp"
#include "linerate/exec/streams/stream_runner.hpp"

namespace linerate::support {

// Times of a simulated device: what the host asks for is written down with what it enqueues, and
// answered from a simulation of the same calls.

/// One unit of a simulation's clock.
inline constexpr double kNsPerUnit = 1e6;

/// Of one rank. Without a simulation nothing is ever over and all times are 0: enough to learn what
/// is asked, which does not depend on the answers. But for the waits at the end: for what was not
/// read before.
class RecordedClock final : public exec::StreamClock {
 public:
  /// `truth` may be null. The device's clock runs at this rate of the host's.
  RecordedClock(RecordedStreams& device, const SimulatedDevices* truth, int rank, double rate)
      : device_(device), truth_(truth), rank_(rank), rate_(rate) {}

  void set(exec::MarkId mark, exec::StreamId stream) override {
    meaning_[mark] = sets;
    device_.calls.push_back({StreamCall::Kind::mark, stream, sets++});
  }
  bool is_over(exec::MarkId mark) override {
    if (!truth_) return false;
    // The host asks right after its last call.
    return truth_->mark_at(rank_, meaning_.at(mark)) <=
           truth_->called_at(rank_, device_.calls.size() - 1);
  }
  void wait_for(exec::MarkId mark) override {
    device_.calls.push_back({StreamCall::Kind::mark_wait, -1, meaning_.at(mark)});
  }
  double ns_between(exec::MarkId first, exec::MarkId then) override {
    if (!truth_) return 0;
    const double units =
        truth_->mark_at(rank_, meaning_.at(then)) - truth_->mark_at(rank_, meaning_.at(first));
    return units * kNsPerUnit * rate_;
  }
  std::int64_t host_ns() override {
    device_.calls.push_back({StreamCall::Kind::host_clock});
    if (!truth_) return 0;
    return std::llround(truth_->clock_at(rank_, read_++) * kNsPerUnit);
  }

  exec::EventId sets = 0;  // so far
  /// How many marks that took.
  std::size_t marks() const { return meaning_.size(); }

 private:
  RecordedStreams& device_;
  const SimulatedDevices* truth_;
  int rank_;
  double rate_;
  std::size_t read_ = 0;                           // how often the host's clock was
  std::map<exec::MarkId, exec::EventId> meaning_;  // the number of its last set()
};
namespace {

using Kind = StreamCall::Kind;

struct Recorded {
  StreamJob job;
  std::vector<doc::Timeline> timelines;           // by rank
  std::vector<std::vector<exec::EventId>> begun;  // by rank and step: the mark of its beginning
  std::size_t marks = 0, sets = 0;                // of all ranks
};

/// `truth`: of the same steps; null: its times are not known yet.
Recorded record_steps(const std::shared_ptr<const doc::Plan>& plan, int steps, Order order,
                      std::uint64_t seed, const SimulatedDevices* truth, bool keeps = true) {
  Recorded out{{plan, {}, {}, {}}, {}, {}};
  for (int r = 0; r < plan->ranks; ++r) {
    const auto program = exec::make_stream_program(plan, r);
    RecordedStreams device(*plan);
    // No two clocks are alike.
    const auto clock = std::make_shared<RecordedClock>(device, truth, r, 1 + 1e-4 * (r - 1.5));
    exec::FakeCommunicator communicator;
    exec::Recorder recorder(communicator, {}, "trained");
    recorder.keep(keeps);
    const auto times = std::make_shared<exec::StreamTimes>(clock);
    recorder.follow(times);
    exec::StepRecording recording(device, recorder, times, program);
    exec::StreamRunner runner(program, recording);
    Random random(random_key(seed, static_cast<std::uint64_t>(r)));
    std::vector<exec::EventId> begun;
    for (int step = 0; step < steps; ++step) {
      recorder.begin_step(100 + step);
      begun.push_back(clock->sets);
      recording.begin_step(plan->variant_index_of_step(step));
      if (order == Order::of_the_plan)
        runner.run_step();
      else
        run_step_out_of_order(runner, recording, *program, random);
    }
    out.timelines.push_back(recorder.timeline());
    out.begun.push_back(std::move(begun));
    out.job.programs.push_back(program);
    out.job.calls.push_back(device.calls);
    out.job.counts.push_back(runner.counts());
    out.marks += clock->marks();
    out.sets += static_cast<std::size_t>(clock->sets);
  }
  return out;
}

/// Without those of these kinds.
std::vector<StreamCall> without(std::vector<StreamCall> calls, const std::set<Kind>& kinds) {
  std::erase_if(calls, [&](const StreamCall& c) { return kinds.contains(c.kind); });
  return calls;
}

/// Recorded steps next to what the simulated devices did.
class Comparison {
 public:
  Comparison(const Recorded& recorded, const SimulatedDevices& truth)
      : recorded_(recorded), plan_(*recorded.job.plan), truth_(truth) {}

  /// The first task whose times differ, in words; empty: none.
  std::string difference() {
    for (int r = 0; r < plan_.ranks; ++r) {
      const auto& events = recorded_.timelines[to_index(r)].events;
      std::size_t next = 0;
      for (const StreamCall& call : recorded_.job.calls[to_index(r)]) {
        if (call.kind != Kind::enqueue) continue;
        if (next == events.size()) return fmt::format("rank {}: only {} events", r, next);
        const std::string found = difference(r, call, events[next++]);
        if (!found.empty()) return found;
      }
      if (next != events.size()) return fmt::format("rank {}: {} events", r, events.size());
    }
    return "";
  }

 private:
  std::string difference(int r, const StreamCall& call, const doc::Event& e) const {
    const SimulatedDevices::Lasted& lasted = truth_.lasted(r, call.id);
    const doc::Task& task = graph(call.variant).tasks[call.id.task];
    const double ready = ready_of(r, call);
    if (e.kind == task.kind && e.resource == task.resource && e.bytes == task.bytes &&
        e.step == 100 + call.id.step && is_at(e.start_ns, lasted.begin) &&
        is_at(e.end_ns, lasted.end) && is_at(e.ready_ns, ready))
      return "";
    return fmt::format(
        "rank {}, step {} task {}, {}: ready {}, began {}, ended {}; recorded as {} of step {}: "
        "ready {}, began {}, ended {}",
        r, call.id.step, call.id.task, name_of(task.kind), ready, lasted.begin, lasted.end,
        name_of(e.kind), e.step, e.ready_ns, e.start_ns, e.end_ns);
  }

  static bool is_at(std::int64_t found_ns, double units) {
    constexpr double kRounded = 1;  // the host's clock, and the time, to a nanosecond
    return std::abs(static_cast<double>(found_ns) - units * kNsPerUnit) <= kRounded;
  }

  /// The beginning of its step, or the last end of what the Plan has before it.
  double ready_of(int r, const StreamCall& call) const {
    double latest = truth_.mark_at(r, recorded_.begun[to_index(r)][to_index(call.id.step)]);
    const auto wait_for = [&](std::int64_t step, std::int32_t variant, std::uint32_t p) {
      if (plan_.group_of(graph(variant).tasks[p]).holds(r))
        latest = std::max(latest, truth_.lasted(r, {step, p}).end);
    };
    for (const std::uint32_t p : graph(call.variant).predecessors(call.id.task))
      wait_for(call.id.step, call.variant, p);
    if (call.id.step == 0) return latest;
    const std::int32_t before = plan_.variant_index_of_step(call.id.step - 1);
    for (const doc::NextStepEdge& e : graph(before).next_step)
      if (e.to == call.id.task && e.variant == call.variant)
        wait_for(call.id.step - 1, before, e.from);
    return latest;
  }

  const doc::TaskGraph& graph(std::int32_t variant) const {
    return plan_.variants[to_index(variant)];
  }

  const Recorded& recorded_;
  const doc::Plan& plan_;
  const SimulatedDevices& truth_;
};

/// Whether the host waited for a mark only before the first step and after the last.
bool waits_between_steps_alone(const StreamJob& job) {
  return std::all_of(job.calls.begin(), job.calls.end(), [](const std::vector<StreamCall>& calls) {
    const auto is_task = [](const StreamCall& c) { return c.kind == Kind::enqueue; };
    const auto first = std::find_if(calls.begin(), calls.end(), is_task);
    const auto last = std::find_if(calls.rbegin(), calls.rend(), is_task).base();
    return std::none_of(first, std::max(first, last),
                        [](const StreamCall& c) { return c.kind == Kind::mark_wait; });
  });
}

TEST(RecordedTimes, AreThoseThatTheDevicesTookForEveryStrategy) {
  const std::vector<PlannedCase> cases = planned_cases("lenet", 4);
  std::size_t events = 0, marks = 0, sets = 0;
  for (const auto& [plan, seed, order] : cases) {
    SCOPED_TRACE(fmt::format("{}, {} ranks", plan->strategy, plan->ranks));
    const int steps = steps_of(*plan, 2);
    const Recorded asked = record_steps(plan, steps, order, seed, nullptr);
    const SimulatedDevices truth(asked.job, seed);
    ASSERT_EQ(truth.error(), "");
    const Recorded found = record_steps(plan, steps, order, seed, &truth);
    for (std::size_t r = 0; r < to_index(plan->ranks); ++r)
      ASSERT_EQ(without(found.job.calls[r], {Kind::mark_wait}),
                without(asked.job.calls[r], {Kind::mark_wait}));
    ASSERT_EQ(Comparison(found, truth).difference(), "");
    for (const doc::Timeline& t : found.timelines) events += t.events.size();
    marks += found.marks, sets += found.sets;
  }
  fmt::print("{} cases, {} events; {} times by {} marks\n", cases.size(), events, sets, marks);
  EXPECT_GE(cases.size(), 200u);
  EXPECT_LT(marks, sets);  // read while steps are enqueued, and set again
}

TEST(RecordedTimes, RecordingMakesNothingWait) {
  const std::vector<PlannedCase> cases = planned_cases("lenet", 3);
  for (const auto& [plan, seed, order] : cases) {
    SCOPED_TRACE(fmt::format("{}, {} ranks", plan->strategy, plan->ranks));
    const int steps = steps_of(*plan, 1);
    const StreamJob plain = enqueue_steps(plan, steps, order, seed);
    const Recorded recorded = record_steps(plan, steps, order, seed, nullptr);
    const Recorded off = record_steps(plan, steps, order, seed, nullptr, false);
    ASSERT_TRUE(waits_between_steps_alone(recorded.job));
    for (std::size_t r = 0; r < to_index(plan->ranks); ++r) {
      ASSERT_EQ(without(recorded.job.calls[r], {Kind::mark, Kind::mark_wait, Kind::host_clock}),
                plain.calls[r]);
      // Clocks are compared when the recording is made, and when its Timeline is asked for.
      std::vector<StreamCall> none = off.job.calls[r];
      const auto first = std::find(none.begin(), none.end(), plain.calls[r].front());
      ASSERT_EQ(std::vector<StreamCall>(first, none.end()), plain.calls[r]);
      ASSERT_TRUE(off.timelines[r].events.empty());
    }
  }
  EXPECT_GE(cases.size(), 200u);
}

}  // namespace
}  // namespace linerate::support
