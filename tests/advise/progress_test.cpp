// Progress of advise(), and its candidates side by side.
#include <gmock/gmock.h>

#include <atomic>
#include <set>

#include "advise/advise_jobs.hpp"
#include "linerate/advise/ranking.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::advise {
namespace {

// As many gradients of 100 KB, one ready every 10 us.
doc::Workload workload(std::size_t gradients) {
  doc::Workload w = support::workload_of(std::vector<std::int64_t>(gradients, 25'000), 1e-5);
  w.forward_s = w.backward_s / 2, w.step_s = 1.5 * w.backward_s;
  return w;
}

TEST(Progress, GrowsByOneToATotalThatNeverGrows) {
  AdviseOptions options = with_codec({"codec=1.5"}, "codec(ratio=32, encode=100GB/s)");
  std::vector<std::pair<std::size_t, std::size_t>> told;
  options.on_progress = [&](std::size_t done, std::size_t total) {
    told.emplace_back(done, total);
  };
  for (const std::size_t gradients : {40u, 1200u}) {
    told.clear();
    static_cast<void>(advise(workload(gradients), cluster(10), options));
    ASSERT_GT(told.size(), 100u);
    for (std::size_t i = 1; i < told.size(); ++i) {
      const bool one_more = told[i].first == told[i - 1].first + 1;
      EXPECT_TRUE(one_more || told[i].first == told[i - 1].first);
      EXPECT_LE(told[i].second, told[i - 1].second);
      EXPECT_LE(told[i].first, told[i].second);
    }
    EXPECT_EQ(told.front().first, 1u);
    EXPECT_EQ(told.back().first, told.back().second);
  }
}

TEST(Progress, ChangesNothing) {
  const auto answer = [](const OnProgress& on_progress) {
    return doc::to_json(advise(workload(40), cluster(10), {.on_progress = on_progress}));
  };
  EXPECT_EQ(answer([](std::size_t, std::size_t) {}), answer({}));
}

TEST(SideBySide, DoesEachOnceAndNoWorkerTwiceAtOnce) {
  std::vector<std::atomic<int>> times(100), busy(3);
  std::atomic<bool> shared = false;
  side_by_side(times.size(), busy.size(), [&](std::size_t i, std::size_t worker) {
    if (busy.at(worker)++ > 0) shared = true;
    ++times[i];
    --busy[worker];
  });
  for (const auto& t : times) EXPECT_EQ(t, 1);
  EXPECT_FALSE(shared);
}

TEST(SideBySide, ThrowsWhatTheLowestThrew) {
  const auto work = [](std::size_t i, std::size_t) {
    if (i % 10 == 3) throw UsageError(std::to_string(i));
  };
  for (const std::size_t workers : {1u, 4u})
    EXPECT_THAT([&] { side_by_side(50, workers, work); }, testing::ThrowsMessage<UsageError>("3"));
}

std::vector<doc::Strategy> parsed(const std::vector<const char*>& texts) {
  std::vector<doc::Strategy> all;
  for (const char* text : texts) all.push_back(doc::parse_strategy(text));
  return all;
}

/// Many gradients take several threads; the answer is that of one candidate after the other.
TEST(SideBySide, CandidatesAreJudgedAsTheyAreAlone) {
  const doc::Workload w = workload(1200);
  Evaluator evaluator(w, cluster(10), 4, {});
  const auto strategies = parsed({"ddp", "bulk", "optimal", "dear", "horovod", "mg-wfbp"});
  const std::vector<Judged> together = judge_all(evaluator, strategies, std::nullopt);
  ASSERT_EQ(together.size(), strategies.size());
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    const doc::Candidate alone = judge(evaluator, strategies[i], std::nullopt).candidate;
    EXPECT_EQ(together[i].candidate.strategy, alone.strategy);
    EXPECT_EQ(together[i].candidate.step_s->value, alone.step_s->value);
    EXPECT_EQ(together[i].candidate.memory_bytes, alone.memory_bytes);
  }
  EXPECT_EQ(winner(evaluator, strategies, std::nullopt), winner(together, {}));
}

/// winner() simulates the interval of few; it names what all of them would.
TEST(Winner, IsTheSameAsIfAllIntervalsWereSimulated) {
  const doc::Workload w = workload(200);
  doc::Cluster measured = cluster(10);
  measured.cores = 2;
  measured.collectives = {
      {.ranks = 4, .segments = {{1, std::int64_t{1} << 40, 30e-6, 1.2e-9, 0.6, 1.7}}}};
  const auto strategies = parsed({"ddp", "bulk", "optimal", "dear", "horovod", "ddp(bucket=1MiB)",
                                  "optimal+codec(ratio=8, encode=2GB/s, decode=2GB/s)"});
  std::set<std::string> winners;
  for (const char* current : {"ddp", "bulk", "horovod"})
    for (const char* steps : {"codec=1.0", "codec=1.2[0.9,1.9]"})
      for (double rate = 1e8; rate < 1e11; rate *= 1.7) {
        AdviseOptions options = in_use(current);
        options.steps = {parse_steps_to_target(steps)};
        Evaluator evaluator(w, measured, 4, options);
        const auto all = judge_all(evaluator, strategies, BytesPerSecond{rate});
        const std::string named = winner(evaluator, strategies, BytesPerSecond{rate});
        EXPECT_EQ(named, winner(all, options)) << current << " at " << rate;
        winners.insert(named);
      }
  EXPECT_GE(winners.size(), 3u);
}

}  // namespace
}  // namespace linerate::advise
