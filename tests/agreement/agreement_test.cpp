// Simulator and runner obey one Plan: over every strategy and extra of the registry, rank counts
// and awkward workloads, six steps each, both start the same tasks in the same order in each lane,
// with the same bytes, names and times.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "agreement/virtual_run.hpp"
#include "linerate/core/error.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/sim/predicted_timeline.hpp"
#include "linerate/sim/task_trace.hpp"
#include "sim/random_plan.hpp"
#include "support/sample_workloads.hpp"

namespace linerate {
namespace {

constexpr int kSteps = 6;
constexpr double kNanosecond = 1e-9;

/// One line a task of a lane: what both sides must agree on, times apart.
std::string line_of(const doc::Plan& plan, std::int64_t step, std::uint32_t task) {
  const doc::TaskGraph& graph = plan.variant_of_step(step);
  return fmt::format("step {} ({}) task {}: {}, {} bytes", step, graph.name, task,
                     title_of(plan, graph, graph.tasks[task]), graph.tasks[task].bytes);
}

/// The traced tasks of one rank's lane, in order of start; Plan order breaks ties, which is the
/// order of starting: a lane runs one after the other.
std::vector<sim::TracedTask> lane_of(const std::vector<sim::TracedTask>& trace,
                                     const doc::Plan& plan, int rank, std::size_t lane) {
  std::vector<sim::TracedTask> tasks;
  for (const sim::TracedTask& t : trace)
    if (t.rank == rank &&
        static_cast<std::size_t>(plan.variant_of_step(t.step).tasks[t.task].resource) == lane)
      tasks.push_back(t);
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const auto& a, const auto& b) { return a.start_s < b.start_s; });
  return tasks;
}

/// Empty where both agree, else the first difference.
std::string difference(const doc::Plan& plan, const cost::CostModel& model) {
  const testing::VirtualRun run(plan, model, kSteps);
  if (!run.finished()) return "the runner did not finish";
  const std::vector<sim::TracedTask> trace = sim::trace_tasks(plan, model, kSteps);
  for (int r = 0; r < plan.ranks; ++r)
    for (std::size_t lane = 0; lane < doc::kLanes; ++lane) {
      const auto simulated = lane_of(trace, plan, r, lane);
      const auto& ran = run.lanes(r)[lane];
      const auto place = [&] {
        return fmt::format("rank {}, lane {}", r, doc::kResourceNames[lane]);
      };
      if (simulated.size() != ran.size())
        return fmt::format("{}: simulated {} tasks, ran {}", place(), simulated.size(), ran.size());
      for (std::size_t i = 0; i < ran.size(); ++i) {
        const std::string expected = line_of(plan, simulated[i].step, simulated[i].task);
        const std::string found = line_of(plan, ran[i].id.step, ran[i].id.task);
        if (expected != found)
          return fmt::format("{}: simulated {}, ran {}", place(), expected, found);
        if (std::abs(simulated[i].start_s - ran[i].start_s) > kNanosecond ||
            std::abs(simulated[i].end_s - ran[i].end_s) > kNanosecond)
          return fmt::format("{}: {}: simulated {} .. {} s, ran {} .. {} s", place(), found,
                             simulated[i].start_s, simulated[i].end_s, ran[i].start_s,
                             ran[i].end_s);
      }
    }
  return "";
}

/// Names, parameter sets, bytes and durations of a rank's executed tasks in one steady step, as the
/// predicted Timeline has them and as a Recorder would write them.
std::multiset<std::string> predicted_events(const doc::Plan& plan, const doc::Workload& workload,
                                            const cost::CostModel& model, int rank) {
  std::multiset<std::string> lines;
  const doc::Timeline t = sim::predicted_timeline(plan, workload, model);
  for (const doc::Event& e : t.events) {
    // Observed tasks are others' to record: layers, the optimizer, the step's tail.
    const bool observed = e.kind == doc::TaskKind::forward || e.kind == doc::TaskKind::backward ||
                          e.kind == doc::TaskKind::update ||
                          (e.kind == doc::TaskKind::host && e.resource == doc::Resource::compute);
    if (e.rank != rank || e.step < 0 || observed) continue;
    std::string set;
    if (e.set >= 0)
      for (const std::int32_t p : t.parameter_sets[static_cast<std::size_t>(e.set)])
        set += " " + t.parameter_names[static_cast<std::size_t>(p)];
    lines.insert(fmt::format("{} {}{}", t.names[static_cast<std::size_t>(e.name)],
                             std::max<std::int64_t>(0, e.bytes), set));
  }
  return lines;
}

std::multiset<std::string> recorded_events(const doc::Plan& plan, const cost::CostModel& model,
                                           int rank) {
  std::multiset<std::string> lines;
  const testing::VirtualRun run(plan, model, 12);
  for (const auto& lane : run.lanes(rank))
    for (const testing::RunTask& t : lane) {
      const doc::TaskGraph& graph = plan.variant_of_step(t.id.step);
      const doc::Task& task = graph.tasks[t.id.task];
      // The step that the predicted Timeline shows: its steps overlap, and eight settle first.
      const bool overlaps = !plan.variants.back().next_step.empty();
      const auto warm = static_cast<std::int64_t>(plan.warm_up.size());
      if (t.id.step != warm + (overlaps ? 8 : 0) || t.end_s <= t.start_s ||
          task.origin == doc::Origin::observed)
        continue;
      std::string set;
      for (const std::int32_t p : gradients_of(plan, graph, task))
        set += " " + plan.gradient_names[static_cast<std::size_t>(p)];
      lines.insert(fmt::format("{} {}{}", title_of(plan, graph, task), task.bytes, set));
    }
  return lines;
}

struct Setting {
  std::string name;
  doc::Workload workload;
  bool unequal = false;
};

std::vector<Setting> settings() {
  std::vector<Setting> all;
  all.push_back({"one gradient", testing::workload_at({0.5}, {4 * 7}), false});
  std::vector<std::int64_t> many, primes;
  for (int i = 0; i < 300; ++i) many.push_back(1 + 977 * (i % 13) * (i % 7));
  for (const int p : {2, 3, 5, 7, 101, 1009, 10007, 100003, 1000003}) primes.push_back(p);
  all.push_back({"300 gradients", testing::workload_of(many, 3e-4), false});
  all.push_back({"prime sizes", testing::workload_of(primes, 2e-3), false});
  Setting mixed{"two dtypes, a tail", testing::workload_of(primes, 2e-3), false};
  for (std::size_t i = 0; i < mixed.workload.gradients.size(); i += 2)
    mixed.workload.gradients[i].dtype = DType::f64;
  mixed.workload.forward_s = 4e-3;
  mixed.workload.update_s = 1e-3;
  mixed.workload.tail_s = 2e-3;
  all.push_back(mixed);
  // Layers without parameters at both ends and in the middle, one of no length.
  Setting layers{"empty layers", testing::workload_of(primes, 2e-3), false};
  for (int l = 0; l < 12; ++l)
    layers.workload.layers.push_back(
        {"layer" + std::to_string(l), "linear", l == 3 ? 0 : 1e-3 * (l + 1), {}, 0});
  for (std::size_t i = 0; i < layers.workload.gradients.size(); ++i)
    layers.workload.gradients[i].layer = 10 - static_cast<int>(i);
  layers.workload.forward_s = 0.09;
  layers.workload.backward_s += 5e-3;
  all.push_back(layers);
  Setting unequal = layers;
  unequal.name = "unequal ranks";
  unequal.unequal = true;
  all.push_back(unequal);
  return all;
}

/// Every exchange of the registry, with the options that change its shape, and every extra.
std::vector<std::string> strategies() {
  const std::map<std::string, std::vector<std::string>> options = {
      {"ddp", {"first=64B, bucket=4KiB", "small=last", "wire=fp16"}},
      {"bulk", {"wire=bf16"}},
      {"horovod", {"timer=clock, cycle=2ms", "threshold=0MiB, timer=clock", "wire=fp16"}},
      {"mg-wfbp", {"wire=fp16"}},
      {"optimal", {"cap=1MiB", "wire=bf16"}},
      {"dear", {"layers=1", "bucket=1KiB", "wire=fp16"}}};
  const std::map<std::string, std::vector<std::string>> extra_options = {
      {"codec",
       {"ratio=8, encode=1GB/s, decode=2GB/s", "ratio=3, exchange=gather, decode=1GB/s",
        "ratio=8, encode=1GB/s, decode=2GB/s, on=compute"}}};
  std::vector<std::string> all;
  for (const auto& exchange : plan::exchanges().lines()) {
    std::vector<std::string> forms = {exchange.name};
    const auto own = options.find(exchange.name);
    if (own != options.end())
      for (const std::string& o : own->second) forms.push_back(exchange.name + "(" + o + ")");
    all.insert(all.end(), forms.begin(), forms.end());
    for (const auto& extra : plan::extras().lines()) {
      const auto known = extra_options.find(extra.name);
      if (known == extra_options.end()) {
        all.push_back(exchange.name + "+" + extra.name);
        continue;
      }
      for (const std::string& o : known->second)
        all.push_back(exchange.name + "+" + extra.name + "(" + o + ")");
    }
  }
  return all;
}

doc::Cluster cluster_of(const Setting& setting, int ranks) {
  doc::Cluster c = testing::two_rank_cluster(1e-4, 1e-9);
  if (setting.unequal)
    for (int r = 0; r < ranks; ++r)
      c.rank_speeds.push_back({r, 1 + 0.3 * (r % 3), r == 1 ? 4e-3 : 0});
  return c;
}

/// The plan, or nothing where the strategy says by itself that this cannot be.
std::optional<doc::Plan> plan_of(const std::string& strategy, const Setting& setting,
                                 const doc::Cluster& cluster, int ranks, bool training) {
  plan::PlanOptions options;
  if (training) options.housekeeping = plan::Housekeeping{12345};
  const doc::Strategy parsed = doc::parse_strategy(strategy);
  const bool gathers = strategy.find("gather") != std::string::npos;
  const bool on_compute = strategy.find("on=compute") != std::string::npos;
  if (plan::exchanges().at(parsed.exchange.name).traits.needs_summable && (gathers || on_compute)) {
    EXPECT_THROW(plan::make_plan(setting.workload, cluster, parsed, ranks, options), UsageError);
    return std::nullopt;
  }
  return plan::make_plan(setting.workload, cluster, parsed, ranks, options);
}

TEST(Agreement, OverTheRegistry) {
  int cases = 0;
  for (const Setting& setting : settings())
    for (const std::string& strategy : strategies())
      for (const int ranks : {1, 2, 3, 4})
        for (const bool training : {false, true}) {
          const doc::Cluster cluster = cluster_of(setting, ranks);
          const auto plan = plan_of(strategy, setting, cluster, ranks, training);
          if (!plan) continue;
          ++cases;
          const std::string found = difference(*plan, cost::CostModel(cluster));
          ASSERT_EQ(found, "") << setting.name << ", " << strategy << ", " << ranks << " ranks"
                               << (training ? ", as train runs it" : "");
        }
  fmt::print("{} cases agree\n", cases);
  EXPECT_GE(cases, 500);
}

TEST(Agreement, EventsHaveTheSameNamesBytesAndParameters) {
  int cases = 0;
  for (const Setting& setting : settings())
    for (const std::string& strategy : strategies()) {
      const int ranks = 1 + cases % 4;
      const doc::Cluster cluster = cluster_of(setting, ranks);
      const auto plan = plan_of(strategy, setting, cluster, ranks, cases % 2 == 0);
      if (!plan) continue;
      ++cases;
      const cost::CostModel model(cluster);
      ASSERT_EQ(predicted_events(*plan, setting.workload, model, ranks - 1),
                recorded_events(*plan, model, ranks - 1))
          << setting.name << ", " << strategy << ", " << ranks << " ranks";
    }
  fmt::print("{} Timelines agree\n", cases);
}

TEST(Agreement, OverRandomPlansWithGroupsAndWarmUp) {
  constexpr std::uint64_t kCases = 500;
  for (std::uint64_t seed = 0; seed < kCases; ++seed) {
    testing::Random random(seed);
    doc::Plan plan = testing::random_plan(random);
    const doc::Cluster cluster = testing::random_cluster(random);
    ASSERT_EQ(difference(plan, cost::CostModel(cluster)), "") << "seed " << seed;
  }
  fmt::print("{} random plans agree\n", kCases);
}

}  // namespace
}  // namespace linerate
