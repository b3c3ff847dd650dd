// What explain says of simulated jobs whose cause of delay is known.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "linerate/explain/explanation.hpp"
#include "linerate/trace/to_workload.hpp"
#include "support/says.hpp"
#include "trace/simulated_job.hpp"

namespace linerate::trace {
namespace {

constexpr double kNoise = 0.02;  // of the step: the jobs' own

class SimulatedJobs : public testing::TestWithParam<Fault> {
 protected:
  static constexpr std::uint64_t kJobs = 10;
  static Explanation explained(std::uint64_t seed,
                               const std::vector<SimulatedJob::Recorded>& recorded = {},
                               bool slow_host = false) {
    Job job = job_of_ranks(SimulatedJob(seed, GetParam(), slow_host).traces(recorded));
    find_one_rank_time(job, std::nullopt);  // as the command does
    return explain(job);
  }
};

INSTANTIATE_TEST_SUITE_P(Of, SimulatedJobs,
                         testing::Values(Fault::none, Fault::late_rank, Fault::late_in_backward,
                                         Fault::slow_device, Fault::loader, Fault::shared_pause,
                                         Fault::pause_in_backward, Fault::slow_network));

TEST_P(SimulatedJobs, NoCeilingIsBelowWhatRemovalGainsAndNoneIsEverything) {
  for (std::uint64_t seed = 1; seed <= kJobs; ++seed) {
    const double truth = SimulatedJob(seed, GetParam()).truth();
    const Explanation e = explained(seed);
    EXPECT_GE(share_for(e.verdict.ceilings, remedy_of(GetParam())).value(), truth - kNoise) << seed;
    for (std::size_t r = 0; r < kRemedies; ++r) {
      EXPECT_LT(e.verdict.ceilings[r].value(), 1) << seed;
      EXPECT_GE(e.verdict.ceilings[r].value(), e.verdict.gains[r].value()) << seed;
    }
  }
}

// Also where the late rank is slower in other things: what is said of it is one time.
TEST_P(SimulatedJobs, ACauseGainsNoMoreThanItsTime) {
  constexpr double kRounding = 1e-6;
  for (std::uint64_t seed = 1; seed <= kJobs; ++seed)
    for (const bool slow_host : {false, true}) {
      const Breakdown b = explained(seed, {}, slow_host).breakdown;
      double step_s = 0;
      for (const RankRow& r : b.ranks) step_s = std::max(step_s, r.per_step.window_s);
      for (const Cause& c : b.path.causes) {
        EXPECT_LE(c.gain_share.value() * step_s,
                  c.per_step_s * c.steps_with_it / c.steps + kRounding)
            << seed << (slow_host ? ", slow host" : "");
        EXPECT_GE(c.most_share.value(), c.gain_share.value()) << seed;
      }
    }
}

/// Which steps one rank's profiler missed, and which are then in the traces of all.
struct Gap {
  const char* what;
  SimulatedJob::Recorded of_one, common;
};
constexpr int kFirst = SimulatedJob::kWarmUp, kLast = kFirst + SimulatedJob::kSteps - 1;
const Gap kGaps[] = {{"no first step", {kFirst + 1, kLast}, {kFirst + 1, kLast}},
                     {"no last step", {kFirst, kLast - 1}, {kFirst, kLast - 1}},
                     {"neither", {kFirst + 1, kLast - 1}, {kFirst + 1, kLast - 1}},
                     {"two steps later", {kFirst + 2, kLast}, {kFirst + 2, kLast}},
                     {"begun within a step", {kFirst + 0.3, kLast}, {kFirst + 1, kLast}}};

void expect_same_findings(const Explanation& e, const Explanation& common) {
  EXPECT_THAT(e.breakdown.notes, says("not whole in the traces of all ranks"));
  EXPECT_EQ(e.verdict.finding, common.verdict.finding);
  const std::vector<Cause>&causes = e.breakdown.path.causes,
        &expected = common.breakdown.path.causes;
  ASSERT_EQ(causes.size(), expected.size());
  for (std::size_t i = 0; i < causes.size(); ++i) {
    EXPECT_EQ(causes[i].kind, expected[i].kind);
    EXPECT_EQ(causes[i].rank, expected[i].rank);
    EXPECT_EQ(causes[i].where, expected[i].where);
    EXPECT_NEAR(causes[i].per_step_s, expected[i].per_step_s, 0.1 * expected[i].per_step_s);
  }
  for (std::size_t r = 0; r < kRemedies; ++r)
    EXPECT_NEAR(e.verdict.ceilings[r].value(), common.verdict.ceilings[r].value(), kNoise)
        << kRemedyNames[r];
}

// As if every rank had recorded the steps that all of them have. A profiler that stops does not
// wait for the device: of its last steps communications are missing.
TEST_P(SimulatedJobs, StepsThatOneRecordingLacksOrCutsAreLeftOutAndNothingElseChanges) {
  for (std::uint64_t seed = 1; seed <= kJobs; seed += 3) {
    const auto ranks = static_cast<std::size_t>(SimulatedJob(seed, GetParam()).ranks);
    const std::size_t lacking = seed % 2 == 0 ? 0 : ranks - 1;
    SCOPED_TRACE(fmt::format("job {}, rank {} of {}", seed, lacking, ranks));
    std::vector<SimulatedJob::Recorded> recorded(ranks);
    for (const Gap& gap : kGaps) {
      SCOPED_TRACE(gap.what);
      recorded[lacking] = gap.of_one;
      expect_same_findings(explained(seed, recorded),
                           explained(seed, std::vector(ranks, gap.common)));
    }
    recorded[lacking] = {.until = kLast + 0.4};
    const Explanation e = explained(seed, recorded);
    const std::set<std::int64_t>& cut = e.breakdown.path.of_some_ranks;
    ASSERT_FALSE(cut.empty());
    EXPECT_EQ(*cut.rbegin(), kLast);
    EXPECT_LE(cut.size(), 3u);  // hosts are at most two steps ahead
    const int last = static_cast<int>(*cut.begin()) - 1;
    expect_same_findings(e,
                         explained(seed, std::vector(ranks, SimulatedJob::Recorded{.last = last})));
  }
}

TEST_P(SimulatedJobs, TheCauseIsNamedWithPlaceAndLengthAndNoOther) {
  for (std::uint64_t seed = 1; seed <= kJobs; ++seed) {
    const SimulatedJob job(seed, GetParam());
    const std::vector<Cause> causes = explained(seed).breakdown.path.causes;
    if (GetParam() == Fault::none || GetParam() == Fault::slow_network) {
      EXPECT_TRUE(causes.empty()) << seed;
      continue;
    }
    const bool one = remedy_of(GetParam()) == Remedy::no_stragglers;
    if (one && job.truth() < 0.1) continue;  // hidden by what the device still had to do
    ASSERT_EQ(causes.size(), 1u) << seed;
    const Cause& c = causes.front();
    EXPECT_EQ(c.kind, one                           ? CauseKind::late_rank
                      : GetParam() == Fault::loader ? CauseKind::data_loading
                                                    : CauseKind::pause);
    EXPECT_EQ(c.rank, one ? std::optional(job.at_fault()) : std::nullopt) << seed;
    EXPECT_NEAR(c.per_step_s, job.delay_us() * 1e-6, job.delay_us() * 1e-7) << seed;
    const std::map<Fault, StepPhase> places = {{Fault::late_rank, StepPhase::between_steps},
                                               {Fault::shared_pause, StepPhase::between_steps},
                                               {Fault::late_in_backward, StepPhase::backward},
                                               {Fault::pause_in_backward, StepPhase::backward},
                                               {Fault::slow_device, StepPhase::forward},
                                               {Fault::loader, StepPhase::data_loading}};
    EXPECT_EQ(c.where, places.at(GetParam())) << seed;
  }
}

}  // namespace
}  // namespace linerate::trace
