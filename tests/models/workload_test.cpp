// From the table to a Workload.
#include <gmock/gmock.h>

#include <memory>

#include "linerate/core/error.hpp"
#include "linerate/doc/step_speed.hpp"
#include "linerate/models/workload.hpp"

namespace linerate::models {
namespace {

TEST(ZooWorkload, GradientsComeInReverseRegistrationOrder) {
  const doc::Workload w = workload("lenet");
  ASSERT_EQ(w.gradients.size(), 10u);
  EXPECT_EQ(w.gradients.front().name, "fc3.bias");
  EXPECT_EQ(w.gradients.front().registration, 9);
  EXPECT_EQ(w.gradients.back().name, "conv1.weight");
  EXPECT_EQ(w.gradient_bytes(), 61706 * 4);
}

TEST(ZooWorkload, SplitsAStepOneToTwo) {
  const doc::Workload w = workload("resnet50", {.batch = 32, .step_s = 0.128});
  EXPECT_EQ(w.gradients.size(), 161u);
  EXPECT_DOUBLE_EQ(*w.forward_s, 0.128 / 3);
  EXPECT_DOUBLE_EQ(w.backward_s, 0.256 / 3);
  double forward = 0, backward = 0, before = 0;
  for (const doc::Layer& layer : w.layers)
    forward += *layer.forward_s, backward += *layer.backward_s;
  EXPECT_NEAR(forward, *w.forward_s, 1e-12);
  EXPECT_NEAR(backward, w.backward_s, 1e-12);
  for (const doc::Gradient& g : w.gradients) {
    EXPECT_GE(g.ready_s, before);
    before = g.ready_s;
  }
  EXPECT_NEAR(before, w.backward_s, 1e-12);  // the first layer's gradients end the backward pass
}

TEST(ZooWorkload, WithoutTimesTheyAreAbsentNotZeroAndHalfOfThemIsAnError) {
  const doc::Workload w = workload("mlp");
  EXPECT_FALSE(w.forward_s.has_value());
  EXPECT_FALSE(w.step_s.has_value());
  EXPECT_FALSE(w.layers[0].forward_s.has_value());
  EXPECT_THROW(static_cast<void>(workload("mlp", {.forward_s = 1.0})), UsageError);
}

TEST(ZooWorkload, BuffersAreThoseOfBatchNorm) {
  // ResNet-18: 4800 channels in 20 batch norms, mean and variance of 4 bytes, a counter of 8 bytes
  // each.
  EXPECT_EQ(workload("resnet18").buffer_bytes, 4800 * 8 + 20 * 8);
}

TEST(ZooName, IsWhatFollowsThePrefix) {
  EXPECT_EQ(zoo_name("zoo:resnet50"), "resnet50");
  EXPECT_EQ(zoo_name("zoo:inception_v4"), "inception-v4");
  EXPECT_EQ(zoo_name("w.json"), std::nullopt);
}

using testing::DoubleEq;
using testing::Optional;

doc::Workload recorded() {
  doc::Workload w;
  w.name = "recorded";
  w.gradients = {{"w", 100, DType::f32, -1, 0, 0.02}};
  w.forward_s = 0.0135, w.backward_s = 0.023, w.update_s = 0.001, w.tail_s = 0.0005;
  w.step_s = 0.04, w.step_low_s = 0.038, w.step_high_s = 0.043;
  return w;
}

doc::Workload loaded(doc::Workload w, double step_s, bool covers_step = true) {
  WorkloadSource source;
  source.reference = "recorded";
  source.held = std::make_shared<doc::Workload>(std::move(w));
  source.step_time = Seconds{step_s};
  source.step_time_covers_step = covers_step;
  return load_workload(source);
}

doc::Workload of_size(const std::string& reference, double step_s = 0.3) {
  WorkloadSource source;
  source.reference = reference;
  source.step_time = Seconds{step_s};
  return load_workload(source);
}

TEST(WorkloadSource, ASizeAloneSpreadsItsGradientsOverBackward) {
  struct Case {
    const char* reference;
    std::int64_t elements;
    DType dtype;
  };
  for (const auto& [reference, elements, dtype] :
       {Case{"params:30.8M", 30'800'000, DType::f32},
        Case{"params:7B,bf16", 7'000'000'000, DType::bf16},
        Case{"params:30846720", 30'846'720, DType::f32}, Case{"params:3", 3, DType::f32},
        Case{"params:1K, f16", 1000, DType::f16}}) {
    const doc::Workload w = of_size(reference);
    std::int64_t sum = 0;
    double before = 0;
    for (const doc::Gradient& g : w.gradients) {
      sum += g.elements;
      EXPECT_EQ(g.dtype, dtype) << reference;
      EXPECT_NEAR(g.ready_s - before, 0.2 / static_cast<double>(w.gradients.size()), 1e-12);
      before = g.ready_s;
    }
    EXPECT_EQ(sum, elements) << reference;
    EXPECT_DOUBLE_EQ(before, w.backward_s) << reference;
    EXPECT_THAT(w.step_s, Optional(DoubleEq(0.3)));
  }
}

TEST(WorkloadSource, ASizeThatIsNoneIsRefused) {
  for (const char* reference : {"params:", "params:0", "params:-3M", "params:7X", "params:7B,f99",
                                "params:1e30", "params:nan"})
    EXPECT_THROW((void)of_size(reference), UsageError) << reference;
}

// Its gap of 2 ms, too; shorter than its backward pass or longer.
TEST(WorkloadSource, AStepTimeScalesAllOfARecordedStep) {
  const doc::OneRankParts was = parts_of(recorded());
  for (const double step_s : {0.02, 0.2}) {
    const doc::Workload w = loaded(recorded(), step_s);
    const doc::OneRankParts is = parts_of(w);
    const double factor = step_s / 0.04;
    EXPECT_THAT(w.step_s, Optional(DoubleEq(step_s)));
    EXPECT_DOUBLE_EQ(is.forward_s, factor * was.forward_s);
    EXPECT_DOUBLE_EQ(is.backward_s, factor * was.backward_s);
    EXPECT_DOUBLE_EQ(is.update_s, factor * was.update_s);
    EXPECT_NEAR(is.tail_s, factor * was.tail_s, 1e-12);
    EXPECT_DOUBLE_EQ(w.gradients[0].ready_s, factor * 0.02);
    EXPECT_FALSE(w.step_low_s || w.step_high_s);  // it is what was said
  }
}

// 36.5 ms of 40 ms are forward and backward.
TEST(WorkloadSource, AStepTimeOfForwardAndBackwardScalesTheRestWithThem) {
  const doc::Workload w = loaded(recorded(), 0.073, false);
  EXPECT_DOUBLE_EQ(*w.forward_s + w.backward_s, 0.073);
  EXPECT_DOUBLE_EQ(*w.step_s, 0.08);
}

TEST(WorkloadSource, AStepTimeCompletesAWorkloadThatHasNone) {
  doc::Workload w = recorded();
  w.forward_s.reset(), w.update_s.reset(), w.tail_s.reset(), w.step_s.reset();
  w.step_low_s.reset(), w.step_high_s.reset();
  EXPECT_DOUBLE_EQ(loaded(w, 0.04).backward_s, 0.023);
  EXPECT_DOUBLE_EQ(parts_of(loaded(w, 0.04)).forward_s, 0.04 - 0.023);
  EXPECT_DOUBLE_EQ(*loaded(w, 0.04, false).forward_s, 0.04 - 0.023);
  EXPECT_THROW(static_cast<void>(loaded(w, 0.02)), UsageError);
}

}  // namespace
}  // namespace linerate::models
