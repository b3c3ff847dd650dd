#include "linerate/doc/step_speed.hpp"

#include <gmock/gmock.h>

#include <random>

#include "linerate/core/error.hpp"
#include "linerate/doc/validate.hpp"

namespace linerate::doc {
namespace {

using testing::DoubleNear;
using testing::Optional;

/// Any part may be unknown, and they may add up to more or less than the step.
Workload any_workload(std::mt19937& random) {
  const auto up_to = [&](double most) { return most * std::uniform_real_distribution()(random); };
  const auto perhaps = [&](double most) {
    return random() % 3 == 0 ? std::nullopt : std::optional(up_to(most));
  };
  Workload w;
  w.name = "any";
  w.layers = {{"a", "linear", perhaps(0.02), perhaps(0.02), 10}};
  w.gradients = {{"a", 100, DType::f32, 0, 0, up_to(0.03)}};
  w.backward_s = w.gradients.back().ready_s + up_to(0.01);
  w.forward_s = perhaps(0.03), w.update_s = perhaps(0.01), w.tail_s = perhaps(0.01);
  if (random() % 3 != 0) {
    w.step_s = w.backward_s + up_to(0.06);
    w.step_low_s = 0.9 * *w.step_s, w.step_high_s = 1.2 * *w.step_s;
  }
  w.blocks = {{.layer = 0, .a = 4, .g = 3, .factor_a_s = perhaps(0.001)}};
  w.add_cost = {{1e6, 1e-4}};
  w.other_collectives = {{.bytes = 8, .place = StepPlace::backward, .at_s = w.backward_s}};
  return w;
}

TEST(StepSpeed, ADeviceIsFasterInAllOfItsPartsAndTheHostInNone) {
  std::mt19937 random(39);
  for (int i = 0; i < 500; ++i) {
    const Workload w = any_workload(random);
    for (const double speed : {0.25, 2.0, 1000.0}) {
      const Workload other = on_device(w, speed);
      validate(other);
      const OneRankParts was = parts_of(w), is = parts_of(other);
      EXPECT_NEAR(is.forward_s, was.forward_s / speed, 1e-12);
      EXPECT_NEAR(is.backward_s, was.backward_s / speed, 1e-12);
      EXPECT_NEAR(is.update_s, was.update_s / speed, 1e-12);
      EXPECT_NEAR(is.tail_s, was.tail_s, 1e-12);
      EXPECT_NEAR(other.one_rank_step_s(), is.forward_s + is.backward_s + is.update_s + is.tail_s,
                  1e-12);
      EXPECT_DOUBLE_EQ(other.gradients[0].ready_s, w.gradients[0].ready_s / speed);
      EXPECT_DOUBLE_EQ(other.add_cost[0].seconds, w.add_cost[0].seconds / speed);
      EXPECT_DOUBLE_EQ(other.other_collectives[0].at_s, w.other_collectives[0].at_s / speed);
      EXPECT_EQ(other.gradients[0].elements, w.gradients[0].elements);
      const Workload back = on_device(other, 1 / speed);
      EXPECT_NEAR(back.one_rank_step_s(),
                  was.forward_s + was.backward_s + was.update_s + was.tail_s, 1e-12);
      if (w.blocks[0].factor_a_s) {
        EXPECT_THAT(other.blocks[0].factor_a_s,
                    Optional(DoubleNear(*w.blocks[0].factor_a_s / speed, 1e-15)));
      }
    }
  }
}

TEST(StepSpeed, TimesOfAStepGrowAlikeOnDeviceAndHost) {
  std::mt19937 random(40);
  for (int i = 0; i < 500; ++i) {
    const Workload w = any_workload(random);
    const Workload longer = with_times(w, 5);
    const OneRankParts was = parts_of(w), is = parts_of(longer);
    EXPECT_NEAR(is.forward_s, 5 * was.forward_s, 1e-12);
    EXPECT_NEAR(is.backward_s, 5 * was.backward_s, 1e-12);
    EXPECT_NEAR(is.update_s, 5 * was.update_s, 1e-12);
    EXPECT_NEAR(is.tail_s, 5 * was.tail_s, 1e-12);
    EXPECT_EQ(longer.add_cost[0].seconds, w.add_cost[0].seconds);
    EXPECT_EQ(longer.gradient_bytes(), w.gradient_bytes());
  }
}

TEST(StepSpeed, OfAClusterItsOwnDevicesCountAndNotTheNetworkOrOtherMachines) {
  Cluster c;
  c.network = {1.25e9, 1e-5};
  c.half_sum_s_per_byte = 1e-10;
  c.codecs = {{"topk", 1e-4, 1e9, 1e-5, 2e9, CodingPlace::alone},
              {"qsgd", 1e-4, 1e9, 1e-5, 2e9, CodingPlace::compute},
              {"onebit", 1e-4, 1e9, 1e-5, 2e9, CodingPlace::codec},
              {"fp16", 1e-4, 1e9, 1e-5, 2e9, CodingPlace::alone, "another machine"}};
  c.second_order = SecondOrderCost{.inverse_fixed_s = 1e-4,
                                   .inverses = {{10, 1e-3}, {100, 4e-3}},
                                   .factor_fixed_s = 2e-4,
                                   .factor_flops_per_s = 1e9,
                                   .precondition_fixed_s = 3e-4,
                                   .precondition_flops_per_s = 2e9,
                                   .batches = {{10, 4, 4e-3, 2e-3}}};
  for (CodecCost& codec : c.codecs)
    codec.encode_tensor_s = 1e-5, codec.decode_tensor_s = 2e-5, codec.flops_per_s = 1e12;
  const CodedTensors coded{1 << 20, 3, 1e6};
  const Cluster twice = on_device(c, 2);
  for (std::size_t i = 0; i < c.codecs.size(); ++i) {
    const double factor = i < 2 ? 2 : 1;
    EXPECT_DOUBLE_EQ(twice.codecs[i].encode_s(coded), c.codecs[i].encode_s(coded) / factor) << i;
    EXPECT_DOUBLE_EQ(twice.codecs[i].decode_s(coded), c.codecs[i].decode_s(coded) / factor) << i;
  }
  const Block block{.layer = 0, .a = 60, .g = 30, .rows_a = 8, .rows_g = 8};
  EXPECT_DOUBLE_EQ(factor_s(block, FactorSide::a, twice.second_order),
                   factor_s(block, FactorSide::a, c.second_order) / 2);
  for (const std::int64_t dim : {5, 50, 500})
    EXPECT_DOUBLE_EQ(twice.second_order->inverse_s(dim), c.second_order->inverse_s(dim) / 2);
  EXPECT_DOUBLE_EQ(twice.second_order->together_share(10), c.second_order->together_share(10));
  EXPECT_EQ(twice.network.latency_s, c.network.latency_s);
  EXPECT_EQ(twice.half_sum_s_per_byte, c.half_sum_s_per_byte);
}

// Factors were timed among ranks already, and T_1 itself is of one rank.
TEST(StepSpeed, SeveralRanksComputeLongerThanOne) {
  std::mt19937 random(42);
  for (int i = 0; i < 100; ++i) {
    Workload w = any_workload(random);
    EXPECT_EQ(to_json(among_ranks(w)), to_json(w));
    w.several_ranks = SeveralRanks{1.5};
    const Workload longer = among_ranks(w);
    validate(longer);
    EXPECT_NEAR(longer.one_rank_step_s(), 1.5 * w.one_rank_step_s(), 1e-12);
    EXPECT_DOUBLE_EQ(longer.gradients[0].ready_s, 1.5 * w.gradients[0].ready_s);
    EXPECT_EQ(longer.blocks[0].factor_a_s, w.blocks[0].factor_a_s);
    EXPECT_NEAR(among_ranks(w, 0.2).one_rank_step_s(), 1.1 * w.one_rank_step_s(), 1e-12);
    EXPECT_FALSE(on_device(w, 2).several_ranks.has_value());
  }
}

TEST(StepSpeed, AJobsOwnSlowdownReplacesAProbedOne) {
  Workload w;
  Cluster probed;
  probed.contention = Contention{1.4, 1.1, 1.9, 1e-4};
  EXPECT_EQ(slowed_by(probed, w).contention->compute_slowdown, 1.4);
  w.several_ranks = SeveralRanks{1.2};
  EXPECT_EQ(slowed_by(probed, w).contention->compute_slowdown, 1.4);
  w.several_ranks->compute_slowdown = 1.8;
  EXPECT_EQ(slowed_by(probed, w).contention->compute_slowdown, 1.8);
  EXPECT_EQ(slowed_by(probed, w).contention->communication_slowdown, 1.1);
  // A Cluster without contention has devices of their own for computing.
  EXPECT_FALSE(slowed_by(Cluster{}, w).contention.has_value());
}

TEST(StepSpeed, ASpeedIsAboveNothing) {
  EXPECT_THROW(static_cast<void>(on_device(Workload{}, 0)), UsageError);
  EXPECT_THROW(static_cast<void>(on_device(Cluster{}, -1)), UsageError);
}

}  // namespace
}  // namespace linerate::doc
