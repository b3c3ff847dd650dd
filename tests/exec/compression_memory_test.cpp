// What compressors keep between steps: as much as Plans say, and for whom.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "linerate/compress/registry.hpp"
#include "linerate/exec/compression.hpp"
#include "linerate/plan/exchange.hpp"
#include "linerate/plan/planner.hpp"

namespace linerate::exec {
namespace {

struct ZeroPayloads : Payloads {
  std::map<std::int32_t, std::vector<std::byte>> arrays;
  comm::Buffer buffer(const doc::TaskGraph& graph, std::int32_t payload) override {
    const doc::Payload& p = graph.payloads[static_cast<std::size_t>(payload)];
    std::vector<std::byte>& array = arrays[payload];
    array.resize(static_cast<std::size_t>(p.bytes()));
    return {array.data(), {static_cast<std::int64_t>(array.size()) / size_of(p.dtype)}, p.dtype};
  }
};

doc::Workload matrix_and_bias() {
  doc::Workload w;
  w.name = "matrix and bias";
  for (const doc::GradientShape& shape : {doc::GradientShape{512 * 64, 512}, {512, 1}}) {
    doc::Gradient g;
    g.name = "g" + std::to_string(w.gradients.size());
    g.elements = shape.elements, g.rows = shape.rows;
    g.registration = static_cast<int>(w.gradients.size());
    g.ready_s = 1e-3;
    w.gradients.push_back(g);
  }
  w.backward_s = 1e-3;
  return w;
}

/// Twice the arrays that a checkpoint of it holds: a step works on copies.
std::int64_t held_by(const Compression& compression) {
  std::size_t bytes = 0;
  const auto add = [&](const compress::SavedState& codec) {
    for (const compress::SavedField& field : codec)
      if (field.is_array) bytes += 2 * field.bytes.size();
  };
  for (const auto& [name, tensor] : compression.save().tensors) {
    bytes += 2 * 4 * tensor.residual.size();
    add(tensor.codec);
    for (const compress::SavedState& chunk : tensor.two_phase.workers) add(chunk);
    add(tensor.two_phase.server);
  }
  return static_cast<std::int64_t>(bytes);
}

std::shared_ptr<const doc::Plan> plan_with(const std::string& strategy) {
  doc::Cluster cluster;
  cluster.ranks = 2;
  return std::make_shared<const doc::Plan>(plan::make_plan(
      matrix_and_bias(), cluster, doc::parse_strategy(strategy), 2, {.first_step = false}));
}

TEST(CompressionMemory, IsWhatThePlanSaysForEveryCompressor) {
  for (const std::string& name : compress::compressors().names()) {
    const auto plan = plan_with("bulk+" + name + "(dense_below=0)");
    const doc::TaskGraph& graph = plan->variants.front();
    ZeroPayloads payloads;
    Compression compression(payloads, 0, 2, 1);
    compression.set_plan(plan);
    compression.begin_step();
    std::int64_t expected = 0;
    for (const doc::Task& task : graph.tasks) {
      if (task.kind != doc::TaskKind::encode) continue;
      expected += plan::kept_bytes(*plan, graph, task);
      compression.run(graph, task);
    }
    compression.keep();
    EXPECT_EQ(held_by(compression), expected) << name;
  }
}

/// One rank's encode of a step; `value` is every element's gradient.
void encode(Compression& compression, ZeroPayloads& payloads, const doc::Plan& plan, float value) {
  const doc::TaskGraph& graph = plan.variants.front();
  compression.begin_step();
  for (const doc::Task& task : graph.tasks) {
    if (task.kind != doc::TaskKind::encode) continue;
    const comm::Buffer values = payloads.buffer(graph, task.first);
    std::fill_n(static_cast<float*>(values.data), values.count.value, value);
    compression.run(graph, task);
  }
  compression.keep();
}

/// The first of two elements is sent and the other one kept; a compressor that comes later sends of
/// what the one before kept, though the gradient is zero.
TEST(CompressionMemory, ResidualsStayWithACompressorThatKeepsThem) {
  const auto sum_kept = [](const Compression& compression) {
    double sum = 0;
    const compress::CompressionState state = compression.save();
    for (const float r : state.tensors.at("g0").residual) sum += std::abs(r);
    return sum;
  };
  const auto sparse = plan_with("bulk+topk(density=0.1, dense_below=0)"),
             denser = plan_with("bulk+mstopk(density=0.3, dense_below=0)"),
             without = plan_with("bulk+signsgd(dense_below=0)");
  ZeroPayloads payloads;
  Compression compression(payloads, 0, 2, 1);
  compression.set_plan(sparse);
  encode(compression, payloads, *sparse, 1);
  const double before = sum_kept(compression);
  EXPECT_GT(before, 0);
  compression.set_plan(denser);
  encode(compression, payloads, *denser, 0);
  EXPECT_GT(sum_kept(compression), 0);
  EXPECT_LT(sum_kept(compression), before);
  compression.set_plan(without);
  encode(compression, payloads, *without, 0);
  EXPECT_EQ(sum_kept(compression), 0);
}

/// Of the Plan that comes next, which has no compressor: until a step counts that somebody takes.
TEST(CompressionMemory, ADenseStepSendsTheResidualToo) {
  const auto sparse = plan_with("bulk+topk(density=0.1, dense_below=0)"), dense = plan_with("bulk");
  const std::vector<compress::Shape> shapes = {{512 * 64, 512}, {512, 1}};
  ZeroPayloads payloads;
  Compression compression(payloads, 0, 2, 1);
  compression.set_plan(sparse);
  encode(compression, payloads, *sparse, 1);
  const std::vector<float> residual = compression.save().tensors.at("g0").residual;
  compression.set_plan(dense);
  const auto matrix = std::find(dense->gradient_names.begin(), dense->gradient_names.end(), "g0") -
                      dense->gradient_names.begin();
  const auto begin = [&] {
    compression.begin_step();
    compression.begin_dense(dense->variants.front(),
                            matrix == 0 ? shapes : std::vector{shapes[1], shapes[0]});
    const auto owed = compression.owed(static_cast<std::int32_t>(matrix));
    return std::vector<float>(owed.begin(), owed.end());
  };
  EXPECT_EQ(begin(), residual);
  compression.drop();
  EXPECT_EQ(begin(), residual) << "a step that does not count";
  compression.keep({"g0"});
  EXPECT_EQ(begin(), residual) << "a step in which no rank uses it";
  EXPECT_TRUE(compression.sends_owed());
  compression.keep();
  EXPECT_FALSE(compress::owes(compression.save(), 0));
  EXPECT_TRUE(begin().empty());
  EXPECT_FALSE(compression.sends_owed());
}

}  // namespace
}  // namespace linerate::exec
