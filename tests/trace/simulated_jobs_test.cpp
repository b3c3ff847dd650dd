// What explain says of simulated jobs whose cause of delay is known.
#include <gmock/gmock.h>

#include <map>
#include <optional>
#include <vector>

#include "linerate/trace/explain/explanation.hpp"
#include "linerate/trace/one_rank_step.hpp"
#include "trace/simulated_job.hpp"

namespace linerate::trace {
namespace {

constexpr double kNoise = 0.02;  // of the step: the jobs' own

class SimulatedJobs : public testing::TestWithParam<Fault> {
 protected:
  static constexpr std::uint64_t kJobs = 10;
  static Explanation explained(std::uint64_t seed) {
    Job job = job_of_ranks(SimulatedJob(seed, GetParam()).traces());
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
    const std::map<Fault, Phase> places = {
        {Fault::late_rank, Phase::between_steps},   {Fault::shared_pause, Phase::between_steps},
        {Fault::late_in_backward, Phase::backward}, {Fault::pause_in_backward, Phase::backward},
        {Fault::slow_device, Phase::forward},       {Fault::loader, Phase::data_loading}};
    EXPECT_EQ(c.where, places.at(GetParam())) << seed;
  }
}

}  // namespace
}  // namespace linerate::trace
