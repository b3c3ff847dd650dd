#include "linerate/explain/explanation.hpp"

#include <gmock/gmock.h>

#include <functional>

#include "linerate/core/statistics.hpp"
#include "linerate/explain/program.hpp"
#include "support/says.hpp"
#include "trace/kineto_text.hpp"
#include "trace/synthetic_job.hpp"

namespace linerate::trace {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Verdict, RulesApplyInOrder) {
  const auto finding = [](double idle, double exposed, double transfer, bool missing,
                          double loading = 0) {
    Breakdown b;
    b.has_steps = b.has_device = true;
    b.ranks_missing = missing;
    b.in_steps = {.window_s = 1,
                  .exposed_s = exposed,
                  .idle_s = idle,
                  .exposed_transfer_s = transfer,
                  .exposed_wait_s = exposed - transfer,
                  .loading_idle_s = loading};
    return judge(b).finding;
  };
  EXPECT_EQ(finding(0.6, 0.3, 0.3, false, 0.19), Finding::host_bound);
  EXPECT_EQ(finding(0.6, 0.3, 0.3, true, 0.21), Finding::input_bound);
  // A missing rank hides none of the first four.
  EXPECT_EQ(finding(0.6, 0.3, 0.3, true), Finding::host_bound);
  EXPECT_EQ(finding(0.1, 0.04, 0.04, true), Finding::compute_bound);
  EXPECT_EQ(finding(0.1, 0.3, 0.3, true), Finding::inconclusive);
  EXPECT_EQ(finding(0.1, 0.3, 0.15, false), Finding::network_bound);  // a tie goes to the network
  EXPECT_EQ(finding(0.1, 0.3, 0.1, false), Finding::skew_bound);
  EXPECT_EQ(judge({}).finding, Finding::inconclusive);
}

constexpr double kExact = 1e-9;

/// Replayed. What it could gain at most is never less.
double gain(const Breakdown& b, Remedy r) {
  const double replayed = share_for(b.path.gains, r).value();
  EXPECT_GE(share_for(b.path.ceilings, r).value(), replayed - kExact) << name_of(r);
  return replayed;
}

/// Without a change its steps take as long as recorded, on the first rank's clock.
void expect_replayed_as_recorded(const Job& job) {
  const MatchResult matched = match_collectives(job);
  const Program program = program_of(job, matched);
  const auto again = replay(program);
  ASSERT_TRUE(again);
  for (std::size_t l = 0; l < program.lanes.size(); ++l) {
    std::vector<std::int64_t> borders_ns = program.lanes[l].borders_ns;
    for (std::int64_t& ns : borders_ns) ns += matched.clock_offset_ns[l];
    EXPECT_EQ((*again)[l], borders_ns) << "lane " << l;
  }
}

/// The only cause is this rank, which is late by so much in so many steps.
Cause expect_late(const Breakdown& b, int rank, double per_step_s, int steps_with_it) {
  EXPECT_EQ(b.path.causes.size(), 1u);
  const Cause c = b.path.causes.empty() ? Cause{} : b.path.causes.front();
  EXPECT_EQ(c.kind, CauseKind::late_rank);
  EXPECT_EQ(c.rank, rank);
  EXPECT_NEAR(c.per_step_s, per_step_s, kExact);
  EXPECT_EQ(c.steps_with_it, steps_with_it);
  return c;
}

/// The only irregular step is this one, in which rank 1 takes 0.3 s longer, and that is no cause.
void expect_irregular(const Breakdown& b, std::int64_t step) {
  ASSERT_EQ(b.path.irregular.size(), 1u);
  EXPECT_EQ(b.path.irregular[0].step, step);
  EXPECT_EQ(b.path.irregular[0].rank, 1);
  EXPECT_NEAR(b.path.irregular[0].longer_s, 0.3, kExact);
  EXPECT_TRUE(b.path.causes.empty());
  EXPECT_NEAR(gain(b, Remedy::no_stragglers), 0, kExact);
}

/// With a pause of one rank, in every step or those for which `when` holds.
SyntheticJob late(
    SyntheticJob job, int rank, int slot, long us,
    const std::function<bool(int)>& when = [](int) { return true; }) {
  job.delay_us = [=](int r, int step, int s) {
    return r == rank && s == slot && when(step) ? us : 0;
  };
  return job;
}

class CriticalPaths : public testing::TestWithParam<std::tuple<Recorded, int>> {
 protected:
  Recorded how() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
  Breakdown explained(const SyntheticJob& job) const { return break_down(job_of(job, how())); }
  /// Kernels alone say nothing about phases.
  std::optional<StepPhase> known(StepPhase phase) const {
    return how() == Recorded::kernels ? std::nullopt : std::optional(phase);
  }
  /// What the job gains without such a delay in each of so many steps.
  double gained_without(double delay_us, int steps) const {
    const auto even_us = static_cast<double>(SyntheticJob{ranks(), steps}.length_us());
    return 1 - even_us / (even_us + steps * delay_us);
  }
  void expect_named(const SyntheticJob& job, int rank, long us, StepPhase where) const {
    SyntheticJob without = job;
    without.delay_us = [](int, int, int) { return 0L; };
    const Breakdown b = explained(job);
    EXPECT_NEAR(gain(b, Remedy::no_stragglers), job.share_gained_by(without), kExact);
    const Cause c = expect_late(b, rank, static_cast<double>(us) * 1e-6, job.steps);
    EXPECT_EQ(c.steps, job.steps);
    EXPECT_EQ(c.where, known(where));
    EXPECT_NEAR(c.gain_share.value_or(0), job.share_gained_by(without), kExact);
    EXPECT_GE(c.most_share.value_or(0), c.gain_share.value_or(0) - kExact);
    const Verdict v = judge(b);
    EXPECT_EQ(v.finding, Finding::skew_bound) << v.reason;
  }
};

INSTANTIATE_TEST_SUITE_P(Of, CriticalPaths,
                         testing::Combine(testing::Values(Recorded::kernels, Recorded::gpu,
                                                          Recorded::cpu),
                                          testing::Values(2, 4)));

TEST_P(CriticalPaths, NothingLeftOutTakesAsLongAsRecorded) {
  SyntheticJob job{.ranks = ranks()};
  job.delay_us = [](int r, int s, int slot) { return 100L * ((r * 7 + s * 5 + slot * 3) % 11); };
  expect_replayed_as_recorded(job_of(job, how()));
}

TEST_P(CriticalPaths, ADelayOfOneRankIsNamedAndItsGainExact) {
  expect_named(late({ranks()}, 1, 0, 40'000), 1, 40'000, StepPhase::data_loading);
  expect_named(late({ranks()}, 1, 1, 60'000), 1, 60'000, StepPhase::forward);
  // The first bucket is on its way while rank 1 pauses: others wait for the second and third.
  expect_named(late({ranks()}, 1, 2, 60'000), 1, 60'000, StepPhase::backward);
  expect_named(late({ranks()}, 0, 3, 25'000), 0, 25'000, StepPhase::backward);
  // Long transfers: what waits on the network behind the late bucket is no delay of its own.
  SyntheticJob job = late({ranks()}, 1, 1, 60'000);
  job.transfer_us = {30'000, 20'000, 10'000};
  expect_named(job, 1, 60'000, StepPhase::forward);
}

TEST_P(CriticalPaths, OfTwoLateRanksTheLaterHidesTheOther) {
  if (ranks() < 4) GTEST_SKIP() << "two late ranks and others that are not";
  SyntheticJob job{.ranks = ranks()}, even = job;
  const SyntheticJob one_less = late(job, 1, 1, 10'000);
  job.delay_us = [](int r, int, int s) {
    return s != 1 ? 0L : r == 2 ? 20'000L : r == 1 ? 10'000L : 0L;
  };
  const Breakdown b = explained(job);
  EXPECT_NEAR(gain(b, Remedy::no_stragglers), job.share_gained_by(even), kExact);
  ASSERT_EQ(b.path.causes.size(), 2u);
  const double gains[] = {job.share_gained_by(one_less), 0};
  for (const std::size_t i : {0, 1}) {
    EXPECT_EQ(b.path.causes[i].rank, i == 0 ? 2 : 1);
    EXPECT_NEAR(b.path.causes[i].per_step_s, i == 0 ? 0.020 : 0.010, kExact);
    EXPECT_NEAR(b.path.causes[i].gain_share.value(), gains[i], kExact);
  }
}

TEST_P(CriticalPaths, ALoaderThatIsSlowEverywhereMakesTheJobInputBound) {
  SyntheticJob job{.ranks = ranks()}, without{.ranks = ranks()};
  job.delay_us = [](int, int, int slot) { return slot == 0 ? 20'000L : 0L; };
  const Breakdown b = explained(job);
  const Verdict v = judge(b);
  if (how() == Recorded::kernels) {  // nothing says what the pause was
    EXPECT_NE(v.finding, Finding::input_bound);
    return;
  }
  EXPECT_EQ(v.finding, Finding::input_bound) << v.reason;
  EXPECT_NEAR(gain(b, Remedy::no_data_stalls), job.share_gained_by(without), kExact);
  ASSERT_EQ(b.path.causes.size(), 1u);
  EXPECT_EQ(b.path.causes[0].kind, CauseKind::data_loading);
  EXPECT_NEAR(b.path.causes[0].per_step_s, 0.020, kExact);
  EXPECT_FALSE(b.path.causes[0].rank);
}

TEST_P(CriticalPaths, AnInfinitelyFastNetworkIsExact) {
  SyntheticJob job{.ranks = ranks()}, fast{.ranks = ranks()};
  job.transfer_us = {4'000, 26'000, 15'000};
  fast.transfer_us = {0, 0, 0};
  const Breakdown b = explained(job);
  EXPECT_NEAR(gain(b, Remedy::infinitely_fast_network), job.share_gained_by(fast), kExact);
  EXPECT_NEAR(gain(b, Remedy::no_stragglers), 0, kExact);
  EXPECT_EQ(judge(b).finding, Finding::network_bound);
}

TEST_P(CriticalPaths, WhatDoesNotRepeatIsSaidAndLeftOut) {
  const SyntheticJob even{.ranks = ranks(), .steps = 6};
  const Breakdown b = explained(late(even, 1, 2, 300'000, [](int step) { return step == 5; }));
  const Breakdown without = explained(even);
  expect_irregular(b, 5);
  EXPECT_EQ(b.path.irregular.at(0).where, known(StepPhase::backward));
  EXPECT_THAT(b.notes, says("step 5: rank 1 took 300 ms longer"));
  EXPECT_EQ(judge(b).finding, judge(without).finding);
  EXPECT_NEAR(judge(b).exposed_share, judge(without).exposed_share, kExact);
}

TEST_P(CriticalPaths, WhatARankDoesOnceBehindItsLastCollectiveIsLeftOutOfTwoSteps) {
  const SyntheticJob even{.ranks = ranks(), .steps = 9};
  const Breakdown b = explained(
      late(even, 1, even.behind_optimizer(), 300'000, [](int step) { return step == 4; }));
  expect_irregular(b, 4);
  EXPECT_EQ(b.path.irregular.at(0).held_up, 5);
  EXPECT_THAT(b.notes, says("with step 5, in which the others wait"));
  EXPECT_THAT(explain_json(b, judge(b)), HasSubstr("\"held_up_step\": 5"));
}

TEST_P(CriticalPaths, ADelayBehindBackwardArisesInTheOptimizer) {
  const SyntheticJob even{.ranks = ranks(), .steps = 6};
  for (const int slot : {even.before_optimizer(), even.behind_optimizer()}) {
    const SyntheticJob job = late(even, 1, slot, 60'000, [](int step) { return step < 5; });
    EXPECT_EQ(expect_late(explained(job), 1, 0.060, 5).where, known(StepPhase::optimizer));
  }
}

TEST_P(CriticalPaths, ADelayBehindTheLastCollectiveGainsInEveryStep) {
  // The last step's delay holds up a step that was not recorded, the delay before the first one of
  // these holds this one up.
  const SyntheticJob even{.ranks = ranks(), .steps = 7, .skipped = {0, 1}};
  const double gained = gained_without(60'000, 6);
  for (const int slot : {even.before_optimizer(), even.behind_optimizer()}) {
    const Breakdown b = explained(late(even, 1, slot, 60'000));
    EXPECT_NEAR(gain(b, Remedy::no_stragglers), gained, kExact);
    EXPECT_GE(gain(b, Remedy::no_host_gaps), gained - kExact);
    EXPECT_NEAR(expect_late(b, 1, 0.060, 6).gain_share.value_or(0), gained, kExact);
  }
}

TEST_P(CriticalPaths, StepsBetweenCyclesOfTheProfilerHideNoGain) {
  // What stands between two recorded runs of steps is longer than any delay.
  SyntheticJob job = late({ranks()}, 1, 1, 60'000);
  job.steps = 10;
  job.skipped = {4, 7};
  const Breakdown b = explained(job);
  EXPECT_NEAR(gain(b, Remedy::no_stragglers), gained_without(60'000, 7), kExact);
  expect_late(b, 1, 0.060, 7);
}

TEST_P(CriticalPaths, ADelayInSomeStepsIsCountedAndNotWateredDownByWhatTheRankIsLateAnyway) {
  for (const long anyway_us : {0L, 4'000L}) {
    SyntheticJob job{.ranks = ranks(), .steps = 8};
    job.delay_us = [=](int r, int step, int slot) {
      return r != 1 || slot != 1 ? 0L : step % 2 == 0 ? 60'000L : anyway_us;
    };
    EXPECT_EQ(expect_late(explained(job), 1, 0.060, 4).steps, 8);
  }
}

TEST(ExplainJson, CausesAreKeysAndUnknownPlacesNull) {
  const Breakdown b = break_down(job_of(late({2}, 1, 1, 60'000), Recorded::kernels));
  EXPECT_THAT(explain_json(b, judge(b)),
              AllOf(HasSubstr(R"("kind": "late rank")"), HasSubstr(R"("where": null)")));
}

TEST(Verdict, BelowHalfItsConfidenceItOnlyLeans) {
  Breakdown b;
  b.has_steps = b.has_device = true;
  b.in_steps = {.window_s = 1, .exposed_s = 0.3, .exposed_transfer_s = 0.3};
  StepRow network{.busy = b.in_steps, .gain = {}}, compute{.busy = {.window_s = 1}, .gain = {}};
  b.steps = {network, compute, compute};  // (1 + 1) / (3 + 2)
  const Verdict v = judge(b);
  EXPECT_EQ(v.finding, Finding::network_bound);
  EXPECT_NEAR(*v.confidence, 0.4, kExact);
  EXPECT_THAT(explain_text(b, v),
              HasSubstr("inconclusive, leaning to network-bound (confidence 0.40)"));
  EXPECT_THAT(explain_json(b, v), HasSubstr(R"("verdict": "network-bound")"));
}

/// Of one run, in which rank 1 loads data for 60 ms from step `from` on: the file of rank 0 ends
/// behind step 2.
Job cut_behind_step_2(int from) {
  const SyntheticJob whole =
      late({.steps = 6}, 1, 0, 60'000, [from](int step) { return step >= from; });
  SyntheticJob cut = whole;
  cut.steps = 3;
  return job_of_ranks({cut.traces(Recorded::cpu).at(0), whole.traces(Recorded::cpu).at(1)});
}

TEST(CriticalPath, StepsThatNotAllRanksHaveGiveNoCauses) {
  const Breakdown b = break_down(cut_behind_step_2(3));
  EXPECT_THAT(b.path.of_some_ranks, testing::ElementsAre(3, 4, 5));
  EXPECT_TRUE(b.path.causes.empty());
  EXPECT_EQ(gain(b, Remedy::no_data_stalls), 0);
  EXPECT_THAT(b.notes, says("3 steps (3 to 5) are not whole in"));
  EXPECT_DOUBLE_EQ(judge(b).confidence.value(), 4.0 / 5);  // three steps, and all agree
  // Where it is in those that both have, it is rank 1 alone that is late.
  EXPECT_EQ(expect_late(break_down(cut_behind_step_2(0)), 1, 0.060, 3).steps, 3);
}

TEST(CriticalPath, ALateRankThatGainsLessThanIsWorthNamingIsNoCause) {
  // 3 ms of some 42: 7 % of a step, in all of them or in every third.
  const auto causes = [](int every) {
    const SyntheticJob job =
        late({.steps = 6}, 1, 1, 3'000, [every](int step) { return step % every == every - 1; });
    return break_down(job_of(job, Recorded::cpu)).path.causes.size();
  };
  EXPECT_EQ(causes(1), 1u);
  EXPECT_EQ(causes(3), 0u);
}

TEST(CriticalPath, WithoutAStepOfAllRanksThereIsNoVerdict) {
  SyntheticJob first{.steps = 3}, then{.steps = 6, .skipped = {0, 3}};
  const Breakdown b = break_down(
      job_of_ranks({first.traces(Recorded::cpu).at(0), then.traces(Recorded::cpu).at(1)}));
  EXPECT_EQ(judge(b).finding, Finding::inconclusive);
  EXPECT_THAT(judge(b).reason, testing::HasSubstr("no step is in the traces of all ranks"));
  EXPECT_TRUE(b.path.causes.empty());
}

double spread(const Breakdown& b) {
  std::vector<double> steps;
  for (const StepRow& s : b.steps) steps.push_back(s.duration_s);
  return quantile(steps, 1) - quantile(steps, 0);
}

/// tools/record-fixtures, `stragglers`: rank 1 of two pauses for 60 ms in each of five steps. In
/// even2 the same processes do the same without the pause. The gain that was measured is at most
/// the bound, the spread of both jobs' steps, and that computation with pauses between is slower
/// (cold caches), which a replay does not undo. cases/recorded_jobs.case has what is said of each.
TEST(RecordedJobs, PausesGainNoMoreThanTheBound) {
  const Breakdown even = break_down(recorded_job("even2"));
  for (const auto& [name, remedy] : {std::pair{"late2", Remedy::no_stragglers},
                                     {"late_backward2", Remedy::no_stragglers},
                                     {"loader2", Remedy::no_data_stalls}}) {
    SCOPED_TRACE(name);
    const Breakdown b = break_down(recorded_job(name));
    const double gained = 1 - *even.step_s / *b.step_s;
    const double slower =
        (b.in_steps.compute_s - even.in_steps.compute_s) / static_cast<double>(b.steps.size());
    const double noise = (spread(even) + spread(b)) / *b.step_s;
    EXPECT_LE(gained, gain(b, remedy) + noise + slower / *b.step_s);
    EXPECT_LE(gained, share_for(b.path.ceilings, remedy).value() + noise);
    EXPECT_GE(gained, gain(b, remedy) - 0.05);  // and the replay promises little more
  }
}

TEST(RecordedJobs, ReplayedWithoutAChangeTheyTakeAsLongAsRecorded) {
  for (const char* name : {"even2", "late2", "late_backward2", "loader2", "gloo2", "gloo4"}) {
    SCOPED_TRACE(name);
    expect_replayed_as_recorded(recorded_job(name));
  }
}

}  // namespace
}  // namespace linerate::trace
