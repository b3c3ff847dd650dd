#include "linerate/calibrate/codec_probe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "linerate/core/error.hpp"
#include "linerate/core/file.hpp"
#include "support/message_of.hpp"

namespace linerate::calibrate {
namespace {

using testing::HasSubstr;

const CodecProbeOptions kQuick{.elements = {1 << 12, 1 << 14}, .budget_per_size = Duration{1e-3}};

/// Every compressor has a cost that grows with tensors and bytes, under the name that strategies
/// use.
TEST(CodecProbe, TimesEveryCompressor) {
  for (const doc::Component& component : all_compressors()) {
    const doc::CodecCost cost = probe_codec(component, kQuick);
    EXPECT_EQ(cost.name, component.name);
    EXPECT_GE(cost.encode_tensor_s, 0) << cost.name;
    EXPECT_GE(cost.decode_tensor_s, 0) << cost.name;
    EXPECT_GT(cost.encode_tensor_s + cost.encode_bytes_per_s, 0) << cost.name;
    EXPECT_GT(cost.decode_tensor_s + cost.decode_bytes_per_s, 0) << cost.name;
  }
  // With its options.
  EXPECT_EQ(probe_codec(parse_compressor("topk(density=0.1)"), kQuick).name, "topk(density=0.1)");
}

TEST(CodecProbe, ReplacesWhatTheClusterHadAndRefusesWhatIsNoCompressor) {
  doc::Cluster cluster;
  cluster.codecs = {{"fp16", 7, 0, 7, 0}, {"other", 1, 0, 1, 0}};
  add_codecs(cluster, {parse_compressor("fp16")});
  ASSERT_EQ(cluster.codecs.size(), 2u);
  EXPECT_EQ(cluster.codecs[0].name, "other");
  EXPECT_EQ(cluster.codecs[1].encode_fixed_s, 0);
  EXPECT_THROW(parse_compressor("topkk"), UsageError);
  EXPECT_THROW(parse_compressor("topk(density=2)"), UsageError);
}

// ---- what K-FAC costs, from samples with a known answer and from tables ----

/// 4 us a call, 1 ns an input, 2 ns an element, 50 GFLOP/s.
doc::SecondOrderWork factor_of(std::int64_t rows, std::int64_t d) {
  doc::SecondOrderWork work =
      doc::factor_work({.a = d, .g = d, .rows_a = rows}, doc::FactorSide::a);
  work.seconds = 4e-6 + work.flops / 50e9 + work.inputs * 1e-9 + work.elements * 2e-9;
  return work;
}

TEST(SecondOrderFit, FindsTheRatesOfWorkThatHasThem) {
  doc::SecondOrderSamples samples;
  for (const std::int64_t rows : {16, 500, 9000})
    for (const std::int64_t d : {8, 90, 700}) samples.factors.push_back(factor_of(rows, d));
  for (const double flops : {1e3, 1e6, 1e9})
    samples.directions.push_back({.flops = flops, .seconds = 3e-6 + flops / 20e9});
  const doc::SecondOrderCost cost = fit_second_order(samples);
  EXPECT_NEAR(cost.factor_fixed_s, 4e-6, 1e-9);
  EXPECT_NEAR(cost.factor_flops_per_s, 50e9, 1e7);
  EXPECT_NEAR(cost.factor_s_per_input, 1e-9, 1e-12);
  EXPECT_NEAR(cost.factor_s_per_element, 2e-9, 1e-12);
  EXPECT_NEAR(cost.precondition_fixed_s, 3e-6, 1e-9);
  EXPECT_NEAR(cost.precondition_flops_per_s, 20e9, 1e6);
}

// Overhead of 5 us falls as work grows from 1 to 2 us: no rate may be below 0 for that.
TEST(SecondOrderFit, NeverPaysForWork) {
  doc::SecondOrderSamples samples;
  samples.factors = {{.flops = 1e6, .seconds = 2e-6}, {.flops = 1e3, .seconds = 5e-6}};
  const doc::SecondOrderCost cost = fit_second_order(samples);
  EXPECT_GE(cost.factor_fixed_s, 0);
  EXPECT_EQ(cost.factor_flops_per_s, 0);  // free
}

class SecondOrderTable : public testing::Test {
 protected:
  doc::SecondOrderCost cost_of(const std::string& text) {
    write_file_atomically(path_, text);
    return fit_second_order(read_second_order_table(path_, &notes_));
  }
  std::string refusal_of(const std::string& text) {
    return support::message_of<InputError>([&] { return cost_of(text); });
  }

  const std::filesystem::path path_ = std::filesystem::path(testing::TempDir()) / "inverses.csv";
  std::vector<std::string> notes_;
};

TEST_F(SecondOrderTable, GivesInversesByDimensionAndTheMedianOfRepetitions) {
  const doc::SecondOrderCost cost = cost_of(
      "# f32\nchol,64,0.0002\ninv,64,0.00025\ninv,128,0.0003\n\nINV, 128 "
      ",0.0005\r\ninv,128,0.0004");
  ASSERT_EQ(cost.inverses.size(), 2u);
  EXPECT_EQ(cost.inverse_s(64), 0.00025);
  EXPECT_EQ(cost.inverse_s(128), 0.0004);
  EXPECT_EQ(cost.factor_flops_per_s, 0);
  EXPECT_THAT(notes_,
              testing::ElementsAre(HasSubstr("factors and directions count as taking no time")));
}

// 2 x 100^3 flops in 1 ms.
TEST_F(SecondOrderTable, PricesFactorsAndDirectionsByProducts) {
  const doc::SecondOrderCost cost = cost_of("inv,64,0.00025\nmm,100,0.001\nmm,1000,1\n");
  EXPECT_NEAR(cost.factor_flops_per_s, 2e9, 1e3);
  EXPECT_NEAR(cost.precondition_flops_per_s, 2e9, 1e3);
  EXPECT_NEAR(cost.factor_fixed_s, 0, 1e-9);
  EXPECT_TRUE(notes_.empty());
}

TEST_F(SecondOrderTable, RefusesWhatItIsNotWithFileLineExpectedAndFound) {
  for (const char* line : {"what,dim,seconds", "inv,64", "inv,abc,0.1", "inv,0,0.1", "inv,64,0",
                           "inv,64,-1", "inv,64,nan", "eig,64,0.1", "inv,64,0.1,2", "64,0.1"}) {
    const std::string text = refusal_of(std::string("chol,64,0.1\n") + line + "\n");
    EXPECT_THAT(text, HasSubstr(path_.string() + ":2: expected inv,DIM,SECONDS")) << line;
    EXPECT_THAT(text, HasSubstr("found \"" + std::string(line) + "\""));
  }
  EXPECT_THAT(refusal_of("chol,64,0.1\n"), HasSubstr("expected lines inv,DIM,SECONDS, found none"));
  EXPECT_THROW(read_second_order_table("absent.csv"), InputError);
}

}  // namespace
}  // namespace linerate::calibrate
