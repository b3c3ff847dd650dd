#include "linerate/doc/workload.hpp"

#include <gmock/gmock.h>

#include <cmath>

#include "linerate/core/error.hpp"

namespace linerate::doc {
namespace {

using testing::HasSubstr;

Workload small() {
  Workload w;
  w.name = "two layers";
  w.layers = {{"a", "linear", 0.001, 0.002, 10}, {"b", "linear", std::nullopt, std::nullopt, 0}};
  w.gradients = {{"b.weight", 100, DType::f32, 1, 1, 0.001},
                 {"a.weight", 50, DType::f64, 0, 0, 0.003}};
  w.backward_s = 0.003;
  w.forward_s = 0.001;
  w.blocks = {{.layer = 0, .a = 4, .g = 3, .rows_a = 8, .rows_g = 8, .factor_a_s = 0.0001},
              {.layer = 1, .kind = BlockKind::unit_wise, .g = 5}};
  return w;
}

TEST(Workload, OfAnOlderDocumentHasNoAccumulationAndNoStrategyInUse) {
  const Workload w = workload_from_json(
      R"({"document": "workload", "schema": 1, "backward_s": 1, "gradients": []})", "w.json");
  EXPECT_EQ(w.accumulation, 1);
  EXPECT_EQ(w.current, "");
  EXPECT_FALSE(w.split_by_flops);
}

TEST(Workload, KeepsOtherCollectivesWhichOlderDocumentsDoNotHave) {
  const std::string older = to_json(small());
  EXPECT_THAT(older, testing::Not(HasSubstr("other_collectives")));
  EXPECT_TRUE(workload_from_json(older, "w.json").other_collectives.empty());
  // As one writes it by hand: what has a default may be left out.
  const std::string gather = R"({"collective": "all-gather", "bytes": 8000, "place": "update"})";
  const Workload w = workload_from_json(
      older.substr(0, older.rfind('}')) + ", \"other_collectives\": [" + gather + "]}", "w.json");
  ASSERT_EQ(w.other_collectives.size(), 1u);
  const OtherCollective& o = w.other_collectives.front();
  EXPECT_EQ(o.collective, Collective::all_gather);
  EXPECT_EQ(o.place, StepPlace::update);
  EXPECT_FALSE(o.per_rank);
  EXPECT_EQ(o.group, 0);
  EXPECT_EQ(o.every, 1);
  EXPECT_EQ(to_json(workload_from_json(to_json(w), "w.json")), to_json(w));
  EXPECT_EQ(scaled(w, 0.5).other_collectives.front().bytes, 4000);
}

TEST(Workload, UnknownStaysUnknown) {
  const Workload w = workload_from_json(to_json(small()), "w.json");
  EXPECT_FALSE(w.layers[1].forward_s.has_value());
  EXPECT_FALSE(w.update_s.has_value());
}

TEST(Workload, AVectorIsToldFromWhatHasNoKnownShape) {
  Workload w = small();
  EXPECT_FALSE(workload_from_json(to_json(w), "w.json").knows_shapes());
  w.gradients[0].rows = 1;
  const Workload again = workload_from_json(to_json(w), "w.json");
  EXPECT_TRUE(again.knows_shapes());
  EXPECT_EQ(again.gradients[0].rows, 1);
  EXPECT_FALSE(again.gradients[1].rows.has_value());
  EXPECT_EQ(scaled(again, 0.1).gradients[0].rows, 1);
}

TEST(Workload, SumsBytesOverElementTypes) { EXPECT_EQ(small().gradient_bytes(), 100 * 4 + 50 * 8); }

TEST(Workload, StepIsTheMeasuredOneOrTheSumOfKnownParts) {
  Workload w = small();
  EXPECT_DOUBLE_EQ(w.one_rank_step_s(), 0.004);
  w.step_s = 0.01;
  EXPECT_DOUBLE_EQ(w.outside_backward_s(), 0.007);
}

TEST(Workload, ScalesGradientsAndComputationAlike) {
  Workload w = small();
  w.layers[0] = {"conv", "conv2d", 0.01, 0.02, 5e6};
  w.update_s = 0.004;
  w.buffer_bytes = 1000;
  w.add_cost = {{1e6, 1e-4}};
  w.gradients[1].elements = 3;
  const Workload tenth = scaled(w, 0.1);
  EXPECT_EQ(tenth.gradients[0].elements, 10);
  EXPECT_EQ(tenth.gradients[1].elements, 1);  // at least one
  EXPECT_DOUBLE_EQ(tenth.gradients[1].ready_s, 0.1 * w.gradients[1].ready_s);
  EXPECT_DOUBLE_EQ(tenth.backward_s, 0.1 * w.backward_s);
  EXPECT_DOUBLE_EQ(tenth.update_s.value(), 0.0004);
  EXPECT_DOUBLE_EQ(tenth.layers[0].forward_s.value(), 0.001);
  EXPECT_DOUBLE_EQ(tenth.layers[0].flops, 5e5);
  EXPECT_DOUBLE_EQ(tenth.one_rank_step_s(), 0.1 * w.one_rank_step_s());
  EXPECT_EQ(tenth.buffer_bytes, 100);
  EXPECT_DOUBLE_EQ(tenth.blocks[0].factor_a_s.value(), 1e-5);
  EXPECT_EQ(tenth.blocks[0].rows_a, 8);
  EXPECT_EQ(tenth.add_cost[0].seconds, 1e-4);  // the device is the same
  EXPECT_EQ(tenth.tail_s.has_value(), w.tail_s.has_value());
  EXPECT_EQ(tenth.name, w.name + " x 0.1");  // another job: compare says so
  EXPECT_EQ(to_json(scaled(w, 1)), to_json(w));
  for (const double bad : {0.0, -1.0, 1e9, std::nan("")})
    EXPECT_THROW(static_cast<void>(scaled(w, bad)), UsageError);
}

}  // namespace
}  // namespace linerate::doc
