// Slow ranks and shared cores in advise().
#include <gmock/gmock.h>

#include "advise/advise_jobs.hpp"
#include "linerate/calibrate/from_logs.hpp"
#include "linerate/report/texts.hpp"
#include "linerate/trace/load.hpp"

namespace linerate::advise {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(Stragglers, AreInEveryCandidateAndMendingThemIsAdvisedFirst) {
  doc::Cluster slow = cluster(100);
  slow.rank_speeds = {{.rank = 1, .delay_s = 0.010}, {.rank = 2, .compute_factor = 2}};
  const doc::Advice a = advised(slow);
  for (const doc::Candidate& c : a.candidates) EXPECT_GE(c.step_s->value, 0.120) << c.strategy;
  ASSERT_EQ(a.stragglers.size(), 2u);
  EXPECT_EQ(a.stragglers[0].rank, 2);
  EXPECT_NEAR(a.stragglers[0].late_s, 0.060, 1e-12);
  EXPECT_EQ(a.stragglers[1].rank, 1);
  // Without rank 2 the 10 ms of rank 1 are left, without both nothing is.
  const double alone = find(advised(cluster(100)), "ddp").step_s->value;
  EXPECT_NEAR(a.stragglers[1].step_s, alone, 1e-12);
  EXPECT_NEAR(a.stragglers[0].step_s, alone + 0.010, 1e-9);
  EXPECT_THAT(a.sentence, StartsWith("Mend ranks 2, 1 first. With ranks of equal speed ddp takes"));
  EXPECT_THAT(report::to_text(a, false), HasSubstr("Who holds the others up, with ddp"));
  const doc::Advice again = doc::advice_from_json(doc::to_json(a), "a.json");
  EXPECT_EQ(doc::to_json(again), doc::to_json(a));
  EXPECT_EQ(again.stragglers.at(0).rank, 2);
}

TEST(Stragglers, DoNotComeFirstWhereAStrategyGainsMore) {
  // 1.2 s of communication; a rank that comes 30 ms late.
  doc::Cluster slow = cluster(1);
  slow.rank_speeds = {{.rank = 1, .delay_s = 0.030}};
  const doc::Advice a = advised(slow, in_use("bulk"));
  EXPECT_EQ(a.verdict, doc::AdviceVerdict::change);
  EXPECT_THAT(a.sentence, StartsWith("Change bulk to"));
  EXPECT_EQ(a.stragglers.size(), 1u);
}

TEST(Stragglers, AreNotThereWhereNoRankIsSlower) {
  doc::Cluster fast = cluster(100);
  fast.rank_speeds = {{.rank = 1, .compute_factor = 0.5}, {.rank = 9, .delay_s = 1}};
  const doc::Advice a = advised(fast);
  EXPECT_TRUE(a.stragglers.empty());
  EXPECT_THAT(a.sentence, Not(HasSubstr("Mend")));
}

/// A recorded job: its Workload from its traces, and its Cluster, too.
doc::Advice advice_of(const std::string& job) {
  const std::filesystem::path folder = TRACE_FIXTURES;
  const std::vector<std::filesystem::path> files = {folder / (job + ".rank0.json.gz"),
                                                    folder / (job + ".rank1.json.gz")};
  const doc::Workload w = *trace::import_files(files, {}).workload;
  const doc::Cluster c = calibrate::calibrate_from_logs({{files[0]}, {files[1]}}, {});
  return advise(w, c, in_use(w.current.empty() ? "ddp" : w.current));
}

TEST(Stragglers, ARecordedJobWhoseRank1SleepsIsToldSoFirst) {
  // Rank 1 sleeps 60 ms in each step.
  for (const char* job : {"late2", "late_backward2"}) {
    const doc::Advice a = advice_of(job);
    EXPECT_THAT(a.sentence, StartsWith("Mend rank 1 first.")) << job;
    ASSERT_EQ(a.stragglers.size(), 1u) << job;
    EXPECT_NEAR(a.stragglers[0].late_s, 0.060, 0.010) << job;
    for (const doc::Candidate& c : a.candidates) EXPECT_GE(c.step_s->value, 0.050) << c.strategy;
  }
  EXPECT_TRUE(advice_of("even2").stragglers.empty());
}

constexpr const char* kCodec = "codec(ratio=32, encode=10GB/s, decode=10GB/s)";
const std::string kCoded = std::string("bulk+") + kCodec;

TEST(SharedCores, TakeTheHighEndOfWhatCodes) {
  // 10 ms to encode 100 MB and 10 ms to decode it, on four ranks: twice that on two cores.
  doc::Cluster shared = cluster(10);
  const AdviseOptions options = with_codec({"codec=1"}, kCodec);
  const doc::Candidate apart = find(advised(shared, options), kCoded);
  EXPECT_FALSE(apart.step_s->high.has_value());
  shared.cores = 2;
  const doc::Advice a = advised(shared, options);
  const doc::Candidate& crowded = find(a, kCoded);
  EXPECT_DOUBLE_EQ(crowded.step_s->value, apart.step_s->value);
  EXPECT_NEAR(*crowded.step_s->high, apart.step_s->value + 0.020, 1e-9);
  EXPECT_THAT(crowded.reason, HasSubstr("Ranks share cores"));
  EXPECT_FALSE(find(a, "bulk").step_s->high.has_value());
  EXPECT_THAT(a.notes, says("4 ranks share 2 cores"));
  EXPECT_THAT(report::to_text(a, false), HasSubstr("note: 4 ranks share 2 cores"));
  EXPECT_THAT(doc::to_json(a), HasSubstr("4 ranks share 2 cores"));
  shared.cores = 4;
  EXPECT_FALSE(find(advised(shared, options), kCoded).step_s->high.has_value());
}

TEST(SharedCores, MakeInconclusiveWhatTheyMayTurn) {
  // 50 ms of coding save more than that; 200 ms on a core that four ranks share would not.
  doc::Cluster shared = cluster(10);
  const AdviseOptions options =
      with_codec({"codec=1"}, "codec(ratio=32, encode=4GB/s, decode=4GB/s)");
  const doc::Advice apart = advised(shared, options);
  shared.cores = 1;
  const doc::Advice together = advised(shared, options);
  EXPECT_EQ(apart.verdict, doc::AdviceVerdict::change);
  EXPECT_EQ(together.verdict, doc::AdviceVerdict::inconclusive);
}

}  // namespace
}  // namespace linerate::advise
