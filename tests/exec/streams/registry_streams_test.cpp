// Every strategy of the registry on streams, over networks of the zoo.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <set>

#include "exec/streams/stream_jobs.hpp"
#include "linerate/core/file.hpp"

namespace linerate::support {
namespace {

/// Those of the default exchange, and every exchange without anything besides.
bool is_in_the_table(const std::string& strategy) {
  return strategy.find_first_of("(+") == std::string::npos || strategy.starts_with("ddp+");
}

TEST(RegistryStreams, EveryTaskBeginsAfterWhatItWaitsFor) {
  int cases = 0;
  std::int64_t tasks = 0, waits = 0;
  for (const std::string model : {"lenet", "resnet18"}) {
    const Setting setting = zoo_setting(model);
    for (const std::string& strategy : strategies())
      for (const int ranks : {1, 2, 3, 4}) {
        if (model == "resnet18" && ranks != 1 + cases % 4) continue;
        const auto plan = zoo_plan(setting, strategy, ranks, cases % 2 == 0);
        if (!plan) continue;
        const auto seed = static_cast<std::uint64_t>(cases++);
        const Order order = cases % 3 ? Order::of_the_plan : Order::of_its_own;
        const StreamJob job =
            enqueue_steps(plan, steps_of(*plan, model == "lenet" ? 2 : 1), order, seed);
        const SimulatedDevices devices(job, seed);
        ASSERT_EQ(devices.error(), "") << model << ", " << strategy << ", " << ranks << " ranks";
        tasks += devices.tasks();
        for (const exec::StreamCounts& counts : job.counts) {
          waits += counts.waits;
          // The edges of our plans, in their own order, are enough for memory too.
          if (order != Order::of_the_plan) continue;
          ASSERT_EQ(counts.memory_waits, 0) << model << ", " << strategy << ", " << ranks;
        }
      }
  }
  fmt::print("{} cases, {} tasks, {} waits of streams\n", cases, tasks, waits);
  EXPECT_GE(cases, 1500);
}

/// What a step costs a rank besides its work: events, waits of its streams, waits of its host.
exec::StreamCounts step_counts(const std::shared_ptr<const doc::Plan>& plan, int rank) {
  RecordedStreams device(*plan);
  exec::StreamRunner runner(exec::make_stream_program(plan, rank), device);
  for (std::size_t s = 0; s < plan->warm_up.size() + plan->cycle.size(); ++s) runner.run_step();
  const exec::StreamCounts before = runner.counts();
  runner.run_step();  // the first kind of step of the cycle
  const exec::StreamCounts& now = runner.counts();
  return {now.events - before.events, now.waits - before.waits, 0,
          now.host_waits - before.host_waits};
}

/// How many tasks of these steps the host looks at.
std::int64_t host_reads(const doc::Plan& plan, int rank, int steps) {
  std::int64_t reads = 0;
  for (int step = 0; step < steps; ++step) {
    const doc::TaskGraph& graph = plan.variant_of_step(step);
    for (const doc::Task& task : graph.tasks)
      reads += plan.group_of(task).holds(rank) &&
               exec::host_read_of(plan, graph, task) != exec::HostRead::nothing;
  }
  return reads;
}

bool is_compressed(const std::string& strategy) {
  const doc::Strategy parsed = doc::parse_strategy(strategy);
  return !parsed.extras.empty() && plan::is(parsed.extras.front(), plan::Extra::compressor);
}
bool is_dense(const std::string& strategy) {
  const doc::Strategy parsed = doc::parse_strategy(strategy);
  return parsed.extras.empty() || plan::is(parsed.extras.front(), plan::Extra::codec);
}

TEST(RegistryStreams, TheHostWaitsWhereItReadsAndNowhereInADenseStep) {
  const Setting setting = zoo_setting("lenet");
  int dense = 0, others = 0;
  std::set<std::string> operations;
  for (const std::string& strategy : strategies())
    for (const bool training : {false, true}) {
      const auto plan = zoo_plan(setting, strategy, 2, training);
      if (!plan) continue;
      ++(is_dense(strategy) ? dense : others);
      const StreamJob job = enqueue_steps(plan, steps_of(*plan, 2));
      for (int rank = 0; rank < plan->ranks; ++rank) {
        const std::int64_t waits = job.counts[static_cast<std::size_t>(rank)].host_waits;
        ASSERT_EQ(waits, host_reads(*plan, rank, steps_of(*plan, 2))) << strategy;
        ASSERT_TRUE(waits == 0 || !is_dense(strategy)) << strategy;
      }
      for (const doc::TaskGraph& graph : plan->variants)
        for (const doc::Task& task : graph.tasks)
          if (exec::host_read_of(*plan, graph, task) == exec::HostRead::result)
            operations.insert(
                task.kind == doc::TaskKind::encode
                    ? std::string(plan->operation_name(task))  // of any options and round
                    : doc::to_text(plan->operations[static_cast<std::size_t>(task.operation)]));
    }
  fmt::print("{} plans of dense steps, {} others\n", dense, others);
  EXPECT_GE(dense, 50);
  EXPECT_GE(others, 300);
  EXPECT_THAT(operations, testing::ElementsAre("inverse(by=eigen)", "sidco"));
}

/// docs/devices.md has the table. A compressor has a row if no one before it has the same numbers.
TEST(RegistryStreams, ThePageSaysWhatAStepCosts) {
  const Setting setting = zoo_setting("resnet18");
  std::string table;
  std::set<std::string> of_compressors;
  for (const std::string& strategy : strategies()) {
    if (!is_in_the_table(strategy)) continue;
    const auto plan = zoo_plan(setting, strategy, 2, true);
    const auto& kind = plan->variants[static_cast<std::size_t>(plan->cycle.front())];
    const exec::StreamCounts counts = step_counts(plan, 0);
    const std::string cells =
        fmt::format(" | {} | {} | {} | {} | {} |\n", kind.name, exec::LaneStreams(*plan, 0).count(),
                    counts.events, counts.waits, counts.host_waits);
    if (is_compressed(strategy) && !of_compressors.insert(cells).second) continue;
    table += "| `" + strategy + "`" + cells;
  }
  EXPECT_NE(read_file("docs/devices.md").find(table), std::string::npos)
      << "docs/devices.md should have\n"
      << table;
}

}  // namespace
}  // namespace linerate::support
