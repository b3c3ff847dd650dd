#include "linerate/trace/to_workload.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <tuple>

#include "linerate/core/bucket_limits.hpp"
#include "linerate/explain/explanation.hpp"
#include "linerate/models/workload.hpp"
#include "linerate/trace/job/periods.hpp"
#include "linerate/trace/timeline/timeline_job.hpp"
#include "support/sample_workloads.hpp"
#include "support/says.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

using doc::OtherCollective;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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
std::string plain_rank(int rank, int world, const std::vector<double>& pauses) {
  Events events;
  double at = 0;
  for (std::size_t s = 0; s < pauses.size(); ++s) {
    append(events, plain_step(static_cast<int>(s), at, pauses[s]));
    at += 500 + pauses[s];
  }
  return gloo_trace(rank, world, events);
}

/// A rank for each list of pauses.
Job plain_job(const std::vector<std::vector<double>>& pauses) {
  std::vector<std::string> ranks;
  for (const std::vector<double>& of_rank : pauses)
    ranks.push_back(
        plain_rank(static_cast<int>(ranks.size()), static_cast<int>(pauses.size()), of_rank));
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

TEST(Workload, WithoutShapesTheBucketsTimesAreMediansToo) {
  // A bucket of 1000 halves begins 400 us into each step, 900 in the last one.
  Events events;
  for (int s = 0; s < 3; ++s) {
    const double at = 2000.0 * s, late = s == 2 ? 500 : 0;
    events.push_back(step(s, at, 1000 + late));
    events.push_back(kernel("gemm", at, 300));
    events.push_back(kernel("ncclDevKernel_AllReduce_Sum_f16", at + 400 + late, 100,
                            collective("allreduce", 1000, 2, "", "Half"), 9));
  }
  const ImportedJob i = import_job(job_from(trace_of(0, 2, events)));
  ASSERT_EQ(i.workload.gradients.size(), 1u);
  EXPECT_EQ(i.workload.gradients[0].elements, 1000);
  EXPECT_EQ(i.workload.gradients[0].dtype, DType::f16);
  EXPECT_NEAR(i.workload.gradients[0].ready_s, 400e-6, 1e-9);
  EXPECT_NEAR(i.workload.backward_s, 400e-6, 1e-9);
  EXPECT_NEAR(*i.workload.step_s, 900e-6, 1e-9);
}

TEST(Workload, MarkedStepsThatOnlyAccumulateAreOneStepTogether) {
  // An optimizer runs in every third marked step, of 300 us; the others last 200 us.
  Events events;
  double at = 0;
  for (int s = 0; s < 7; ++s) {
    const bool last = s % 3 == 2;
    append(events, {step(s, at, last ? 300 : 200), gradient(1000, at + 110)});
    if (last) events.push_back(optimizer_step(at + 150));
    at += last ? 300 : 200;
  }
  const ImportedJob i = import_job(gloo_job(1, events));
  EXPECT_EQ(i.workload.accumulation, 3);
  EXPECT_NEAR(*i.workload.step_s, 700e-6, 1e-9);
  EXPECT_NEAR(*i.workload.forward_s, 400e-6 + 105e-6, 1e-9);
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

TEST(RecordedWorkload, NoSyncIsFoundInOneMarkedStepAndAcrossSeveralAndSoAreHookAndCap) {
  // tools/record-fixtures: 64 x 300, 300 x 300, 300 x 10 with biases, 112,810 elements.
  const ImportedJob one = import_job(recorded_job("accumulate2"));
  EXPECT_EQ(one.workload.accumulation, 3);
  EXPECT_EQ(one.workload.gradients.size(), 6u);
  EXPECT_EQ(one.workload.gradient_bytes(), 4 * 112'810);
  EXPECT_EQ(one.workload.current, "ddp");
  const ImportedJob several = import_job(recorded_job("micro2"));
  EXPECT_EQ(several.workload.accumulation, 2);
  EXPECT_EQ(several.workload.gradient_bytes(), 4 * 112'810);
  // The half hook and the cap are the strategy in use.
  EXPECT_EQ(import_job(recorded_job("half2")).workload.current, "ddp(wire=fp16)");
  EXPECT_EQ(import_job(recorded_job("even2")).workload.current, "ddp(bucket_cap_mb=1)");
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

TEST(RecordedWorkload, TwoThreadsOfGlooAreMatchedInTheOrderOfIssue) {
  const Breakdown b = break_down(recorded_job("threads2"));
  EXPECT_THAT(b.notes, testing::Not(says("disagree")));
  // Two broadcasts, two sums of metrics and a bucket in each of four steps, all of both ranks.
  EXPECT_EQ(b.collectives.size(), 4u * 5);
  EXPECT_TRUE(b.buckets && b.buckets->matches_rule);
}

// ---- shapes; cases/layer_shapes.case has those of small networks ----

TEST(LayerShapes, WithoutThemTheWorkloadSaysNothing) {
  const Events events = in_steps(3, 1000, [](int, double at) {
    return Events{kernel("ncclDevKernel_AllReduce_Sum_f32", at + 400, 100,
                         collective("allreduce", 1000, 2), 9)};
  });
  const ImportedJob i = import_job(job_from(trace_of(0, 2, events)));
  EXPECT_FALSE(i.workload.knows_shapes());
  EXPECT_THAT(i.note_with("record_shapes"), HasSubstr("powersgd, acpsgd and kfac"));
}

TEST(LayerShapes, OfRecordedResNet50AreThoseOfTheZoo) {
  const std::filesystem::path folder = "../shared/gpu";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is absent";
  doc::Workload zoo = models::workload("resnet50", {.batch = 32});
  // Both branches of a block run in either order: compared without it.
  const auto counted = [](const doc::Workload& w) {
    std::map<std::tuple<std::string, doc::BlockKind, std::int64_t, std::int64_t, int, std::int64_t,
                        std::int64_t>,
             int>
        blocks;
    for (const doc::Block& b : w.blocks)
      ++blocks[{w.layers.at(static_cast<std::size_t>(b.layer)).kind, b.kind, b.a, b.g, b.groups,
                b.rows_a, b.rows_g}];
    return blocks;
  };
  const auto matrices = [](const doc::Workload& w) {
    std::map<std::pair<std::int64_t, std::int64_t>, int> shapes;
    for (const doc::Gradient& g : w.gradients) ++shapes[{g.elements, *g.rows}];
    return shapes;
  };
  for (const char* name : {"un", "10G", "psgd_10G", "fp16_10G", "slowgpu"}) {
    std::vector<std::filesystem::path> files;
    for (const char* rank : {"0", "1"})
      files.push_back(folder / fmt::format("resnet50_{}_r{}.json.gz", name, rank));
    const ImportedJob i = import_job(load_job(files));
    EXPECT_EQ(i.workload.gradients.size(), 161u) << name;
    EXPECT_EQ(counted(i.workload), counted(zoo)) << name;
    EXPECT_EQ(matrices(i.workload), matrices(zoo)) << name;
    EXPECT_THAT(i.note_with("kfac"), IsEmpty()) << name;
  }
}

// ---- what a job sends besides gradients stands in its Workload, where it ran ----

constexpr long kFloats = 300'000;  // of each of three gradients

std::string gloo(const char* name, long elements, double ts, double dur) {
  return host_event("user_annotation", fmt::format("gloo:{}", name), ts, dur, floats(elements), 50);
}

/// Eight steps of three layers on two ranks: 300 us forward each, 200 us backward, each gradient
/// sent while the next layer computes.
struct MadeJob {
  bool statistics = false;     // a gather in forward and a sum in backward, 100 us, of each layer
  int parameters_every = 0;    // broadcasts of all gradients' bytes after the update; 0: none
  bool metrics = false;        // a sum of three numbers and a barrier before the update, 60 us each
  bool buffers = false;        // a broadcast of 64 floats before forward
  bool shapes = true;          // gradients are recorded
  bool in_background = false;  // statistics travel while the layers compute

  Events events() const {
    Events all;
    double t = 1000;
    const auto sent = [&](const char* name, long elements, double dur) {
      all.push_back(gloo(name, elements, t, dur));
      if (!in_background) t += dur;
    };
    const auto work = [&](const char* name, double dur) {
      all.push_back(op(name, t, dur));
      t += dur;
    };
    for (int i = 0; i < 8; ++i) {
      const double begin = t;
      work("aten::select", 5);
      if (buffers) sent("broadcast", 64, 50);
      for (int l = 0; l < 3; ++l) {
        work("aten::addmm", 300);
        if (statistics) sent("all_gather", 257, 100);
      }
      work("aten::mse_loss", 100);
      double network = 0;
      for (int l = 0; l < 3; ++l) {
        all.push_back(op("aten::mm", t + 1, 198));
        work("autograd::engine::evaluate_function: NormBackward0", 200);
        if (statistics) sent("all_reduce", 512, 100);
        if (shapes) all.push_back(gradient(kFloats, t + 5));
        t += 10;
        network = std::max(t, network);
        all.push_back(gloo("all_reduce", kFloats, network, 150));
        network += 150;
      }
      t = network;
      if (metrics) sent("all_reduce", 3, 60), sent("barrier", 1, 60);
      all.push_back(optimizer_step(t));
      work("aten::add_", 10);
      if (parameters_every > 0 && (i + 1) % parameters_every == 0)
        for (int l = 0; l < 3; ++l) sent("broadcast", kFloats, 120);
      all.push_back(step(i, begin, t - begin));
      t += 20;
    }
    return all;
  }
};

ImportedJob imported(const MadeJob& made) { return import_job(gloo_job(2, made.events())); }

/// "all-gather 1028 each, forward 300 us": to 50 us.
std::vector<std::string> in_words(const doc::Workload& w) {
  std::vector<std::string> all;
  for (const OtherCollective& o : w.other_collectives)
    all.push_back(fmt::format("{} {}{}, {} {:g} us{}", name_of(o.collective), o.bytes,
                              o.per_rank ? " each" : "", name_of(o.place),
                              50 * std::round(o.at_s * 1e6 / 50),
                              o.every > 1 ? fmt::format(", every {}", o.every) : ""));
  return all;
}

const std::vector<std::string> kStatistics = {
    "all-gather 1028 each, forward 300 us", "all-gather 1028 each, forward 600 us",
    "all-gather 1028 each, forward 900 us", "all-reduce 2048, backward 200 us",
    "all-reduce 2048, backward 400 us",     "all-reduce 2048, backward 600 us"};
const std::string kParameters = "broadcast 1200000, update 0 us";

TEST(OtherTraffic, OfPassesAndOfParametersStandsInTheWorkload) {
  EXPECT_THAT(in_words(imported({}).workload), IsEmpty());
  EXPECT_EQ(imported({}).note_with("not of gradients"), "");

  const ImportedJob statistics = imported({.statistics = true});
  EXPECT_EQ(in_words(statistics.workload), kStatistics);
  EXPECT_THAT(statistics.note_with("not of gradients"),
              HasSubstr("in the Workload as other_collectives: 3 all-reduces and 3 all-gathers a "
                        "step, for which the computation waits 600 us"));
  EXPECT_EQ(statistics.workload.buffer_bytes, 0);

  const ImportedJob parameters = imported({.parameters_every = 1});
  EXPECT_EQ(in_words(parameters.workload), std::vector<std::string>(3, kParameters));
  EXPECT_EQ(parameters.workload.buffer_bytes, 0);
  EXPECT_EQ(in_words(imported({.parameters_every = 2}).workload),
            std::vector<std::string>(3, kParameters + ", every 2"));

  const ImportedJob buffers = imported({.buffers = true});
  EXPECT_THAT(in_words(buffers.workload), ElementsAre("broadcast 256, forward 0 us"));
  EXPECT_EQ(buffers.workload.buffer_bytes, 256);
}

TEST(OtherTraffic, ChangesNeitherTheGradientsNorTheTimeAlone) {
  const doc::Workload plain = imported({}).workload;
  const doc::Workload all =
      imported({.statistics = true, .parameters_every = 1, .metrics = true, .buffers = true})
          .workload;
  EXPECT_NEAR(all.step_s.value(), plain.step_s.value(), 30e-6);
  EXPECT_NEAR(all.backward_s, plain.backward_s, 30e-6);
  EXPECT_NEAR(all.forward_s.value(), plain.forward_s.value(), 30e-6);
  EXPECT_EQ(all.gradient_bytes(), plain.gradient_bytes());
  for (std::size_t i = 0; i < plain.gradients.size(); ++i)
    EXPECT_NEAR(all.gradients[i].ready_s, plain.gradients[i].ready_s, 30e-6) << i;
  EXPECT_EQ(all.current, plain.current);
}

TEST(OtherTraffic, OfAnotherKindIsCountedAndTimed) {
  const ImportedJob metrics = imported({.metrics = true});
  EXPECT_THAT(in_words(metrics.workload), IsEmpty());
  EXPECT_EQ(metrics.note_with("in no prediction"),
            "collectives that are not of gradients, and in no prediction: 1 all-reduce and 1 "
            "barrier a step, "
            "exposed for 120 us");
  // Nothing waits for it.
  const ImportedJob background = imported({.statistics = true, .in_background = true});
  EXPECT_THAT(in_words(background.workload), IsEmpty());
  EXPECT_THAT(background.note_with("in no prediction"),
              HasSubstr("3 all-reduces and 3 all-gathers a step, exposed for"));
}

/// Without the gradients their buckets stand for them. Sums of statistics are none: backward waits
/// for them, and goes on.
TEST(OtherTraffic, IsToldFromBucketsWhereNoGradientIsRecorded) {
  const doc::Workload w = imported({.statistics = true, .shapes = false}).workload;
  ASSERT_EQ(w.gradients.size(), 3u);
  EXPECT_EQ(w.gradient_bytes(), 3 * 4 * kFloats);
  std::vector<std::string> kinds;
  for (const OtherCollective& o : w.other_collectives)
    kinds.push_back(fmt::format("{} {}", name_of(o.collective), o.bytes));
  EXPECT_THAT(kinds, ElementsAre("all-gather 1028", "all-gather 1028", "all-gather 1028",
                                 "all-reduce 2048", "all-reduce 2048", "all-reduce 2048"));
}

}  // namespace
}  // namespace linerate::trace
