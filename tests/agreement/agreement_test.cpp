// Simulator and runner obey one Plan: over every strategy and extra of the registry, rank counts
// and awkward workloads, six steps each, both start the same tasks in the same order in each lane,
// with the same bytes, names and times; whether all steps are open at once or, as training and
// rehearsal have it, each when the computation of the one before is over.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <set>

#include "agreement/cases.hpp"
#include "agreement/virtual_run.hpp"
#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/compare/comparison.hpp"
#include "linerate/exec/rehearse.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/sim/simulate.hpp"
#include "linerate/trace/importers.hpp"
#include "linerate/trace/to_workload.hpp"
#include "sim/random_plan.hpp"
#include "sim/task_trace.hpp"

namespace linerate {
namespace {

using support::cluster_of;
using support::plan_of;
using support::Setting;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

constexpr int kSteps = 6;
constexpr double kNanosecond = 1e-9;

/// One line a task of a lane: what both sides must agree on, times apart.
std::string line_of(const doc::Plan& plan, std::int64_t step, std::uint32_t task) {
  const doc::TaskGraph& graph = plan.variant_of_step(step);
  return fmt::format("step {} ({}) task {}: {}, {} bytes", step, graph.name, task,
                     title_of(plan, graph, graph.tasks[task]), graph.tasks[task].bytes);
}

/// The traced tasks by [rank][lane], in order of start; Plan order breaks ties, which is the order
/// of starting: a lane runs one after the other.
using Lanes = std::vector<std::array<std::vector<support::TracedTask>, doc::kLanes>>;
Lanes simulated_lanes(const doc::Plan& plan, const cost::CostModel& model) {
  Lanes lanes(to_index(plan.ranks));
  for (const support::TracedTask& t : support::trace_tasks(plan, model, kSteps)) {
    const doc::Task& task = plan.variant_of_step(t.step).tasks[t.task];
    lanes[to_index(t.rank)][to_index(task.resource)].push_back(t);
  }
  for (auto& rank : lanes)
    for (auto& lane : rank)
      std::stable_sort(lane.begin(), lane.end(),
                       [](const auto& a, const auto& b) { return a.start_s < b.start_s; });
  return lanes;
}

using support::Opening;

/// Empty where both agree, else the first difference. `all`: simulated_lanes() of the same.
std::string difference(const doc::Plan& plan, const cost::CostModel& model, const Lanes& all,
                       Opening opening = Opening::all_at_once) {
  const support::VirtualRun run(plan, model, kSteps, opening);
  if (!run.finished()) return "the runner did not finish";
  for (int r = 0; r < plan.ranks; ++r)
    for (std::size_t lane = 0; lane < doc::kLanes; ++lane) {
      const auto& simulated = all[to_index(r)][lane];
      const auto& ran = run.lanes(r)[lane];
      const auto place = [&] {
        return fmt::format("rank {}, lane {}", r, doc::kResourceNames[lane]);
      };
      if (simulated.size() != ran.size())
        return fmt::format("{}: simulated {} tasks, ran {}", place(), simulated.size(), ran.size());
      for (std::size_t i = 0; i < ran.size(); ++i) {
        // Of one Plan: the same task has the same name and bytes, which are told when they matter.
        if (simulated[i].step != ran[i].id.step || simulated[i].task != ran[i].id.task)
          return fmt::format("{}: simulated {}, ran {}", place(),
                             line_of(plan, simulated[i].step, simulated[i].task),
                             line_of(plan, ran[i].id.step, ran[i].id.task));
        if (std::abs(simulated[i].start_s - ran[i].start_s) > kNanosecond ||
            std::abs(simulated[i].end_s - ran[i].end_s) > kNanosecond)
          return fmt::format("{}: {}: simulated {} .. {} s, ran {} .. {} s", place(),
                             line_of(plan, ran[i].id.step, ran[i].id.task), simulated[i].start_s,
                             simulated[i].end_s, ran[i].start_s, ran[i].end_s);
      }
    }
  return "";
}

TEST(Agreement, EveryStrategyIsSimulatedRunAndRehearsedAlike) {
  int agree = 0;
  std::set<std::string> met;
  for (const auto& [setting, strategy] : support::cases()) {
    met.insert(strategy);
    for (const int ranks : {1, 2, 3, 4})
      for (const bool training : {false, true}) {
        const doc::Cluster cluster = cluster_of(*setting, ranks);
        const auto plan = plan_of(strategy, *setting, cluster, ranks, training);
        if (!plan) continue;
        ++agree;
        const cost::CostModel model(cluster);
        const Lanes simulated = simulated_lanes(*plan, model);
        for (const Opening opening : {Opening::all_at_once, Opening::one_after_the_other}) {
          const std::string found = difference(*plan, model, simulated, opening);
          ASSERT_EQ(found, "") << setting->name << ", " << strategy << ", " << ranks << " ranks"
                               << (training ? ", as train runs it" : "")
                               << (opening == Opening::all_at_once ? "" : ", as rehearsed");
        }
      }
  }
  fmt::print("{} cases agree\n", agree);
  EXPECT_EQ(met.size(), support::strategies().size());  // in every build
  EXPECT_GE(agree, 500);
}

TEST(Agreement, OverRandomPlansWithGroupsAndWarmUp) {
  constexpr std::uint64_t kCases = 2000;
  for (std::uint64_t seed = 0; seed < kCases; ++seed) {
    support::Random random(seed);
    doc::Plan plan = support::random_plan(random);
    const doc::Cluster cluster = support::random_cluster(random);
    const cost::CostModel model(cluster);
    ASSERT_EQ(difference(plan, model, simulated_lanes(plan, model)), "") << "seed " << seed;
  }
  fmt::print("{} random plans agree\n", kCases);
}

// ---- Rehearsal keeps to what the simulator says: over every strategy of the registry, ranks that
// are threads run the tasks of a steady step in the same order in each lane, under the same names,
// with the same bytes and parameters. Durations are a microsecond each: what is held is what
// happens, not when.

using RankLanes = std::array<std::vector<std::string>, doc::kResourceNames.size()>;

/// A line an event of a rank in a step, in order of start.
RankLanes lanes_of(const doc::Timeline& t, int rank, int step) {
  std::vector<doc::Event> events;
  std::copy_if(t.events.begin(), t.events.end(), std::back_inserter(events),
               [&](const doc::Event& e) { return e.rank == rank && e.step == step; });
  std::stable_sort(events.begin(), events.end(),
                   [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; });
  RankLanes lanes;
  for (const doc::Event& e : events) {
    EXPECT_TRUE(e.ready_ns <= e.start_ns && e.start_ns <= e.end_ns);  // ready: -1 where unknown
    std::string line = fmt::format("{} \"{}\" {} bytes", name_of(e.kind),
                                   e.name < 0 ? "" : t.names[to_index(e.name)],
                                   std::max<std::int64_t>(0, e.bytes));
    std::vector<std::string> set;
    if (e.set >= 0)
      for (const std::int32_t p : t.parameter_sets[to_index(e.set)])
        set.push_back(t.parameter_names[to_index(p)]);
    std::sort(set.begin(), set.end());
    lanes[to_index(e.resource)].push_back(fmt::format("{}: {}", line, fmt::join(set, " ")));
  }
  return lanes;
}

doc::Plan in_microseconds(doc::Plan plan) {
  for (doc::TaskGraph& graph : plan.variants)
    for (doc::Task& task : graph.tasks)
      if (task.seconds > 0) task.seconds = 1e-6;
  return plan;
}

doc::Timeline rehearsed(const doc::Plan& plan, int steps) {
  doc::Timeline timeline;
  const auto shared = std::make_shared<const doc::Plan>(plan);
  comm::run_ranks(plan.ranks, [&](comm::Communicator& communicator) {
    doc::Timeline mine = exec::rehearse(communicator, shared, {.steps = steps, .warm_up = 1});
    if (communicator.rank() == 0) timeline = std::move(mine);
  });
  return timeline;
}

struct Both {
  doc::Timeline predicted, measured;
};

/// So many steps after one that warms up, each as it is predicted.
Both expect_rehearsed(const Setting& setting, const doc::Plan& planned, int steps) {
  const doc::Plan plan = in_microseconds(planned);
  Both both{sim::predicted_timeline(plan, setting.workload,
                                    cost::CostModel(cluster_of(setting, plan.ranks))),
            rehearsed(plan, steps)};
  EXPECT_EQ(both.measured.steps.size(), to_index(steps * plan.ranks));
  const int cycle = static_cast<int>(plan.cycle.size());
  for (int rank = 0; rank < plan.ranks; ++rank)
    for (int step = 0; step < steps; ++step)
      EXPECT_EQ(lanes_of(both.measured, rank, step),
                lanes_of(both.predicted, rank, (step + 1) % cycle))
          << plan.strategy << ", rank " << rank;
  return both;
}

TEST(Rehearsal, RunsWhatTheSimulatorRunsInItsOrder) {
  int agree = 0;
  for (const auto& [setting, strategy] : support::cases()) {
    if (setting->unequal) continue;  // ranks compute alike in a rehearsal
    const int ranks = 2 + agree % 3;
    SCOPED_TRACE(fmt::format("{}, {}, {} ranks", setting->name, strategy, ranks));
    const auto planned =
        plan_of(strategy, *setting, cluster_of(*setting, ranks), ranks, agree % 2 == 0);
    if (!planned) continue;
    ++agree;
    const auto [predicted, measured] = expect_rehearsed(*setting, *planned, 2);
    const compare::Comparison joined = compare::compare(predicted, measured, {.warm_up = 0});
    ASSERT_TRUE(joined.only_predicted.empty() && joined.only_measured.empty());
    ASSERT_TRUE(joined.notes.empty()) << joined.notes.front();
  }
  fmt::print("{} rehearsals agree\n", agree);
  EXPECT_GE(agree, 100);
}

TEST(Rehearsal, SixteenRanks) {
  const Setting setting = support::settings()[2];
  for (const std::string strategy : {"ddp(first=64B, bucket=4KiB)", "dear(bucket=4KiB)"}) {
    const auto plan = plan_of(strategy, setting, cluster_of(setting, 16), 16, false);
    expect_rehearsed(setting, *plan, 1);
  }
}

// ---- A Timeline of linerate's own says by which strategy its steps exchange, and is read by that:
// over the registry, run on two ranks by training's Plan, and predicted.

/// As explain and import read it: through its file.
trace::Job read(const doc::Timeline& timeline) {
  trace::InputFile input = trace::InputFile::from_memory(doc::to_json(timeline), "timeline.json");
  return trace::read_job(std::span(&input, 1));
}

void expect_no_foreign_words(const std::vector<std::string>& notes) {
  for (const std::string& note : notes)
    EXPECT_THAT(note, Not(AnyOf(HasSubstr("FSDP"), HasSubstr("parallelism"), HasSubstr("pipeline"),
                                HasSubstr("hook"), HasSubstr("record_shapes"))));
}

void expect_explained(const trace::Job& job, const std::string& strategy) {
  EXPECT_EQ(job.sharding, "");
  const trace::Explanation e = trace::explain(job);
  expect_no_foreign_words(e.breakdown.notes);
  ASSERT_TRUE(e.breakdown.buckets);
  EXPECT_EQ(e.breakdown.buckets->strategy, strategy);
  EXPECT_EQ(e.breakdown.buckets->verdict, strategy + ", as the Timeline says");
}

/// Training copies each gradient into its bucket, which a rehearsal leaves out.
void add_copies(doc::Timeline& t, const doc::Workload& workload) {
  std::vector<doc::Event> copies;
  for (const doc::Event& e : t.events) {
    if (e.kind != doc::TaskKind::backward || e.set < 0) continue;
    const std::vector<std::int32_t> parameters = t.parameter_sets[to_index(e.set)];
    ASSERT_EQ(parameters.size(), 1u);
    const std::string& name = t.parameter_names[to_index(parameters.front())];
    doc::Event copy = e;
    copy.kind = doc::TaskKind::copy;
    copy.ready_ns = copy.start_ns = copy.end_ns;
    copy.bytes = std::ranges::find(workload.gradients, name, &doc::Gradient::name)->bytes();
    copies.push_back(copy);
  }
  t.events.insert(t.events.end(), copies.begin(), copies.end());
}

/// Elements of gradients in ready order.
std::vector<std::int64_t> elements_of(const doc::Workload& workload) {
  std::vector<std::int64_t> all;
  for (const doc::Gradient& g : workload.gradients) all.push_back(g.elements);
  return all;
}

TEST(OwnTimelines, OfEveryStrategyAreReadAsWhatTheyAre) {
  const support::Setting setting = support::settings()[5];  // "matrices"
  const doc::Cluster cluster = support::cluster_of(setting, 2);
  int read_back = 0;
  for (const std::string& strategy : support::strategies()) {
    const auto plan = support::plan_of(strategy, setting, cluster, 2, true);
    if (!plan) continue;
    SCOPED_TRACE(strategy);
    doc::Timeline recorded = rehearsed(*plan, 2);
    recorded.one_rank_step_s = 1;
    add_copies(recorded, setting.workload);
    const trace::Job job = read(recorded);
    expect_explained(job, plan->strategy);
    std::vector<std::string> notes;
    const doc::Workload imported = trace::workload_of(job, "timeline", notes);
    expect_no_foreign_words(notes);
    EXPECT_EQ(imported.current, plan->strategy);
    EXPECT_EQ(elements_of(imported), elements_of(setting.workload));
    EXPECT_EQ(imported.step_s, 1);
    EXPECT_EQ(imported.buffer_bytes, 12345);  // as plan_of() has them

    const doc::Timeline predicted =
        sim::predicted_timeline(*plan, setting.workload, cost::CostModel(cluster));
    expect_explained(read(predicted), plan->strategy);
    ++read_back;
  }
  fmt::print("{} strategies read back\n", read_back);
  EXPECT_GE(read_back, 100);
}

TEST(OwnTimelines, WithoutSizesOfGradientsStandForThemByBucketsOrAreRefused) {
  const support::Setting setting = support::settings()[5];
  const doc::Cluster cluster = support::cluster_of(setting, 2);
  for (const std::string strategy : {"ddp", "dear", "ddp+topk", "ddp(wire=fp16)"}) {
    const auto plan = support::plan_of(strategy, setting, cluster, 2, false);
    const trace::Job job = read(rehearsed(*plan, 2));
    std::vector<std::string> notes;
    if (strategy == "ddp" || strategy == "dear") {
      const doc::Workload w = trace::workload_of(job, "timeline", notes);
      EXPECT_EQ(w.gradient_bytes(), setting.workload.gradient_bytes());
      EXPECT_THAT(notes, testing::Contains(HasSubstr("the Timeline has no sizes of gradients")));
      expect_no_foreign_words(notes);
      continue;
    }
    EXPECT_THAT([&] { static_cast<void>(trace::workload_of(job, "timeline", notes)); },
                testing::ThrowsMessage<InputError>(testing::AllOf(
                    HasSubstr("a Timeline under " + strategy), HasSubstr("train --record"))));
  }
}

}  // namespace
}  // namespace linerate
