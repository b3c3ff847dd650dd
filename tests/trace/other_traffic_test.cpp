// What a job sends besides gradients stands in its Workload, where it ran.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>

#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

using doc::OtherCollective;
using doc::StepPlace;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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
const std::vector<std::string> kParameters(3, "broadcast 1200000, update 0 us");

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
  EXPECT_EQ(in_words(parameters.workload), kParameters);
  EXPECT_EQ(parameters.workload.buffer_bytes, 0);

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

TEST(OtherTraffic, OnceInSeveralStepsSaysSo) {
  const ImportedJob job = imported({.parameters_every = 2});
  EXPECT_EQ(in_words(job.workload),
            std::vector<std::string>(3, "broadcast 1200000, update 0 us, every 2"));
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
