// Shapes and Kronecker factors of a network's layers, from the operators of its backward passes.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <tuple>

#include "linerate/models/workload.hpp"
#include "trace/kineto_text.hpp"

namespace linerate::trace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Operator {
  std::string name, dims;
};

/// A rank's backward pass, written as it runs: nodes of autograd with their operators, gradients.
class Pass {
 public:
  explicit Pass(double at) : now_(at) {}

  Pass& node(const std::string& name, const std::vector<Operator>& operators = {}) {
    events_.push_back(op("autograd::engine::evaluate_function: " + name + "Backward0", now_,
                         2.0 * static_cast<double>(operators.size()) + 2));
    for (const Operator& o : operators) events_.push_back(run(o, now_ += 2));
    now_ += 2;
    return *this;
  }
  /// Complete, with a hook behind it that runs this operator.
  Pass& gradient(const std::string& shape, const Operator& hook = {}) {
    events_.push_back(
        op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", now_, 6));
    events_.push_back(
        host_event("cpu_op", "torch::autograd::AccumulateGrad", now_ + 1, 1, floats(shape)));
    if (!hook.name.empty()) events_.push_back(run(hook, now_ + 4));
    now_ += 7;
    return *this;
  }
  /// Of a linear layer: of its input, of its weight [out, in] over n rows; then the view of it.
  Pass& linear(int n, int out, int in) {
    return node("Addmm", {{"aten::mm", fmt::format("[{},{}],[{},{}]", n, out, out, in)},
                          {"aten::mm", fmt::format("[{},{}],[{},{}]", out, n, n, in)}});
  }
  Pass& transposed() { return node("T"); }

  Events events() const { return events_; }

 private:
  static std::string run(const Operator& o, double at) {
    return host_event("cpu_op", o.name, at, 1,
                      fmt::format(R"("Input Dims":[{}],"Input type":["float","float"])", o.dims));
  }

  double now_;
  Events events_;
};

constexpr double kBackward = 100;

/// A rank whose marked steps, 1000 us each, run a forward operator and this pass.
std::string rank_of(int rank, int world, const auto& write) {
  return gloo_trace(rank, world, in_steps(3, 1000, [&write](int s, double at) {
                      Events events = {op("aten::linear", at, 90), optimizer_step(at + 900)};
                      Pass pass(at + kBackward);
                      write(pass, s);
                      append(events, pass.events());
                      return events;
                    }));
}
doc::Workload workload_from(const auto& write) {
  return import_job(job_of_ranks({rank_of(0, 1, [&](Pass& p, int) { write(p); })})).workload;
}

/// "linear 7x3, 40 rows", with groups if there are several; "conv2d" alone without a block.
std::vector<std::string> layers_of(const doc::Workload& w) {
  std::vector<std::string> all;
  for (const doc::Layer& l : w.layers) all.push_back(l.kind);
  for (const doc::Block& b : w.blocks) {
    std::string& text = all.at(static_cast<std::size_t>(b.layer));
    text += fmt::format(" {}x{}", b.a, b.g);
    if (b.groups > 1) text += fmt::format(" {} times", b.groups);
    text += fmt::format(", {} rows", b.rows_g);
    EXPECT_EQ(b.rows_a, b.kind == doc::BlockKind::unit_wise ? 0 : b.rows_g);
  }
  return all;
}
std::vector<std::int64_t> rows_of(const doc::Workload& w) {
  std::vector<std::int64_t> rows;
  for (const doc::Gradient& g : w.gradients) rows.push_back(g.rows.value_or(-1));
  return rows;
}

TEST(LayerShapes, AreThoseOfTheOperatorsThatComputeItsGradients) {
  // Backward: a classifier of 10 with bias over 8 samples; batch norm of 6 channels, 4 x 4
  // positions; a convolution 3 -> 6, 5 x 5, without bias: A is 3 * 25, rows are 8 * 16.
  const doc::Workload w = workload_from([](Pass& p) {
    p.linear(8, 10, 6).gradient("[10]").transposed().gradient("[10,6]");
    p.node("NativeBatchNorm", {{"aten::native_batch_norm_backward", "[8,6,4,4],[8,6,4,4],[6]"}});
    p.gradient("[6]").gradient("[6]").node("Relu");
    p.node("Convolution", {{"aten::convolution_backward", "[8,6,4,4],[8,3,8,8],[6,3,5,5]"}});
    p.gradient("[6,3,5,5]");
  });
  EXPECT_THAT(layers_of(w), ElementsAre("conv2d 75x6, 128 rows", "batch_norm 0x6, 128 rows",
                                        "linear 7x10, 8 rows"));
  EXPECT_EQ(w.blocks[1].kind, doc::BlockKind::unit_wise);
  EXPECT_THAT(rows_of(w), ElementsAre(1, 10, 1, 1, 6));
}

struct OnePass {
  const char* what;
  void (*write)(Pass& p);
  std::vector<std::string> layers;
};
const OnePass kPasses[] = {
    // 8 inputs and 12 outputs in 4 groups of 2 and 3, 3 x 3 and a bias: A is 19, G is 3.
    {"groups and bias of a convolution",
     [](Pass& p) {
       p.node("Convolution", {{"aten::convolution_backward", "[2,12,5,5],[2,8,5,5],[12,2,3,3]"}});
       p.gradient("[12,2,3,3]").gradient("[12]");
     },
     {"conv2d 19x3 4 times, 50 rows"}},
    // As in GPT-2: [in, out] = [4, 9], not transposed for its operator.
    {"a weight that stands inputs first is told by its bias",
     [](Pass& p) { p.linear(16, 9, 4).gradient("[9]").gradient("[4,9]"); },
     {"linear 5x9, 16 rows"}},
    {"casts of autocast belong to the layer behind them",
     [](Pass& p) {
       p.linear(8, 10, 6).node("ToCopy").gradient("[10]").transposed().node("ToCopy");
       p.gradient("[10,6]").node("ToCopy").node(
           "Convolution", {{"aten::convolution_backward", "[8,6,4,4],[8,3,4,4],[6,3,1,1]"}});
       p.node("ToCopy").gradient("[6,3,1,1]");
     },
     {"conv2d 3x6, 128 rows", "linear 7x10, 8 rows"}},
    // One weight of 9 rows, then two of the same shape, each used three times, in turn, over 4, 6
    // and 7 rows: only the last uses come next to their gradients.
    {"uses of one parameter add up",
     [](Pass& p) {
       p.linear(9, 4, 4).transposed().gradient("[4,4]");
       for (const int n : {4, 6}) p.linear(n, 4, 4).transposed().linear(2 * n, 4, 4).transposed();
       p.linear(7, 4, 4).transposed().gradient("[4,4]");
       p.linear(14, 4, 4).transposed().gradient("[4,4]");
     },
     {"linear 4x4, 34 rows", "linear 4x4, 17 rows", "linear 4x4, 9 rows"}},
    {"a norm that is used twice has the rows of both",
     [](Pass& p) {
       for (int use = 0; use < 2; ++use)
         p.node("NativeLayerNorm", {{"aten::native_layer_norm_backward",
                                     "[2,4,6],[2,4,6],[],[2,4,1],[2,4,1],[6],[6],[]"}});
       p.gradient("[6]").gradient("[6]");
     },
     {"layer_norm 0x6, 16 rows"}},
    // PowerSGD's hook multiplies matrices of the weight's shape as soon as a bucket is full.
    {"products of a hook are no layers",
     [](Pass& p) {
       p.linear(8, 10, 6).transposed().gradient("[10,6]", {"aten::mm", "[10,3],[3,6]"});
       p.node("Mul").gradient("[6]");
     },
     {"Mul", "linear 6x10, 8 rows"}}};

TEST(LayerShapes, AreFoundForEveryKindOfUse) {
  for (const OnePass& pass : kPasses)
    EXPECT_EQ(layers_of(workload_from(pass.write)), pass.layers) << pass.what;
}

TEST(LayerShapes, AnEmbeddingThatAProjectionSharesHasNoFactors) {
  const auto write = [](bool tied) {
    return [tied](Pass& p) {
      p.linear(8, 50, 4).gradient("[50]").transposed();
      if (!tied) p.gradient("[50,4]");
      p.node("Embedding", {{"aten::embedding_dense_backward", "[2,4,4],[2,4]"}}).gradient("[50,4]");
    };
  };
  EXPECT_THAT(layers_of(workload_from(write(false))),
              ElementsAre("embedding 50x4, 8 rows", "linear 5x50, 8 rows"));
  EXPECT_THAT(layers_of(workload_from(write(true))), ElementsAre("Embedding", "Addmm"));
}

TEST(LayerShapes, OfACompiledGraphEachWeightIsALayer) {
  // Which weight a bias belongs to is not told: it is left to the optimizer.
  const ImportedJob i = import_job(job_of_ranks({rank_of(0, 1, [](Pass& p, int) {
    p.node("CompiledFunction", {{"aten::mm", "[10,8],[8,6]"},
                                {"aten::convolution_backward", "[8,6,4,4],[8,3,4,4],[6,3,1,1]"}});
    p.gradient("[6,3,1,1]").gradient("[10]").gradient("[10,6]");
  })}));
  EXPECT_THAT(layers_of(i.workload),
              ElementsAre("linear 6x10, 8 rows", "CompiledFunction", "conv2d 3x6, 128 rows"));
  EXPECT_THAT(i.note_with("kfac"), IsEmpty());
}

TEST(LayerShapes, TheInputOfACheckpointedPartIsNoParameter) {
  // A part of [2, 4, 6] runs anew, forward and backward, within its node: 50 us from 110 on.
  const ImportedJob i = import_job(gloo_job(
      1, in_steps(3, 1000, [](int, double at) {
        Events events = {
            op("aten::linear", at, 90), optimizer_step(at + 900),
            op("autograd::engine::evaluate_function: CheckpointFunctionBackward", at + 109, 60),
            host_event("cpu_op", "CheckpointFunctionBackward", at + 110, 58, floats("[2,4,6]"))};
        Pass pass(at + 115);
        pass.linear(8, 6, 6).gradient("[6]").transposed().gradient("[6,6]");
        append(events, pass.node("Add").gradient("[2,4,6]").events());
        return events;
      })));
  EXPECT_THAT(layers_of(i.workload), ElementsAre("linear 7x6, 8 rows"));
  EXPECT_THAT(rows_of(i.workload), ElementsAre(1, 6));
}

TEST(LayerShapes, AnIndentedFileIsRead) {
  const doc::Workload w =
      workload_from([](Pass& p) { p.node("Mul").gradient("[\n\t10,\n\t6\n]"); });
  EXPECT_THAT(rows_of(w), ElementsAre(10));
  EXPECT_EQ(w.gradients.at(0).elements, 60);
}

TEST(LayerShapes, AScalarParameterHasAShapeToo) {
  const doc::Workload w = workload_from([](Pass& p) {
    p.node("Mul").gradient("[]");
    p.linear(8, 10, 6).transposed().gradient("[10,6]");
  });
  EXPECT_EQ(w.gradients.at(0).elements, 1);
  EXPECT_THAT(rows_of(w), ElementsAre(1, 10));
}

TEST(LayerShapes, RowsAreTypicalOfRanksAndStepsWhoseBatchesDiffer) {
  // Rank 0 sees 8, 6 and 8 rows, rank 1 20: medians 8 and 20, and the lower one counts.
  const auto rank = [](int r) {
    return rank_of(r, 2, [r](Pass& p, int s) {
      p.linear(r == 1 ? 20 : s == 1 ? 6 : 8, 10, 6).transposed().gradient("[10,6]");
    });
  };
  const ImportedJob i = import_job(job_of_ranks({rank(0), rank(1)}));
  EXPECT_THAT(layers_of(i.workload), ElementsAre("linear 6x10, 8 rows"));
  EXPECT_THAT(i.note_with("kfac"), IsEmpty());
}

TEST(LayerShapes, TheMajorityOfRanksDecides) {
  // On rank 2 the weight stands the other way.
  const auto rank = [](int r) {
    return rank_of(r, 3, [r](Pass& p, int) {
      p.linear(8, 10, 6).transposed().gradient(r == 2 ? "[6,10]" : "[10,6]");
    });
  };
  const ImportedJob i = import_job(job_of_ranks({rank(0), rank(1), rank(2)}));
  EXPECT_THAT(rows_of(i.workload), ElementsAre(10));
}

TEST(LayerShapes, PassesThatAccumulateHaveThemEach) {
  const ImportedJob i = import_job(gloo_job(
      1, in_steps(3, 1000, [](int, double begin) {
        Events events = {optimizer_step(begin + 900)};
        for (const double at : {begin, begin + 400}) {
          // A forward product without bias.
          append(events,
                 {op("aten::linear", at, 90),
                  host_event("cpu_op", "aten::mm", at + 91, 1, R"("Input Dims":[[10,8],[8,6]])")});
          append(events, Pass(at + 100).linear(8, 10, 6).transposed().gradient("[10,6]").events());
        }
        return events;
      })));
  EXPECT_EQ(i.workload.accumulation, 2);
  EXPECT_THAT(layers_of(i.workload), ElementsAre("linear 6x10, 8 rows"));
}

TEST(LayerShapes, WhatNoOperatorTellsIsSaid) {
  // A recurrent layer's weights belong to no operator that is known here.
  const ImportedJob i = import_job(job_of_ranks({rank_of(0, 1, [](Pass& p, int) {
    p.linear(8, 10, 6).transposed().gradient("[10,6]");
    p.node("CudnnRnn").gradient("[24,6]").gradient("[24]");
  })}));
  EXPECT_THAT(layers_of(i.workload), ElementsAre("CudnnRnn", "linear 6x10, 8 rows"));
  EXPECT_THAT(i.note_with("kfac"), HasSubstr("1 of 2 layers with a matrix (CudnnRnn)"));
}

TEST(LayerShapes, UnusedParametersThatAreSentAllTheSameAreSaid) {
  const auto said = [](long elements) {
    const Events events = in_steps(3, 1000, [elements](int, double at) {
      return Events{op("aten::linear", at, 90), gradient(1000, at + 110),
                    gloo_all_reduce(elements, at + 215, at + 220, 50), optimizer_step(at + 900)};
    });
    return import_job(gloo_job(2, events)).note_with("unused");
  };
  EXPECT_THAT(said(1000), IsEmpty());
  EXPECT_THAT(said(1500), HasSubstr("50 % more elements than its recorded gradients"));
}

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

}  // namespace
}  // namespace linerate::trace
