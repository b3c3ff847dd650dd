// What is measured is a Workload that may be kept, whatever the times.
#include "linerate/zoo/measurement.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <random>
#include <tuple>

#include "linerate/doc/validate.hpp"

namespace linerate::zoo {
namespace {

// A step that is the sum of its parts leaves a tail of 0, which is found by other roundings.
TEST(Measurement, MakesAWorkloadOfAnyTimes) {
  std::mt19937_64 random(1);
  const auto time = [&random] {
    return std::uniform_real_distribution(0.0, 1.0)(random) *
           std::pow(10, std::uniform_int_distribution(-9, 3)(random));
  };
  for (int i = 0; i < 100'000; ++i) {
    const double forward_s = time(), backward_s = time(), update_s = time();
    doc::Workload w;
    const double step_s = i % 2 == 0 ? 0 : time();
    set_step({step_s, 0.9 * step_s, 1.2 * step_s}, forward_s, backward_s, update_s, w);
    w.gradients = {{"g", 1, DType::f32, -1, 0, w.backward_s}};
    ASSERT_NO_THROW(validate(w)) << forward_s << " " << backward_s << " " << update_s;
    ASSERT_GE(w.outside_backward_s(), 0);
    ASSERT_LE(w.step_low_s, w.step_s);
    ASSERT_GE(w.step_high_s, w.step_s);
  }
}

/// Two ranks, five steps with an event a phase: 10 ms alone in forward and 20 in backward, each
/// `factor` times as long, and longer by `lost` of the time that an all-reduce takes next to it.
doc::Timeline steps_of(double factor, double lost, double beside_forward, double beside_backward) {
  doc::Timeline t;
  t.ranks = 2;
  const auto ns = [](double ms) { return std::llround(ms * 1e6); };
  for (std::int32_t step = 0; step < 5; ++step)
    for (std::int32_t rank = 0; rank < 2; ++rank) {
      double at = 100.0 * step;
      for (const auto& [kind, alone, beside] :
           {std::tuple{doc::TaskKind::forward, 10.0, beside_forward},
            std::tuple{doc::TaskKind::backward, 20.0, beside_backward}}) {
        // Rank 1 computes a little less: the slowest rank counts.
        const double end = at + factor * alone * (rank == 0 ? 1 : 0.9) + lost * beside;
        t.events.push_back({.kind = kind,
                            .resource = doc::Resource::compute,
                            .rank = rank,
                            .step = step,
                            .start_ns = ns(at),
                            .end_ns = ns(end)});
        if (beside > 0)
          t.events.push_back({.kind = doc::TaskKind::all_reduce,
                              .resource = doc::Resource::network,
                              .rank = rank,
                              .step = step,
                              .start_ns = ns(end - beside),
                              .end_ns = ns(end)});
        at = end + 1;
      }
    }
  return t;
}

doc::Workload alone() {
  doc::Workload w;
  w.forward_s = 0.010, w.backward_s = 0.020;
  return w;
}

TEST(Measurement, TellsColdComputingFromComputingBesideMessages) {
  for (const double factor : {1.0, 1.2})
    for (const double lost : {0.0, 0.3, 0.5}) {
      const auto found = several_ranks_of(steps_of(factor, lost, 0, 15), alone());
      ASSERT_TRUE(found.has_value());
      EXPECT_NEAR(found->compute_factor, factor, 1e-6) << lost;
      ASSERT_TRUE(found->compute_slowdown.has_value());
      EXPECT_NEAR(*found->compute_slowdown, 1 / (1 - lost), 1e-6) << factor;
      EXPECT_NEAR(found->communication_s.value(), 0.015, 1e-9);
    }
}

TEST(Measurement, SaysNoSlowdownIfNothingTravelledMeanwhile) {
  const auto found = several_ranks_of(steps_of(1.3, 0.5, 0, 1), alone());
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR(found->compute_factor, 1.3, 0.03);
  EXPECT_FALSE(found->compute_slowdown.has_value());
}

TEST(Measurement, FindsNothingFasterAmongRanks) {
  const auto quick = several_ranks_of(steps_of(0.8, 0, 0, 15), alone());
  ASSERT_TRUE(quick.has_value());
  EXPECT_EQ(quick->compute_factor, 1);
  EXPECT_EQ(quick->compute_slowdown, 1);
  doc::Timeline one = steps_of(1.2, 0.5, 0, 15);
  one.ranks = 1;
  EXPECT_FALSE(several_ranks_of(one, alone()).has_value());
}

}  // namespace
}  // namespace linerate::zoo
