// A Timeline of linerate's own says by which strategy its steps exchange, and is read by that: over
// the registry, run on two ranks by training's Plan, and predicted.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "agreement/cases.hpp"
#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/exec/rehearse.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/sim/simulate.hpp"
#include "linerate/trace/importers.hpp"
#include "linerate/trace/to_workload.hpp"

namespace linerate {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

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

/// Two steps of two ranks.
doc::Timeline recorded_by(const doc::Plan& plan) {
  doc::Timeline recorded;
  comm::run_ranks(2, [&](comm::Communicator& communicator) {
    doc::Timeline mine = exec::rehearse(communicator, std::make_shared<const doc::Plan>(plan),
                                        {.steps = 2, .warm_up = 1});
    if (communicator.rank() == 0) recorded = std::move(mine);
  });
  return recorded;
}

/// Training copies each gradient into its bucket, which a rehearsal leaves out.
void add_copies(doc::Timeline& t, const doc::Workload& workload) {
  std::vector<doc::Event> copies;
  for (const doc::Event& e : t.events) {
    if (e.kind != doc::TaskKind::backward || e.set < 0) continue;
    const std::vector<std::int32_t> parameters = t.parameter_sets[static_cast<std::size_t>(e.set)];
    ASSERT_EQ(parameters.size(), 1u);
    const std::string& name = t.parameter_names[static_cast<std::size_t>(parameters.front())];
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
    doc::Timeline recorded = recorded_by(*plan);
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
    const trace::Job job = read(recorded_by(*plan));
    std::vector<std::string> notes;
    if (strategy == "ddp" || strategy == "dear") {
      const doc::Workload w = trace::workload_of(job, "timeline", notes);
      EXPECT_EQ(w.gradient_bytes(), setting.workload.gradient_bytes());
      EXPECT_THAT(notes, testing::Contains(HasSubstr("the Timeline has no sizes of gradients")));
      expect_no_foreign_words(notes);
      continue;
    }
    try {
      static_cast<void>(trace::workload_of(job, "timeline", notes));
      ADD_FAILURE() << strategy;
    } catch (const InputError& e) {
      EXPECT_THAT(e.what(), HasSubstr("a Timeline under " + strategy));
      EXPECT_THAT(e.what(), HasSubstr("train --record"));
    }
  }
}

}  // namespace
}  // namespace linerate
