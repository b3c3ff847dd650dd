// What coding costs if the Cluster does not say: codec_costs.json.
#include "linerate/plan/codec_costs.hpp"

#include <gmock/gmock.h>

#include "linerate/compress/registry.hpp"
#include "linerate/plan/registry.hpp"

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
    EXPECT_GT(cost.encode_s(1), 0) << cost.name;
    if (cost.name == "any") continue;
    EXPECT_NO_THROW(static_cast<void>(compress::make_compressor(component(cost.name.c_str()))));
  }
}

TEST(CodecCosts, NoCompressorIsFreeNorCastEither) {
  for (const std::string& name : compress::compressors().names())
    EXPECT_GT(known(name.c_str())->cost.encode_s(1'000'000), 0) << name;
}

TEST(CodecCosts, TheClustersOwnComesFirst) {
  doc::Cluster cluster;
  cluster.codecs = {{"powersgd", 0, 1e9, 0, 1e9}};
  const auto price = price_of(component("powersgd(rank=4)"), with_known_codecs(cluster).codecs);
  EXPECT_EQ(price->cost.name, "powersgd");
  EXPECT_THAT(about(*price, "powersgd(rank=4)"), IsEmpty());
}

TEST(CodecCosts, TheNearestSettingStandsForOthersAndSaysSo) {
  EXPECT_EQ(known("powersgd(rank=10)")->cost.name, "powersgd(rank=8)");
  EXPECT_EQ(known("topk(density=0.01)")->cost.name, "topk(density=0.005)");
  EXPECT_THAT(about(*known("powersgd(rank=10)"), "powersgd(rank=10)"),
              HasSubstr("counts as that of powersgd(rank=8) (published: 64 ms"));
}

TEST(CodecCosts, WhatNobodyMeasuredCostsAtLeastACast) {
  const auto price = known("terngrad");
  EXPECT_EQ(price->cost.encode_bytes_per_s, known("fp16")->cost.encode_bytes_per_s);
  EXPECT_THAT(about(*price, "terngrad"), HasSubstr("what any compressor costs at least"));
}

TEST(CodecCosts, AcpSgdCostsHalfOfPowerSgdOfTheSameRank) {
  for (const char* options : {"", "(rank=4)", "(rank=8)", "(rank=16)"}) {
    const auto both = known(("powersgd" + std::string(options)).c_str());
    const auto one = known(("acpsgd" + std::string(options)).c_str());
    EXPECT_DOUBLE_EQ(2 * one->cost.encode_s(100'000'000), both->cost.encode_s(100'000'000));
    EXPECT_FALSE(is_bound_from_below(one->cost));
    EXPECT_THAT(about(*one, "acpsgd"), HasSubstr("one factor a step instead of two"));
  }
}

// Whatever the registry holds has a row, stands by one of its kind, or is a bound that says so.
TEST(CodecCosts, ABoundSaysThatItIsOne) {
  for (const std::string& name : compress::compressors().names()) {
    const auto price = known(name.c_str());
    EXPECT_EQ(is_bound_from_below(price->cost),
              about(*price, name).find("a bound from below") != std::string::npos)
        << name;
  }
  EXPECT_TRUE(is_bound_from_below(known("terngrad")->cost));
  EXPECT_FALSE(is_bound_from_below(known("powersgd")->cost));
}

TEST(CodecCosts, OfACalibratedPowerSgdHalfCountsAndTheNoteSaysSo) {
  doc::Cluster cluster;
  cluster.codecs = {{"powersgd(rank=4)", 0, 1e9, 0, 2e9}};
  const auto price = price_of(component("acpsgd(rank=4)"), with_known_codecs(cluster).codecs);
  EXPECT_DOUBLE_EQ(price->cost.encode_s(1'000'000), 0.5e-3);
  EXPECT_THAT(about(*price, "acpsgd(rank=4)"), HasSubstr("that: this Cluster's own"));
  cluster.codecs.push_back({"acpsgd", 0, 5e8, 0, 0});
  EXPECT_EQ(price_of(component("acpsgd(rank=4)"), cluster.codecs)->cost.encode_bytes_per_s, 5e8);
}

TEST(CodecCosts, MeasuredOnesCountUnlessThePapersAreAskedFor) {
  EXPECT_THAT(known("powersgd(rank=4)")->cost.source, HasSubstr("measured"));
  const doc::Cluster papers = with_known_codecs({}, Prefer::published);
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
  EXPECT_EQ(back.encode_s(1000), cluster.codecs.front().encode_s(1000));
}

}  // namespace
}  // namespace linerate::plan
