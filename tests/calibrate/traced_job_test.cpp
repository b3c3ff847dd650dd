// What traces say beside their collectives' own times: contention and start delay, known by
// construction, and given back.
#include <gmock/gmock.h>

#include <cmath>

#include "linerate/calibrate/from_traces.hpp"
#include "linerate/core/random.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/sim/simulate.hpp"
#include "linerate/trace/contention/slowdown.hpp"
#include "linerate/trace/timeline/timeline_job.hpp"
#include "sim/hand_plan.hpp"
#include "support/sample_workloads.hpp"
#include "support/says.hpp"
#include "trace/synthetic_job.hpp"

namespace linerate::calibrate {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using trace::Repetition;
using trace::slowdown_of;
using trace::SlowdownFound;

// ---- slowdown_of ----

/// `base` seconds of work of which the other thing is beside `beside_s` of the time it then takes.
Repetition repeated(std::uint64_t kind, double base, double factor, double share) {
  // T = base + (1 - 1/factor) share T
  const double seconds = base / (1 - (1 - 1 / factor) * share);
  return {kind, seconds, share * seconds};
}

TEST(Slowdown, IsExactWhateverPartIsTouched) {
  std::vector<Repetition> all;
  for (std::uint64_t kind = 0; kind < 12; ++kind) {
    const double base = 1e-3 * static_cast<double>(kind + 1);
    for (const double share : {0.0, 0.5, 0.8, 1.0}) all.push_back(repeated(kind, base, 1.3, share));
  }
  const SlowdownFound found = slowdown_of(all);
  ASSERT_TRUE(found.slowdown);
  for (const double factor : {found.slowdown->low, found.slowdown->factor, found.slowdown->high})
    EXPECT_NEAR(factor, 1.3, 1e-9);
}

TEST(Slowdown, NothingIsToldOfWorkThatNeverRanAlone) {
  // Longer by chance and beside the other thing all the time: every one of them, so that no two
  // can be compared.
  std::vector<Repetition> all;
  for (std::uint64_t i = 0; i < 500; ++i) {
    const double seconds = 1e-3 * (1 + 5 * random_unit(1, i));
    all.push_back({i % 5, seconds, seconds});
  }
  const SlowdownFound found = slowdown_of(all);
  EXPECT_EQ(found.comparisons, 0);
  EXPECT_FALSE(found.slowdown);
}

TEST(Slowdown, FewComparisonsTellNothing) {
  std::vector<Repetition> all;
  for (std::uint64_t kind = 0; kind < 7; ++kind)
    for (const double share : {0.0, 1.0}) all.push_back(repeated(kind, 1e-3, 2, share));
  EXPECT_FALSE(slowdown_of(all).slowdown);
  for (const double share : {0.0, 1.0}) all.push_back(repeated(7, 1e-3, 2, share));
  EXPECT_TRUE(slowdown_of(all).slowdown);
}

TEST(Slowdown, ALongPieceOfWorkDoesNotStandForManyShortOnes) {
  std::vector<Repetition> all;
  for (std::uint64_t kind = 0; kind < 20; ++kind)
    for (const double share : {0.0, 1.0})
      all.push_back(repeated(kind, kind == 0 ? 1 : 1e-3, 2, share));
  EXPECT_LT(slowdown_of(all).comparisons, 1.1);
}

TEST(Slowdown, StallsOfSomeRepetitionsDoNotMoveIt) {
  std::uint64_t drawn = 0;
  std::vector<Repetition> all;
  for (std::uint64_t kind = 0; kind < 50; ++kind)
    for (int i = 0; i < 10; ++i) {
      Repetition r = repeated(kind, 1e-3, 1.25, i % 2);
      const double outlier = random_unit(7, drawn++) < 0.1 ? 10 : 1;
      const double longer = outlier * (1 + 0.04 * (random_unit(7, drawn++) - 0.5));
      r.seconds *= longer, r.beside_s *= longer;
      all.push_back(r);
    }
  const SlowdownFound found = slowdown_of(all);
  ASSERT_TRUE(found.slowdown);
  EXPECT_NEAR(found.slowdown->factor, 1.25, 0.02);
  EXPECT_LE(found.slowdown->low, 1.25);
  EXPECT_GE(found.slowdown->high, 1.25);
}

TEST(Slowdown, TimesThatScatterTellNothing) {
  std::uint64_t drawn = 0;
  std::vector<Repetition> all;
  for (std::uint64_t kind = 0; kind < 20; ++kind)
    for (const double share : {0.0, 1.0}) {
      const double seconds = 1e-3 * (1 + 20 * random_unit(3, drawn++));
      all.push_back({kind, seconds, share * seconds});
    }
  EXPECT_FALSE(slowdown_of(all).slowdown);
}

// ---- a simulated job gives back what it was simulated with ----

constexpr int kPieces = 24;  // of computation, 1 s each

/// Computation with an exchange of 8 bytes behind every sixth piece, the last of them exposed; or
/// none but that one.
doc::TaskGraph step_of(const char* name, bool sends) {
  doc::TaskGraph graph;
  graph.name = name;
  std::uint32_t last = 0;
  for (int k = 0; k < kPieces; ++k) {
    doc::Task piece = linerate::support::compute(1);
    piece.kind = doc::TaskKind::forward;
    last = graph.add(piece);
    if (sends && k % 6 == 0) graph.add(linerate::support::exchange(8), last);
  }
  doc::Task update = linerate::support::compute(1);
  update.kind = doc::TaskKind::update;
  graph.add(update, graph.add(linerate::support::exchange(8), last));
  return graph;
}

trace::Job simulated_job(const doc::Cluster& cluster) {
  doc::Plan plan = linerate::support::empty_plan(2);
  plan.variants = {step_of("sends", true), step_of("silent", false)};
  plan.cycle.clear();
  for (int i = 0; i < 8; ++i) plan.cycle.insert(plan.cycle.end(), {0, 1});
  const doc::Workload workload = linerate::support::workload_at({1}, {8});
  return trace::job_of(sim::predicted_timeline(plan, workload, cost::CostModel(cluster)));
}

doc::Cluster two_ranks() { return linerate::support::two_rank_cluster(1, 0.125); }  // 8 B: 2 s

/// What is told of a job, and what is said.
struct Told : TracedJob {
  std::vector<std::string> notes = {};
};
Told told(const trace::Job& job) {
  std::vector<std::string> notes;
  return {calibrate_from_trace(job, "job", notes), notes};
}
void expect_contention(const TracedJob& traced, double computation, double communication) {
  ASSERT_TRUE(traced.contention);
  EXPECT_NEAR(traced.contention->compute_slowdown, computation, 1e-6);
  EXPECT_NEAR(traced.contention->communication_slowdown, communication, 1e-6);
}

TEST(TracedJob, GivesBackTheContentionItWasSimulatedWith) {
  expect_contention(told(simulated_job(two_ranks())), 1, 1);
  doc::Cluster cluster = two_ranks();
  cluster.contention = doc::Contention{1.25, 1.5};
  const Told traced = told(simulated_job(cluster));
  expect_contention(traced, 1.25, 1.5);
  EXPECT_EQ(traced.contention->coding_slowdown, 1);
  // The tables are of exchanges alone: with the slowdown on top they are what was recorded.
  ASSERT_EQ(traced.tables.size(), 1u);
  for (const doc::CostSample& s : traced.tables[0].samples) EXPECT_NEAR(s.seconds, 2, 1e-6);
  EXPECT_THAT(traced.notes,
              testing::Contains(AllOf(HasSubstr("computation runs 1.25 times slower during"),
                                      HasSubstr("90 % interval 1.25 to 1.25"))));
}

TEST(TracedJob, GivesBackTheStartDelayItWasSimulatedWith) {
  doc::Cluster cluster = two_ranks();
  std::vector<std::string> notes;
  EXPECT_EQ(start_delay_from_trace(simulated_job(cluster), "job", notes), 0);
  EXPECT_THAT(notes, says("no record says when a collective was ready"));
  cluster.start_delay_s = 0.125;
  EXPECT_NEAR(start_delay_from_trace(simulated_job(cluster), "job", notes), 0.125, 1e-9);
  EXPECT_THAT(notes, says("90 % interval 125 ms to 125 ms"));
}

// ---- recorded formats ----

/// Every other step a pause of `pause_us` moves its exchanges off the computation behind them.
trace::SyntheticJob uneven_job(long pause_us) {
  trace::SyntheticJob job;
  job.steps = 24;
  job.delay_us = [pause_us](int, int step, int slot) {
    return slot >= 2 && step % 2 == 1 ? pause_us : 0L;
  };
  return job;
}

TEST(TracedJob, AJobWhoseComputationNeverSlowsSaysSo) {
  for (const trace::Recorded how : {trace::Recorded::kernels, trace::Recorded::gpu}) {
    const Told traced = told(trace::job_of(uneven_job(8'000), how));
    ASSERT_TRUE(traced.contention) << ::testing::PrintToString(traced.notes);
    EXPECT_NEAR(traced.contention->compute_slowdown, 1, 1e-9);
  }
}

TEST(TracedJob, StepsThatAreAllAlikeTellNothing) {
  const Told traced = told(trace::job_of({.steps = 24}, trace::Recorded::gpu));
  EXPECT_FALSE(traced.contention);
  EXPECT_THAT(
      traced.notes,
      says("how much slower computation runs during collectives, because too little of it"));
}

TEST(TracedJob, OneRankOfSeveralTellsNothing) {
  // Waiting for the other rank cannot be told from moving data.
  trace::Job job = trace::job_of(uneven_job(8'000), trace::Recorded::gpu);
  job.ranks.pop_back();
  EXPECT_FALSE(told(job).contention);
}

/// Of one microsecond, of ten, of a hundred, ...
trace::Communication scattered(std::size_t i) {
  trace::Communication c;
  c.ready_ns = static_cast<std::int64_t>(i + 100) * 1'000'000'000;
  c.span.start_ns = c.ready_ns + 1000 * static_cast<std::int64_t>(std::pow(10, i % 4));
  c.span.end_ns = c.span.start_ns + 1000;
  return c;
}

TEST(TracedJob, DelaysOfCollectivesBehindOthersDoNotCount) {
  // Every second collective is ready while the first one is under way.
  trace::Job job;
  job.world_size = 2;
  std::vector<trace::Communication>& all = job.ranks.emplace_back().communications;
  for (std::int64_t i = 0; i < 10; ++i) {
    const std::int64_t at = i * 1'000'000;
    all.emplace_back().span = {at + 20'000, at + 300'000}, all.back().ready_ns = at;
    all.emplace_back().span = {at + 300'000, at + 500'000}, all.back().ready_ns = at + 100'000;
  }
  std::vector<std::string> notes;
  EXPECT_DOUBLE_EQ(start_delay_from_trace(job, "job", notes), 20e-6);
  EXPECT_THAT(notes, says("10 collectives"));
  all.resize(10);
  EXPECT_EQ(start_delay_from_trace(job, "job", notes), 0);
  EXPECT_THAT(notes, says("5 came to an idle network, and 8 are needed"));
  for (std::size_t i = 0; i < 60; ++i) all.push_back(scattered(i));
  EXPECT_EQ(start_delay_from_trace(job, "job", notes), 0);
  EXPECT_THAT(notes, says("it scatters (90 % interval"));
}

/// Two processes of PyTorch on one machine with Gloo (tools/record-fixtures).
TEST(TracedJob, RecordedJobsArePlausibleOrUnknown) {
  if (!std::filesystem::exists("tests/trace/fixtures"))
    GTEST_SKIP() << "run from the project's root: tests/trace/fixtures is not there";
  for (const char* name : {"gloo2", "late2", "even2", "half2", "micro2", "threads2", "loader2",
                           "accumulate2", "late_backward2"}) {
    const Told traced = told(trace::recorded_job(name));
    const doc::Contention found = traced.contention.value_or(doc::Contention{1, 1});
    for (const double factor : {found.compute_slowdown, found.communication_slowdown})
      EXPECT_THAT(factor, AllOf(testing::Ge(1), testing::Le(4))) << name;
    EXPECT_TRUE(traced.contention || testing::Value(traced.notes, says("is not known"))) << name;
    // A thread of Gloo's wakes within a scheduler's slice or two.
    EXPECT_LT(traced.start_delay_s, 20e-3) << name;
  }
}

}  // namespace
}  // namespace linerate::calibrate
