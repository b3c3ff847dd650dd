// From the table to a Workload.
#include "linerate/models/workload.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "linerate/core/error.hpp"

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

TEST(ZooWorkload, WithoutTimesTheyAreAbsentNotZero) {
  const doc::Workload w = workload("mlp");
  EXPECT_FALSE(w.forward_s.has_value());
  EXPECT_FALSE(w.step_s.has_value());
  EXPECT_FALSE(w.layers[0].forward_s.has_value());
}

TEST(ZooWorkload, BuffersAreThoseOfBatchNorm) {
  // ResNet-18: 4800 channels in 20 batch norms, mean and variance of 4 bytes, a counter of 8 bytes
  // each.
  EXPECT_EQ(workload("resnet18").buffer_bytes, 4800 * 8 + 20 * 8);
}

TEST(ZooWorkload, HalfOfTheTimesIsAnError) {
  EXPECT_THROW(static_cast<void>(workload("mlp", {.forward_s = 1.0})), UsageError);
}

TEST(ZooName, IsWhatFollowsThePrefix) {
  EXPECT_EQ(zoo_name("zoo:resnet50"), "resnet50");
  EXPECT_EQ(zoo_name("zoo:inception_v4"), "inception-v4");
  EXPECT_EQ(zoo_name("w.json"), std::nullopt);
}

}  // namespace
}  // namespace linerate::models
