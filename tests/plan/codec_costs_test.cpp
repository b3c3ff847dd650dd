// What coding costs if the Cluster does not say: codec_costs.json.
#include "linerate/plan/codec.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "linerate/compress/registry.hpp"
#include "linerate/core/file.hpp"
#include "linerate/plan/exchange.hpp"

namespace linerate::plan {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

doc::Component component(const char* text) { return doc::parse_component(text); }

std::optional<CodecPrice> known(const char* text) {
  return price_of(component(text), with_known_codecs({}).codecs);
}

TEST(CodecCosts, EveryRowHasASourceAndIsOfACompressorThatIsThere) {
  ASSERT_FALSE(known_codec_costs().empty());
  for (const doc::CodecCost& cost : known_codec_costs()) {
    EXPECT_FALSE(cost.source.empty()) << cost.name;
    EXPECT_EQ(cost.published, cost.source.starts_with("published")) << cost.name;
    EXPECT_GT(cost.encode_s({1}), 0) << cost.name;
    EXPECT_GE(cost.spread, 2) << cost.name;  // it is from elsewhere
    if (cost.name == "any") continue;
    EXPECT_NO_THROW(static_cast<void>(compress::make_compressor(component(cost.name.c_str()))));
  }
}

TEST(CodecCosts, NoCompressorIsFree) {
  for (const std::string& name : compress::compressors().names())
    EXPECT_GT(known(name.c_str())->cost.encode_s({1'000'000}), 0) << name;
}

TEST(CodecCosts, TheClustersOwnComesFirst) {
  doc::Cluster cluster;
  cluster.codecs = {{"powersgd", 0, 1e9, 0, 1e9}};
  const auto price = price_of(component("powersgd(rank=4)"), with_known_codecs(cluster).codecs);
  EXPECT_EQ(price->cost.name, "powersgd");
  EXPECT_THAT(about(*price, "powersgd(rank=4)"), IsEmpty());
}

TEST(CodecCosts, TheNearestSettingStandsForOthersAndSaysSo) {
  EXPECT_EQ(known("topk(density=0.01)")->cost.name, "topk(density=0.005)");
  EXPECT_THAT(about(*known("topk(density=0.01)"), "topk(density=0.01)"),
              HasSubstr("counts as that of topk(density=0.005) (published: 240 ms"));
}

TEST(CodecCosts, OfUnmeasuredCodecsComeFromTheirLaunches) {
  const auto price = known("terngrad");
  EXPECT_GT(price->cost.encode_fixed_s, 10 * known("fp16")->cost.encode_fixed_s);
  EXPECT_EQ(price->cost.on, doc::CodingPlace::compute);
  EXPECT_GE(price->cost.spread, 4);
  EXPECT_THAT(about(*price, "terngrad"), HasSubstr("not run on a GPU: linerate's codec"));
}

/// Of the six parameters of launches.txt: what a row has more than ddp's is its codec's. A
/// compressor may have no row, and then counts as what any one costs at least.
TEST(CodecCosts, LineratesCodecsLaunchWhatIsCounted) {
  const std::string page = read_file(LAUNCHES_PAGE);
  const auto launches_of = [&](const std::string& row) {
    const std::size_t found = page.find("| `" + row + "` | ");
    return found == std::string::npos ? 0 : std::atoi(page.c_str() + found + row.size() + 7);
  };
  const std::string exchange = "ddp(first=64B, bucket=2KiB)+";
  const int dense = launches_of("ddp(first=64B, bucket=512B)");
  ASSERT_GT(dense, 0);
  constexpr compress::Shape kShapes[] = {{216, 8}, {8, 1}, {8, 1}, {1024, 32}, {160, 5}, {5, 1}};
  constexpr double kBuckets = 3, kApart = 0.25;
  constexpr double kLaunch = 5e-6;
  std::vector<std::string> stated;
  for (const doc::CodecCost& cost : own_codec_costs()) {
    stated.push_back(cost.name);
    int counted = 0;
    for (const char* options :
         {"(exchange=gather)", "", "(density=0.1, exchange=gather)", "(density=0.1)", "(rank=1)"})
      if (counted == 0) counted = launches_of(exchange + cost.name + options);
    ASSERT_GT(counted, dense) << cost.name << " has no row";
    const bool has_rank = cost.name == "powersgd" || cost.name == "acpsgd";
    const auto compressor = compress::make_compressor({cost.name, {}});
    double tensors = 0;
    for (const compress::Shape& shape : kShapes)
      tensors += has_rank ? shape.rows > 1 : !compressor->rounds(shape).empty();
    const double says = (kBuckets * cost.encode_fixed_s + tensors * cost.encode_tensor_s) / kLaunch;
    EXPECT_NEAR(says, counted - dense, kApart * (counted - dense))
        << cost.name << ": state (" << counted << " - " << dense << ") launches over " << kBuckets
        << " buckets and " << tensors << " tensors in codec_costs.json";
  }
  EXPECT_THAT(stated, testing::IsSubsetOf(compress::compressors().names()));
  EXPECT_GE(stated.size(), 18u);
}

TEST(CodecCosts, LineratesOwnCountFirstIfTheyAreAskedFor) {
  const doc::Cluster own = with_known_codecs({}, doc::CodecsOf::linerate);
  for (const doc::CodecCost& cost : own_codec_costs())
    EXPECT_EQ(price_of(component(cost.name.c_str()), own.codecs)->cost.on,
              doc::CodingPlace::compute)
        << cost.name;
}

TEST(CodecCosts, AcpSgdCostsHalfOfPowerSgdOfTheSameRank) {
  for (const char* options : {"", "(rank=4)", "(rank=8)", "(rank=16)"}) {
    const auto both = known(("powersgd" + std::string(options)).c_str());
    const auto one = known(("acpsgd" + std::string(options)).c_str());
    EXPECT_DOUBLE_EQ(2 * one->cost.encode_s({100'000'000}), both->cost.encode_s({100'000'000}));
    EXPECT_FALSE(is_bound_from_below(one->cost));
    EXPECT_THAT(about(*one, "acpsgd"), HasSubstr("one factor a step instead of two"));
  }
}

// A program's own compressor has no row.
TEST(CodecCosts, ABoundSaysThatItIsOne) {
  const auto price = known("mine");
  EXPECT_TRUE(is_bound_from_below(price->cost));
  EXPECT_THAT(about(*price, "mine"), HasSubstr("what any compressor costs at least"));
  for (const doc::CodecCost& cost : own_codec_costs())
    EXPECT_FALSE(is_bound_from_below(known(cost.name.c_str())->cost)) << cost.name;
}

TEST(CodecCosts, OfAcpSgdAreHalfOfACalibratedPowerSgd) {
  doc::Cluster cluster;
  cluster.codecs = {{"powersgd(rank=4)", 0, 1e9, 0, 2e9}};
  const auto price = price_of(component("acpsgd(rank=4)"), with_known_codecs(cluster).codecs);
  EXPECT_DOUBLE_EQ(price->cost.encode_s({1'000'000}), 0.5e-3);
  EXPECT_THAT(about(*price, "acpsgd(rank=4)"), HasSubstr("that: this Cluster's own"));
  cluster.codecs.push_back({"acpsgd", 0, 5e8, 0, 0});
  EXPECT_EQ(price_of(component("acpsgd(rank=4)"), cluster.codecs)->cost.encode_bytes_per_s, 5e8);
}

/// So many matrices of ResNet-50 (54 of its 161 gradients), 20 of which as large.
constexpr doc::CodedTensors kResNet50{102'011'648, 54, 0}, kFewer{102'011'648, 20, 0};

/// Measured: 32.4 ms under the hook, published: 45, 64 and 130 ms on a V100.
TEST(CodecCosts, OfResNet50AreThoseThatWereMeasuredOfIt) {
  EXPECT_NEAR(known("powersgd(rank=4)")->cost.encode_s(kResNet50), 32.4e-3, 0.2e-3);
  const doc::Cluster papers = with_known_codecs({}, doc::CodecsOf::papers);
  for (const auto& [rank, ms] : {std::pair{4, 45.0}, {8, 64.0}}) {
    const auto price =
        price_of(component(fmt::format("powersgd(rank={})", rank).c_str()), papers.codecs);
    EXPECT_NEAR(price->cost.encode_s(kResNet50), 1e-3 * ms, 0.02e-3) << rank;
  }
}

/// Of as many bytes in fewer tensors a factorisation costs less, of other bytes in as many tensors
/// little more; a cast goes by bytes.
TEST(CodecCosts, GoByTensorsWhereTheseCostMoreThanBytes) {
  const auto cost_of = [](const char* text, const doc::CodedTensors& what) {
    return known(text)->cost.encode_s(what);
  };
  for (const char* text : {"powersgd(rank=4)", "acpsgd(rank=4)"}) {
    EXPECT_LT(cost_of(text, kFewer), 0.5 * cost_of(text, kResNet50));
    EXPECT_LT(cost_of(text, {2 * kFewer.bytes, kFewer.tensors}), 1.1 * cost_of(text, kFewer));
  }
  EXPECT_EQ(cost_of("fp16", kFewer), cost_of("fp16", kResNet50));
  EXPECT_GT(known("powersgd(rank=4)")->cost.encode_s({1, 1, 1e12}),
            known("powersgd(rank=4)")->cost.encode_s({1, 1, 0}) + 1e-3);
}

TEST(CodecCosts, MeasuredOnesCountUnlessThePapersAreAskedFor) {
  EXPECT_THAT(known("powersgd(rank=4)")->cost.source, HasSubstr("measured"));
  const doc::Cluster papers = with_known_codecs({}, doc::CodecsOf::papers);
  EXPECT_THAT(price_of(component("powersgd(rank=4)"), papers.codecs)->cost.source,
              HasSubstr("45 ms"));
}

// Costs of GPUs say nothing about codecs that share the cores of a CPU with the computation.
TEST(CodecCosts, RanksOnCpuCoresGetNone) {
  doc::Cluster cluster;
  cluster.cores = 8;
  EXPECT_THAT(with_known_codecs(cluster).codecs, IsEmpty());
}

TEST(CodecCosts, ARowOfTheFileReadsBackFromACluster) {
  doc::Cluster cluster;
  cluster.network = {1e9, 1e-6};
  cluster.codecs = {known_codec_costs().front()};
  const doc::CodecCost back = doc::cluster_from_json(doc::to_json(cluster), "test").codecs.front();
  EXPECT_EQ(back.on, doc::CodingPlace::alone);
  EXPECT_EQ(back.source, cluster.codecs.front().source);
  EXPECT_EQ(back.encode_s({1000, 2}), cluster.codecs.front().encode_s({1000, 2}));
  EXPECT_EQ(back.spread, cluster.codecs.front().spread);
}

}  // namespace
}  // namespace linerate::plan
