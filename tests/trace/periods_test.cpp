// Which marks of the profiler are steps, and what is judged of steps that are not alike.
#include <gmock/gmock.h>

#include <tuple>

#include "linerate/explain/explanation.hpp"
#include "linerate/trace/to_workload.hpp"
#include "support/says.hpp"
#include "trace/kineto_text.hpp"
#include "trace/synthetic_job.hpp"

namespace linerate::trace {
namespace {

using testing::IsEmpty;

Explanation explained(Job job) {
  find_one_rank_time(job, std::nullopt);
  return explain(job);
}

/// Twenty milliseconds of the last bucket are exposed; a step without exchange takes 34, its update
/// 3.
SyntheticJob job_of_periods(int every, int periods) {
  SyntheticJob job;
  job.steps = every * periods;
  job.exchange_every = every;
  job.transfer_us = {4'000, 6'000, 20'000};
  return job;
}
constexpr double kPass_s = 34e-3, kUpdate_s = 3e-3, kExposed_s = 20e-3;

class Periods : public testing::TestWithParam<std::tuple<int, Recorded>> {};

TEST_P(Periods, MarksThatAccumulateAreJudgedByTheUpdate) {
  const auto [every, how] = GetParam();
  SyntheticJob made = job_of_periods(every, 3);
  made.update_every = every;
  const Explanation e = explained(job_of(made, how));
  const double alone_s = every * kPass_s + kUpdate_s, step_s = alone_s + kExposed_s;
  EXPECT_EQ(e.breakdown.steps.size(), 3u);
  EXPECT_EQ(e.breakdown.marks_s.size(), static_cast<std::size_t>(3 * every));
  EXPECT_NEAR(*e.breakdown.step_s, step_s, 1e-6);
  EXPECT_NEAR(*e.breakdown.scaling_factor, alone_s / step_s, 0.01);
  EXPECT_NEAR(e.verdict.exposed_share, kExposed_s / step_s, 1e-3);
  EXPECT_THAT(e.breakdown.path.irregular, IsEmpty());
}

TEST_P(Periods, ParametersThatAreExchangedEveryFewStepsAreJudgedOverWholePeriods) {
  const auto [every, how] = GetParam();
  if (how == Recorded::kernels)
    GTEST_SKIP() << "without a record of updates an exchange every few marks is accumulation";
  const Explanation e = explained(job_of(job_of_periods(every, 3), how));
  const double alone_s = kPass_s + kUpdate_s, step_s = alone_s + kExposed_s / every;
  EXPECT_NEAR(*e.breakdown.step_s, step_s, 1e-6);
  EXPECT_NEAR(*e.breakdown.scaling_factor, alone_s / step_s, 0.01);
  EXPECT_NEAR(e.verdict.exposed_share, kExposed_s / every / step_s, 1e-3);
  EXPECT_THAT(e.breakdown.path.irregular, IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Jobs, Periods,
                         testing::Combine(testing::Values(2, 3, 4, 8),
                                          testing::Values(Recorded::kernels, Recorded::gpu,
                                                          Recorded::cpu)));

TEST(PeriodsOfTime, ALoaderThatIsSlowEveryFewStepsRepeats) {
  SyntheticJob made;
  made.steps = 16;
  made.delay_us = [](int, int step, int slot) { return slot == 0 && step % 4 == 1 ? 30'000L : 0L; };
  for (const Recorded how : {Recorded::kernels, Recorded::gpu, Recorded::cpu}) {
    const Breakdown b = break_down(job_of(made, how));
    EXPECT_EQ(b.updates, 4);
    EXPECT_THAT(b.path.irregular, IsEmpty());
    EXPECT_THAT(b.notes, says("steps repeat every 4"));
  }
  // Once is no period.
  made.delay_us = [](int, int step, int slot) { return slot == 0 && step == 5 ? 30'000L : 0L; };
  const Breakdown once = break_down(job_of(made, Recorded::gpu));
  EXPECT_EQ(once.updates, 1);
  EXPECT_EQ(once.path.irregular.size(), 1u);
}

TEST(PeriodsOfTime, AFactorAboveOneIsReplacedByTheReason) {
  Job job = job_of(SyntheticJob{}, Recorded::gpu);
  job.one_rank = OneRankTime{{0.060, 0.058, 0.062}, "of another day"};  // the step takes 42 ms
  const Breakdown b = break_down(job);
  EXPECT_FALSE(b.scaling_factor);
  EXPECT_THAT(b.notes, says("measured under different load"));
  job.one_rank->step_s.low = 0.040;
  EXPECT_TRUE(break_down(job).scaling_factor);
  job.one_rank->step_s = {0.060};
  EXPECT_THAT(break_down(job).notes, says("T_1, 60.0 ms, is above the step"));
}

TEST(EmptyMarks, AreNoStepsForAnyNumber) {
  for (const int steps : {1, 2, 4})
    for (const Recorded how : {Recorded::kernels, Recorded::gpu, Recorded::cpu}) {
      SyntheticJob made;
      made.steps = steps;
      Job plain = job_of(made, how);
      made.stub = true;
      Job with = job_of(made, how);
      const ImportedJob one = import_job(plain), other = import_job(with);
      EXPECT_EQ(doc::to_json(one.workload), doc::to_json(other.workload));
      EXPECT_EQ(one.notes, other.notes);
      for (Job* job : {&plain, &with}) {
        find_one_rank_time(*job, std::nullopt);
        for (RankActivity& r : job->ranks) r.marks_ns.clear();  // steps_s has every mark
      }
      const Explanation e = explain(plain), f = explain(with);
      EXPECT_EQ(explain_json(e.breakdown, e.verdict), explain_json(f.breakdown, f.verdict));
    }
}

TEST(CutSteps, DoNotMakeAJobIrregular) {
  // The host is a step ahead of its device, and copies at once on a stream of its own.
  std::vector<std::string> events;
  int launch = 0;
  const auto run = [&](const char* name, double called, double ts, double dur, int stream) {
    events.push_back(launch_call(++launch, called, 1));
    events.push_back(kernel(name, ts, dur, correlation(launch), stream));
  };
  for (int i = 0; i < 5; ++i) {
    const double host = 10'000 * i, device = host + 8'000;
    run("prefetch", host + 10, host + 30, 40, 9);
    run("forward", host + 50, device, 4'000, 7);
    run("backward", host + 60, device + 4'000, 6'000, 7);
    events.push_back(step(i, host, 9'990));
  }
  const Breakdown b = break_down(job_from(trace_of(0, 1, events)));
  ASSERT_EQ(b.steps.size(), 5u);
  EXPECT_TRUE(b.steps.back().cut);
  EXPECT_GT(b.steps.back().length_s, 0.017);
  EXPECT_THAT(b.path.irregular, IsEmpty());
  EXPECT_THAT(b.notes, says("step 4 is left out of the verdict"));
}

/// The device was still at `before` when the recording began, and a copy ran earlier.
std::string with_before(std::string trace, const std::string& before) {
  const std::string events = "\"traceEvents\":[";
  const std::string copy =
      R"({"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD","pid":0,"tid":9,"ts":1000001,"dur":5,)"
      R"("args":{"stream":9,"correlation":1}},)";
  return trace.insert(trace.find(events) + events.size(),
                      copy + kernel(before, 1'000'010, 50, R"("correlation":999999)", 20) + ",");
}

TEST(KernelsFromBefore, OfBeforeTheRecordingBelongToNoStep) {
  std::vector<std::string> plain = SyntheticJob{}.traces(Recorded::gpu), with;
  for (const std::string& text : plain)
    with.push_back(with_before(text, "ncclDevKernel_SendRecv(ncclDevComm*)"));
  const Job job = job_of_ranks(plain), other = job_of_ranks(with);
  EXPECT_EQ(other.sharding, "");
  EXPECT_EQ(other.ranks[0].communications.size(), job.ranks[0].communications.size() + 1);
  EXPECT_EQ(other.ranks[0].communications[0].step, -1);
  const doc::Workload one = import_job(job).workload, two = import_job(other).workload;
  EXPECT_EQ(two.gradient_bytes(), one.gradient_bytes());
  EXPECT_EQ(two.current, one.current);
  EXPECT_NEAR(*two.step_s, *one.step_s, 0.01 * *one.step_s);
}

// ---- pauses ----

StepPhase at(const std::vector<PhaseSpan>& phases, std::int64_t ns) {
  for (const PhaseSpan& p : phases)
    if (p.span.start_ns <= ns && ns < p.span.end_ns) return p.phase;
  return StepPhase::unknown;
}

/// Two steps of 100 ns: forward 20 to 30, backward 50 to 60, optimizer 80 to 85 of each.
std::vector<PhaseSpan> two_steps(std::vector<PhaseSpan> more = {}) {
  for (const std::int64_t s : {0, 100}) {
    more.push_back({{s + 20, s + 30}, StepPhase::forward});
    more.push_back({{s + 50, s + 60}, StepPhase::backward});
    more.push_back({{s + 80, s + 85}, StepPhase::optimizer});
  }
  return with_pauses(more, {0, 100});
}

TEST(Pauses, BelongToWhatTheyFollowWithinAStep) {
  const auto phases = two_steps();
  EXPECT_EQ(at(phases, 40), StepPhase::forward);         // the loss
  EXPECT_EQ(at(phases, 70), StepPhase::optimizer);       // backward has returned
  EXPECT_EQ(at(phases, 90), StepPhase::optimizer);       // the step is not over
  EXPECT_EQ(at(phases, 110), StepPhase::between_steps);  // the next one has begun
  EXPECT_EQ(at(phases, 190), StepPhase::unknown);        // behind everything
}

TEST(Pauses, BehindGradientsSetToZeroFirstInAStepBelongToTheForwardPass) {
  const auto phases = two_steps({{{105, 107}, StepPhase::optimizer}});
  EXPECT_EQ(at(phases, 102), StepPhase::between_steps);  // not the optimizer: zero_grad comes later
  EXPECT_EQ(at(phases, 115), StepPhase::forward);
  EXPECT_EQ(at(phases, 90), StepPhase::optimizer);
}

TEST(Pauses, BehindGradientsSetToZeroLastInAStepBelongToTheOptimizer) {
  EXPECT_EQ(at(two_steps({{{90, 92}, StepPhase::optimizer}}), 95), StepPhase::optimizer);
}

TEST(Pauses, BetweenTwoBackwardPassesBelongToTheForwardPassThatFollows) {
  const auto phases = with_pauses({{{0, 10}, StepPhase::forward},
                                   {{10, 20}, StepPhase::backward},
                                   {{50, 60}, StepPhase::forward},
                                   {{60, 70}, StepPhase::backward},
                                   {{75, 80}, StepPhase::backward}},
                                  {0});
  EXPECT_EQ(at(phases, 30), StepPhase::forward);
  EXPECT_EQ(at(phases, 72), StepPhase::backward);
}

TEST(Pauses, BehindLoadingBelongToWhatComesNext) {
  EXPECT_EQ(at(two_steps({{{2, 10}, StepPhase::data_loading}}), 15), StepPhase::forward);
}

}  // namespace
}  // namespace linerate::trace
