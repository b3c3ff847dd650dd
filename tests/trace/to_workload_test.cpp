#include "linerate/trace/to_workload.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "linerate/core/bucket_limits.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/trace/job/periods.hpp"
#include "linerate/trace/timeline/timeline_job.hpp"
#include "support/sample_workloads.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// One step of a rank, from `at`: forward for 100 us, two gradients ready 100 and 200 us after
/// backward began, an all-reduce behind them that nothing hides, 50 us of it, then the optimizer.
/// Of 500 us, 450 are the rank's own. `pause` us lie between forward and backward.
Events plain_step(int n, double at, double pause = 0) {
  const double b = at + 105 + pause;  // the first autograd node begins
  return {step(n, at, 500 + pause),       op("aten::linear", at, 100),
          gradient(1000, b + 105),        op("aten::mm", b, 200),
          gradient(500, b + 205),         gloo_all_reduce(1500, b + 210, b + 220, 50),
          op("aten::add_", b + 270, 105), optimizer_step(b + 275)};
}

/// A rank for each list of pauses.
Job plain_job(const std::vector<std::vector<double>>& pauses) {
  std::vector<std::string> ranks;
  for (const std::vector<double>& of_rank : pauses) {
    Events events;
    double at = 0;
    for (int s = 0; const double pause : of_rank) {
      append(events, plain_step(s++, at, pause));
      at += 500 + pause;
    }
    ranks.push_back(
        gloo_trace(static_cast<int>(ranks.size()), static_cast<int>(pauses.size()), events));
  }
  return job_of_ranks(ranks);
}

struct Paused {
  std::vector<std::vector<double>> us;
  double step_us;
  const char *of, *says;
};
const Paused kPaused[] = {
    // A median, whatever the last step did: 450 us for the rank itself, and once 900 us of nothing.
    {{{0, 0, 0, 0, 900}}, 450, "step 4 by 900 us", "nothing runs for"},
    {{{0, 0, 0, 0}, {600, 600, 600, 600}}, 450, "rank 1 takes 600 us longer", "leaves it out"},
    // Of both 605 us are part of the step, and not of what rank 1 takes longer.
    {{{600, 600, 600}, {800, 800, 800}}, 1050, "rank 1 takes 200 us longer", "for 805 us of the"},
    {{{600, 600, 600, 600}}, 1050, "T_1 includes a pause", "repeats in every step"}};

TEST(Workload, APauseIsOfTheStepOfOneRankOrOfNoStepAndSaid) {
  for (const Paused& paused : kPaused) {
    const ImportedJob i = import_job(plain_job(paused.us));
    EXPECT_NEAR(*i.workload.step_s, paused.step_us * 1e-6, 1e-9) << paused.of;
    EXPECT_THAT(i.note_with(paused.of), HasSubstr(paused.says));
  }
}

/// Sizes in bytes, for gradients in the given order, all of one dtype. A bucket closes with the
/// tensor by which it reaches its limit. The last limit repeats. Gradients of 3, 9, 9, 8 and 2 MiB
/// under limits of 1 and 25 MiB become buckets of 3, 26 and 2 MiB.
std::vector<std::int64_t> ddp_buckets(std::span<const std::int64_t> gradient_bytes,
                                      std::span<const std::int64_t> limits) {
  std::vector<std::int64_t> buckets;
  std::int64_t open = 0;
  BucketLimits rule(limits);
  for (const std::int64_t g : gradient_bytes) {
    open += g;
    if (!rule.closes_at(open)) continue;
    buckets.push_back(open);
    open = 0;
  }
  if (open > 0) buckets.push_back(open);
  return buckets;
}

TEST(BucketRule, ReproducesDdpForResNet50) {
  // Parameter order and expected elements: those of PyTorch's ResNet and DDP's rule.
  const std::vector<std::int64_t> p = support::resnet50_parameters();
  ASSERT_EQ(p.size(), 161u);
  std::vector<std::int64_t> bytes(p.rbegin(), p.rend());
  for (auto& b : bytes) b *= 4;
  const std::vector<std::int64_t> first = {1 << 20, 25 << 20}, plain = {25 << 20};
  EXPECT_THAT(ddp_buckets(bytes, first),
              ElementsAre(8196000, 31502336, 26255360, 26550272, 9724160));
  EXPECT_THAT(ddp_buckets(bytes, plain),
              ElementsAre(4 * 7564264, 4 * 6563840, 4 * 7091712, 4 * 4337216));
}

TEST(BucketLimits, AreTheRangesInWhichTheRuleCutsSo) {
  constexpr std::int64_t kMiB = 1 << 20;
  const std::vector<std::int64_t> gradients = {2 * kMiB, 3 * kMiB, 3 * kMiB,
                                               1 * kMiB, 6 * kMiB, 1 * kMiB};
  const auto options = [&](std::vector<std::int64_t> limits) {
    std::vector<std::size_t> kept;
    const auto found = limits_of(gradients, ddp_buckets(gradients, limits), kept);
    return found ? ddp_options(*found).value_or("no limits") : "no buckets";
  };
  EXPECT_EQ(options({1 * kMiB, 25 * kMiB}), "");
  EXPECT_EQ(options({25 * kMiB}), "bucket_cap_mb=25");
  EXPECT_EQ(options({5 * kMiB}), "bucket_cap_mb=5");
  EXPECT_EQ(options({1 * kMiB, 5 * kMiB}), "bucket=5MiB");
  // Buckets that no limit cuts: 2, then 3 + 3, then 1, which stayed far below, then the rest.
  std::vector<std::size_t> kept;
  const auto none =
      limits_of(gradients, std::vector<std::int64_t>{2 * kMiB, 6 * kMiB, 1 * kMiB, 7 * kMiB}, kept);
  ASSERT_TRUE(none);
  EXPECT_EQ(ddp_options(*none), std::nullopt);
  // A sum over something else in between is passed over.
  const auto others = limits_of(
      gradients, std::vector<std::int64_t>{12, 5 * kMiB, 999, 4 * kMiB + 6 * kMiB, 1 * kMiB}, kept);
  ASSERT_TRUE(others);
  EXPECT_THAT(kept, ElementsAre(1, 3, 4));
}

TEST(ImportedTimeline, HasTheTasksThatAPredictionHas) {
  const Job job = plain_job({{0, 0, 0}, {0, 0, 0}});
  const doc::Timeline t = timeline_of(job, "job");
  EXPECT_THAT(t.parameter_names, ElementsAre("layer1.gradient0", "layer0.gradient1"));
  std::vector<const doc::Event*> forward, backward, sums;
  for (const doc::Event& e : t.events) {
    if (e.rank != 1 || e.step != 1) continue;
    if (e.kind == doc::TaskKind::forward) forward.push_back(&e);
    if (e.kind == doc::TaskKind::backward) backward.push_back(&e);
    if (e.kind == doc::TaskKind::all_reduce) sums.push_back(&e);
  }
  const auto set = [&t](const doc::Event& e) {
    return t.parameter_sets.at(static_cast<std::size_t>(e.set));
  };
  ASSERT_EQ(forward.size(), 1u);
  EXPECT_EQ(forward[0]->end_ns - forward[0]->start_ns, 205'000);  // to the first autograd node
  EXPECT_THAT(set(*forward[0]), ElementsAre(0, 1));
  ASSERT_EQ(backward.size(), 2u);
  EXPECT_THAT(set(*backward[0]), ElementsAre(0));
  EXPECT_EQ(t.names.at(static_cast<std::size_t>(backward[0]->name)), "layer1");
  EXPECT_EQ(backward[1]->end_ns - backward[1]->start_ns, 100'000);
  ASSERT_EQ(sums.size(), 1u);
  EXPECT_THAT(set(*sums[0]), ElementsAre(0, 1));  // one bucket
}

TEST(ImportedTimeline, ExplainsAsItsTracesDo) {
  // Forward and backward are spans around its operators: no more computation than these.
  const Job job = plain_job({{90, 90, 90}, {0, 0, 0}});
  const Breakdown direct = break_down(job), through = break_down(job_of(timeline_of(job, "job")));
  EXPECT_DOUBLE_EQ(through.whole.compute_s, direct.whole.compute_s);
  EXPECT_DOUBLE_EQ(through.in_steps.exposed_s, direct.in_steps.exposed_s);
}

TEST(RecordedWorkload, ASleepOf60MsOnOneRankIsNotInItsT1) {
  // The same job without and with the sleep, recorded one after the other; a sleep that were in T_1
  // would make it nine times as long.
  const double even = *import_job(recorded_job("even2")).workload.step_s;
  for (const char* job : {"late2", "late_backward2"}) {
    const ImportedJob late = import_job(recorded_job(job));
    EXPECT_LT(*late.workload.step_s, 2 * even) << job;
    EXPECT_THAT(late.note_with("rank 1 takes"), HasSubstr("leaves it out")) << job;
  }
}

}  // namespace
}  // namespace linerate::trace
