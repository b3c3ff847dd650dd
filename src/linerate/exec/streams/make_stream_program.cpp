// Prepares a Plan for a rank's streams. Each event costs the host some time, so only tasks that
// something waits for get one. Which these are depends on the order of steps, too. So the runner
// itself is run on a device that does nothing, over steps of each variant. The events that it
// waited for are the ones to record.
#include "linerate/exec/streams/make_stream_program.hpp"

#include <algorithm>

#include "linerate/core/index.hpp"
#include "linerate/exec/streams/stream_runner.hpp"

namespace linerate::exec {
namespace {

class NoDevice : public StreamDevice {
 public:
  void enqueue(StreamId, const StreamWork&) override {}
  void record(EventId, StreamId) override {}
  void wait(StreamId, EventId) override {}
  void host_wait(EventId) override {}
};

TaskMarks marks_of(const doc::Plan& plan, bool value) {
  TaskMarks marks;
  for (const doc::TaskGraph& graph : plan.variants) marks.emplace_back(graph.tasks.size(), value);
  return marks;
}

std::vector<std::vector<EdgeFromBefore>> edges_from_before(const doc::Plan& plan,
                                                           std::int32_t rank) {
  std::vector<std::vector<EdgeFromBefore>> edges(plan.variants.size());
  const auto has = [&](const doc::Task& task) { return plan.group_of(task).holds(rank); };
  for (std::size_t v = 0; v < plan.variants.size(); ++v)
    for (const doc::NextStepEdge& e : plan.variants[v].next_step)
      if (has(plan.variants[v].tasks[e.from]) &&
          has(plan.variants[to_index(e.variant)].tasks[e.to]))
        edges[to_index(e.variant)].push_back({e.to, e.from, static_cast<std::int32_t>(v)});
  for (auto& of_variant : edges)
    std::stable_sort(of_variant.begin(), of_variant.end(),
                     [](const auto& a, const auto& b) { return a.to < b.to; });
  return edges;
}

/// The variants to try, step by step: the schedule's warm-up and two of its cycles, then each
/// variant that a runner may choose besides. Each follows itself or its cycle once, so that edges
/// from the step before are seen as well.
std::vector<std::int32_t> steps_to_try(const doc::Plan& plan) {
  std::vector<std::int32_t> steps = plan.warm_up;
  for (int again = 0; again < 2; ++again)
    steps.insert(steps.end(), plan.cycle.begin(), plan.cycle.end());
  const auto scheduled = steps;
  for (std::int32_t v = 0; v < static_cast<std::int32_t>(plan.variants.size()); ++v)
    if (std::find(scheduled.begin(), scheduled.end(), v) == scheduled.end())
      steps.insert(steps.end(), {v, v});
  return steps;
}

}  // namespace

std::shared_ptr<const StreamProgram> make_stream_program(std::shared_ptr<const doc::Plan> plan,
                                                         std::int32_t rank) {
  const doc::Plan& p = *plan;
  const auto program = std::make_shared<StreamProgram>(
      StreamProgram{std::move(plan), rank, LaneStreams(p, rank), PayloadUses(p),
                    edges_from_before(p, rank), marks_of(p, true)});
  NoDevice device;
  StreamRunner runner(program, device);
  for (const std::int32_t variant : steps_to_try(p)) runner.run_step(variant);
  program->has_event = runner.waited_for();
  return program;
}

}  // namespace linerate::exec
