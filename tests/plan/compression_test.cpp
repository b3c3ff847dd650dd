// Compressors in Plans: which exchange their payloads take, what is known of their sizes, and when
// auto leaves a bucket alone.
#include "linerate/plan/compression.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "linerate/compress/registry.hpp"
#include "linerate/core/text.hpp"
#include "linerate/plan/planner.hpp"
#include "plan/planned.hpp"
#include "support/message_of.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::plan {
namespace {

using doc::TaskKind;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Matrices of 1024 columns, ready one after the other.
doc::Workload matrices(const std::vector<std::int64_t>& rows) {
  std::vector<double> ready_s;
  std::vector<std::int64_t> bytes;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ready_s.push_back(static_cast<double>(i + 1));
    bytes.push_back(rows[i] * 1024 * 4);
  }
  doc::Workload w = support::workload_at(ready_s, bytes);
  for (std::size_t i = 0; i < rows.size(); ++i) w.gradients[i].rows = rows[i];
  return w;
}

/// A network of 1 ns a byte and `alpha_s` a message; codecs are free or cost what `codecs` say.
doc::Plan planned(const std::string& strategy, const doc::Workload& w, int ranks,
                  double alpha_s = 0, std::vector<doc::CodecCost> codecs = {}) {
  doc::Cluster cluster = support::two_rank_cluster(alpha_s, 1e-9);
  cluster.codecs = std::move(codecs);
  return support::planned(strategy, w, cluster, ranks);
}

std::vector<TaskKind> kinds_of(const doc::Plan& plan) {
  std::vector<TaskKind> kinds;
  for (const doc::Task& t : support::collectives_of(plan.variants.back())) kinds.push_back(t.kind);
  return kinds;
}

/// A strategy has a default; a Plan, which may be of older times, means what it says.
TEST(CompressionPlan, SmallTensorsTravelDenseUnlessTheStrategySaysOtherwise) {
  const doc::Workload w = support::workload_of({4095, 4096}, 1e-3);
  const auto planned_as = [&](const std::string& compressor) {
    const doc::Plan plan = planned("bulk+" + compressor, w, 2);
    for (const doc::Task& task : plan.variants.back().tasks)
      if (task.kind == TaskKind::encode)
        return fmt::format("{}, {} elements",
                           doc::to_text(plan.operations[to_index(task.operation)]), task.bytes / 4);
    return std::string("dense");
  };
  EXPECT_EQ(planned_as("topk"), "topk(dense_below=4096), 4096 elements");
  EXPECT_EQ(planned_as("topk(dense_below=0)"), "topk, 8191 elements");
  EXPECT_EQ(planned_as("topk(density=0.1, dense_below=5000)"), "dense");
  EXPECT_EQ(planned_as("randomk"), "randomk(dense_below=4096), 4096 elements");
  EXPECT_EQ(planned_as("fp16"), "fp16, 8191 elements");
  EXPECT_EQ(planned_as("bf16(dense_below=4096)"), "bf16(dense_below=4096), 4096 elements");
  EXPECT_EQ(planned_as("signsgd"), "signsgd, 8191 elements");
  EXPECT_FALSE(compress::make_compressor({"topk", {}})->rounds({100, 1}).empty());
}

/// Bytes a rank sends by the direct algorithms: of an array of S, S (W - 1) / W in either phase.
std::int64_t sent_bytes(const doc::Plan& plan) {
  std::int64_t sum = 0;
  for (const doc::Task& t : support::collectives_of(plan.variants.back()))
    sum += t.bytes / plan.ranks * (plan.ranks - 1);
  return sum;
}

/// Tang et al. 2021: 2 c (W - 1) / W for a payload of c bytes, whatever W; gathered, each rank's
/// goes to all others. Chunks are of whole 4096 elements here, so their payloads add up to c and a
/// scale a chunk.
TEST(CompressionPlan, TwoPhasesSendTwiceThePayloadWhateverTheRanks) {
  for (const std::string& name : compress::compressors().names()) {
    const auto compressor = compress::make_compressor({name, {}});
    if (!compress::fits_two_phase(*compressor)) continue;
    for (const int ranks : {2, 4, 8}) {
      const std::int64_t elements = ranks * 4096;
      const doc::Workload w = matrices({elements / 1024});
      const std::int64_t chunk = compressor->rounds({elements / ranks, 1}).front().bytes;
      const bool has_size = compressor->rounds({elements, elements / 1024}).front().is_bound;
      const std::int64_t block = (chunk + 3) / 4 * 4 + (has_size ? 4 : 0);
      const doc::Plan plan = planned("bulk+" + name + "(exchange=two-phase)", w, ranks);
      EXPECT_THAT(kinds_of(plan), ElementsAre(TaskKind::all_to_all, TaskKind::all_gather)) << name;
      EXPECT_EQ(sent_bytes(plan), 2 * block * (ranks - 1)) << name << " on " << ranks;
    }
  }
}

/// On two ranks both send the payload once; from three on the gathered one sends more. Latency
/// counts for the one with one message.
TEST(CompressionPlan, TheCheaperExchangeIsTaken) {
  const doc::Workload w = matrices({256});
  const auto takes_two = [&](const std::string& strategy, int ranks, double alpha_s) {
    return kinds_of(planned(strategy, w, ranks, alpha_s)).front() == TaskKind::all_to_all;
  };
  EXPECT_FALSE(takes_two("ddp+qsgd", 2, 1e-6));
  EXPECT_TRUE(takes_two("ddp+qsgd", 8, 1e-9));
  EXPECT_FALSE(takes_two("ddp+qsgd", 8, 1));
  EXPECT_FALSE(takes_two("ddp+qsgd(exchange=gather)", 8, 1e-9));
  EXPECT_TRUE(takes_two("ddp+qsgd(exchange=two-phase)", 2, 1));
  EXPECT_TRUE(takes_two("ddp+onebit-adam", 2, 1));
  EXPECT_THROW(planned("ddp+fp16(exchange=gather)", w, 2), UsageError);
}

/// Sizes that only the values know: the Plan states the most, ranks tell each other theirs first,
/// and the step is priced by what is expected; if that is nearly the most, the most travels.
TEST(CompressionPlan, BoundsAreCountedAndPricedByWhatIsExpected) {
  const doc::Workload w = matrices({100, 256});
  std::vector<std::string> padded;
  for (const std::string& name : compress::compressors().names()) {
    const auto compressor = compress::make_compressor({name, {}});
    const auto rounds = compressor->rounds({1024 * 256, 256});
    const compress::Round& round = rounds.front();
    if (!round.is_bound || round.combine != compress::Combine::gather) continue;
    const doc::Plan plan = planned("bulk+" + name + "(exchange=gather)", w, 4);
    const doc::TaskGraph& g = plan.variants.back();
    const auto sent = support::collectives_of(g);
    if (8 * round.bytes <= 9 * round.expected) {
      ASSERT_THAT(kinds_of(plan), ElementsAre(TaskKind::all_gather)) << name;
      EXPECT_FALSE(sent[0].bound) << name;
      EXPECT_EQ(sent[0].priced_bytes(), sent[0].bytes) << name;
      padded.push_back(name);
      continue;
    }
    ASSERT_THAT(kinds_of(plan), ElementsAre(TaskKind::all_gather, TaskKind::all_gather_v)) << name;
    EXPECT_EQ(support::payload_of(g, sent[0]).content, doc::Content::counts);
    EXPECT_EQ(support::payload_of(g, sent[0]).of, sent[1].first);
    EXPECT_EQ(sent[0].bytes, 4 * 8);
    EXPECT_TRUE(sent[1].bound);
    if (round.expected > 0) {
      EXPECT_GT(sent[1].expected, 0) << name;
    }
    EXPECT_LE(sent[1].priced_bytes(), sent[1].bytes) << name;
  }
  EXPECT_THAT(padded, ElementsAre("dgc"));
  // 1 % of 364544 elements: entries of eight bytes, a count and a size for each of two tensors.
  const doc::Plan plan = planned("bulk+threshold(exchange=gather)", w, 4);
  EXPECT_EQ(support::collectives_of(plan.variants.back())[1].expected,
            4 * (8 * (1024 + 2621) + 2 * (4 + 4)));
}

doc::CodecCost fast(const std::string& name) { return {name, 1e-6, 100e9, 1e-6, 100e9}; }

std::vector<bool> coded_buckets(const doc::Plan& plan) {
  const doc::TaskGraph& g = plan.variants.back();
  std::vector<bool> coded(g.buckets().size());
  for (const doc::Task& t : g.tasks)
    if (t.kind == TaskKind::encode) coded[to_index(t.first)] = true;
  return coded;
}

/// Dense: 1 ns a byte on two ranks. fp16 saves half of it, for a microsecond each way: worth it
/// from 4 KB on.
TEST(CompressionPlan, AutoCompressesABucketOnlyWhereThatIsShorter) {
  const doc::Workload w = matrices({1, 1024});
  const std::string each = "ddp(first=1B, bucket=1B)+";
  EXPECT_THAT(coded_buckets(planned(each + "fp16", w, 2)), ElementsAre(true, true));
  EXPECT_THAT(
      coded_buckets(planned(each + "auto(fp16)", w, 2, 0, {{"fp16", 1e-5, 1e30, 1e-5, 1e30}})),
      ElementsAre(false, true));
  EXPECT_THAT(coded_buckets(planned(each + "auto(fp16)", w, 2, 0, {{"fp16", 0, 1e8, 0, 1e8}})),
              ElementsAre(false, false));
}

/// Of several, the one with the shortest way; all that are calibrated where none is named.
TEST(CompressionPlan, AutoTakesTheBestOfItsCompressors) {
  const doc::Workload w = matrices({1024});
  const auto chosen = [&](const std::string& strategy, std::vector<doc::CodecCost> codecs) {
    const doc::Plan plan = planned(strategy, w, 2, 0, std::move(codecs));
    for (const doc::Task& t : plan.variants.back().tasks)
      if (t.kind == TaskKind::encode) return std::string(plan.operation_name(t));
    return std::string("none");
  };
  const std::vector<doc::CodecCost> both = {fast("fp16"), fast("topk")};
  EXPECT_EQ(chosen("ddp+auto", both), "topk");
  EXPECT_EQ(chosen("ddp+auto(fp16)", both), "fp16");
  EXPECT_EQ(chosen("ddp+auto(fp16, topk(density=0.9))", both), "fp16");
  EXPECT_EQ(chosen("ddp+auto(topk, density=0.01)", both), "topk");
  EXPECT_EQ(chosen("dear+auto", both), "fp16");  // what cannot be halved is no choice
}

std::string message_of(const std::string& strategy, const doc::Workload& w = matrices({64})) {
  return support::message_of([&] {
    return planned(strategy, w, 2, 0, {fast("fp16"), fast("topk"), fast("powersgd")});
  });
}

TEST(CompressionPlan, AutoSaysWhatItLacks) {
  EXPECT_THAT(message_of("ddp+auto(terngrad)"), HasSubstr("calibrate --codecs"));
  EXPECT_THAT(message_of("ddp+auto(nothing)"), HasSubstr("list compressors"));
  EXPECT_THAT(message_of("ddp+auto(topk, fp16, density=0.1)"), HasSubstr("belongs to one"));
  EXPECT_THAT(message_of("ddp+auto(density=0.1)"), HasSubstr("belongs to one"));
  EXPECT_THAT(message_of("ddp+auto(fp16, onebit-adam)"), HasSubstr("must be the only compressor"));
  EXPECT_THAT(message_of("ddp+auto(topk(density=2))"), HasSubstr("density"));
}

TEST(CompressionPlan, WhoSendsFactorsHasToKnowTheMatrices) {
  doc::Workload w = matrices({64, 32, 16});
  w.name = "job";
  EXPECT_EQ(message_of("ddp+powersgd(rank=4)", w), "no error");
  for (doc::Gradient& g : w.gradients) g.rows.reset();
  for (const char* strategy : {"ddp+powersgd(rank=4)", "bulk+acpsgd", "ddp+auto(powersgd)"})
    EXPECT_THAT(message_of(strategy, w), AllOf(HasSubstr("sgd"), HasSubstr("record_shapes=True"),
                                               HasSubstr("the Workload \"job\" does not say")))
        << strategy;
  for (const char* strategy : {"ddp", "ddp+topk", "ddp+fp16", "ddp+auto(topk)"})
    EXPECT_EQ(message_of(strategy, w), "no error") << strategy;
  // Vectors, as it says: PowerSGD sends them dense.
  for (doc::Gradient& g : w.gradients) g.rows = 1;
  EXPECT_EQ(message_of("ddp+powersgd(rank=4)", w), "no error");
}

TEST(CompressionPlan, SaysWhatItLeavesDenseForItsType) {
  doc::Workload w = matrices({64, 32, 16});
  const auto said = [&](const std::string& strategy) {
    return left_dense(doc::parse_strategy(strategy), w);
  };
  EXPECT_EQ(said("ddp+powersgd(rank=2)"), "");
  w.gradients[0].dtype = w.gradients[2].dtype = DType::bf16;
  // 80 rows of 1024 elements of 2 bytes.
  EXPECT_THAT(said("ddp+powersgd(rank=2)"),
              HasSubstr("powersgd: 2 of 3 gradients are bf16, and only f32 is compressed: " +
                        format_size(80 * 1024 * 2)));
  w.gradients[1].dtype = DType::f64;
  EXPECT_THAT(said("ddp+auto(fp16)"), HasSubstr("auto: 3 of 3 gradients are bf16 and f64"));
  EXPECT_EQ(said("ddp(wire=fp16)"), "");
  const cost::CostModel network(support::two_rank_cluster(0, 1e-9));
  const Planner planner(doc::parse_strategy("ddp+topk"), network.cluster());
  EXPECT_THAT(planner.caveats(w, network), testing::Contains(HasSubstr("only f32 is compressed")));
}

}  // namespace
}  // namespace linerate::plan
