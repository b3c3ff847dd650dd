// Steps of a Plan as every rank enqueues them, and what happens without one of the waits.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agreement/cases.hpp"
#include "exec/streams/simulated_device.hpp"
#include "linerate/exec/streams/stream_runner.hpp"
#include "linerate/models/workload.hpp"
#include "sim/random_plan.hpp"

namespace linerate::support {

/// A step whose observed tasks come in an order of their own, as autograd's may be: the next one is
/// one of the first three that are left and can be opened.
inline void run_step_out_of_order(exec::StreamRunner& runner, exec::StreamDevice& device,
                                  const exec::StreamProgram& program, Random& random) {
  const std::int64_t step = runner.begin_step();
  const doc::Plan& plan = *program.plan;
  const doc::TaskGraph& graph = plan.variant_of_step(step);
  std::vector<std::uint32_t> left;
  for (std::uint32_t i = 0; i < graph.tasks.size(); ++i)
    if (graph.tasks[i].origin == doc::Origin::observed &&
        plan.group_of(graph.tasks[i]).holds(program.rank))
      left.push_back(i);
  while (!left.empty()) {
    const auto behind =
        left.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(3, left.size()));
    std::vector<std::uint32_t> ready;
    std::copy_if(left.begin(), behind, std::back_inserter(ready),
                 [&](std::uint32_t i) { return runner.can_open(i); });
    const std::uint32_t next = ready.at(random.below(ready.size()));
    runner.open(next);
    device.enqueue(program.lanes.of(graph.tasks[next]), {{step, next}, graph, graph.tasks[next]});
    runner.report(next);
    left.erase(std::find(left.begin(), left.end(), next));
  }
}

enum class Order { of_the_plan, of_its_own };

inline StreamJob enqueue_steps(std::shared_ptr<const doc::Plan> plan, int steps,
                               Order order = Order::of_the_plan, std::uint64_t seed = 0) {
  StreamJob job{plan, {}, {}, {}};
  for (int r = 0; r < plan->ranks; ++r) {
    Random random(random_key(seed, static_cast<std::uint64_t>(r)));
    job.programs.push_back(exec::make_stream_program(plan, r));
    RecordedStreams device(*plan);
    exec::StreamRunner runner(job.programs.back(), device);
    for (int step = 0; step < steps; ++step)
      if (order == Order::of_the_plan)
        runner.run_step();
      else
        run_step_out_of_order(runner, device, *job.programs.back(), random);
    job.calls.push_back(std::move(device.calls));
    job.counts.push_back(runner.counts());
  }
  return job;
}

/// The calls of a rank that wait, of streams and of the host.
inline std::vector<Tampering> waits_of(const StreamJob& job, int rank) {
  std::vector<Tampering> waits;
  const auto& calls = job.calls[static_cast<std::size_t>(rank)];
  for (std::size_t i = 0; i < calls.size(); ++i)
    if (calls[i].kind == StreamCall::Kind::wait || calls[i].kind == StreamCall::Kind::host_wait)
      waits.push_back({rank, i, {}});
  return waits;
}

/// The task that a wait is for, which is right before its event. An event that was recorded later,
/// when it was needed, may be for any task before it: all of them, the last one first.
inline std::vector<exec::TaskId> awaited(const StreamJob& job, const Tampering& wait) {
  const auto r = static_cast<std::size_t>(wait.rank);
  const auto& calls = job.calls[r];
  std::size_t i = wait.left_out;
  while (calls[i].kind != StreamCall::Kind::record || calls[i].event != calls[wait.left_out].event)
    --i;
  const exec::StreamId stream = calls[i].stream;
  std::vector<exec::TaskId> tasks;
  for (bool is_first = true; i-- > 0; is_first = false) {
    const StreamCall& call = calls[i];
    if (call.kind != StreamCall::Kind::enqueue || call.stream != stream) continue;
    tasks.push_back(call.id);
    if (is_first &&
        job.programs[r]->has_event[static_cast<std::size_t>(call.variant)][call.id.task])
      break;
  }
  return tasks;
}

/// What goes wrong if this wait is left out while the task that it is for takes longer than
/// everything else. Nothing may go wrong if the task takes its time and the wait is there.
inline std::string error_without(const StreamJob& job, Tampering wait, std::uint64_t seed) {
  for (const exec::TaskId& id : awaited(job, wait)) {
    wait.slow = id;
    Tampering patient = wait;
    patient.left_out = ~std::size_t{0};
    if (!SimulatedDevices(job, seed, patient).error().empty()) return "";
    const std::string error = SimulatedDevices(job, seed, wait).error();
    if (!error.empty()) return error;
  }
  return "";
}

// Plans of every strategy of the registry for networks of the zoo.

inline Setting zoo_setting(const std::string& model) {
  models::WorkloadOptions options;
  options.batch = 32;
  options.step_s = 0.1;
  return {model, models::workload(model, options), false};
}

/// Null if the strategy does not fit.
inline std::shared_ptr<const doc::Plan> zoo_plan(const Setting& setting,
                                                 const std::string& strategy, int ranks,
                                                 bool training) {
  auto plan = plan_of(strategy, setting, cluster_of(setting, ranks), ranks, training);
  return plan ? std::make_shared<const doc::Plan>(*std::move(plan)) : nullptr;
}

/// The schedule's beginning, so many of its cycles, and the step after them.
inline int steps_of(const doc::Plan& plan, std::size_t cycles) {
  return static_cast<int>(plan.warm_up.size() + cycles * plan.cycle.size() + 1);
}

/// A plan for 1 to `most_ranks` ranks, a number for it, and the order of its steps.
struct PlannedCase {
  std::shared_ptr<const doc::Plan> plan;
  std::uint64_t seed = 0;
  Order order = Order::of_the_plan;
};

/// One for each strategy that fits the network.
inline std::vector<PlannedCase> planned_cases(const std::string& model, int most_ranks) {
  const Setting setting = zoo_setting(model);
  std::vector<PlannedCase> all;
  for (const std::string& strategy : strategies()) {
    const auto n = static_cast<int>(all.size());
    auto plan = zoo_plan(setting, strategy, 1 + n % most_ranks, n % 2 == 0);
    if (!plan) continue;
    const Order order = (n + 1) % 3 ? Order::of_the_plan : Order::of_its_own;
    all.push_back({std::move(plan), static_cast<std::uint64_t>(n), order});
  }
  return all;
}

}  // namespace linerate::support
