// Steps of real NCCL jobs under PyTorch's communication hooks (../shared/gpu: ResNet-50 on two
// halves of an H100, 37.44 ms alone) against what is predicted of them where nobody calibrated a
// codec.
#include <gmock/gmock.h>

#include <filesystem>

#include "linerate/calibrate/from_logs.hpp"
#include "linerate/core/units.hpp"
#include "linerate/models/workload.hpp"
#include "linerate/whatif/answer.hpp"

namespace linerate::whatif {
namespace {

const std::filesystem::path kFolder = "../shared/gpu";

class MeasuredHooks : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kFolder)) GTEST_SKIP() << kFolder << " is absent";
    models::WorkloadSource source;
    source.reference = "zoo:resnet50";
    source.step_time = Seconds{37.44e-3};
    resnet50_ = models::load_workload(source);
  }

  static doc::Cluster measured_by(const std::vector<const char*>& tables) {
    std::vector<calibrate::LogFile> files;
    for (const char* table : tables) files.push_back({kFolder / table});
    std::vector<std::string> notes;
    return calibrate::calibrate_from_logs(files, {}, &notes);
  }

  double step_ms(const doc::Cluster& cluster, const char* strategy, double gbit = 0) const {
    Question question;
    question.strategies = {doc::parse_strategy(strategy)};
    if (gbit > 0) question.bandwidths = {BytesPerSecond{gbit * 1.25e8}};
    return 1e3 * ask(resnet50_, cluster, question).predictions.front().step_s->value;
  }

  doc::Workload resnet50_;
};

// 63.3, 84.7 and 128.4 ms: the casts are cheap, but no bucket travels under backward.
TEST_F(MeasuredHooks, Fp16LosesOnTheFastLinkAndWinsOnTheSlowOnes) {
  const doc::Cluster fast = measured_by({"table_un.csv"}), ten = measured_by({"table_10G.csv"}),
                     five = measured_by({"table_5G.csv"});
  EXPECT_NEAR(step_ms(fast, "ddp+fp16"), 63.31, 0.10 * 63.31);
  EXPECT_NEAR(step_ms(ten, "ddp+fp16"), 84.69, 0.05 * 84.69);
  EXPECT_NEAR(step_ms(five, "ddp+fp16"), 128.39, 0.05 * 128.39);
  EXPECT_GT(step_ms(fast, "ddp+fp16"), step_ms(fast, "ddp"));
  EXPECT_LT(step_ms(ten, "ddp+fp16"), step_ms(ten, "ddp"));
  EXPECT_LT(step_ms(five, "ddp+fp16"), step_ms(five, "ddp"));
}

TEST_F(MeasuredHooks, PowerSgdTakesItsCodingWhateverTheRate) {
  EXPECT_NEAR(step_ms(measured_by({"table_10G.csv"}), "ddp+powersgd(rank=4)"), 64.45, 0.15 * 64.45);
  EXPECT_NEAR(step_ms(measured_by({"table_5G.csv"}), "ddp+powersgd(rank=4)"), 74.33, 0.15 * 74.33);
}

// The probe sees goodput, the user names the line: at 10 and 5 Gbit/s 105.9 and 195.3 ms.
TEST_F(MeasuredHooks, AnUnshapedTableForeseesShapedLines) {
  const doc::Cluster unshaped = measured_by({"table_un.csv"});
  EXPECT_NEAR(step_ms(unshaped, "ddp(bucket_cap_mb=25)", 10), 105.94, 0.065 * 105.94);
  EXPECT_NEAR(step_ms(unshaped, "ddp(bucket_cap_mb=25)", 5), 195.25, 0.065 * 195.25);
  EXPECT_NEAR(step_ms(unshaped, "ddp(bucket_cap_mb=1000)", 10), 130.98, 0.065 * 130.98);
}

TEST_F(MeasuredHooks, AllTablesOfANetworkStandTogether) {
  const doc::Cluster all =
      measured_by({"table_10G.csv", "t_all_reduce_f16_10G_2.csv", "t_all_gather_f32_10G_2.csv",
                   "t_reduce_scatter_f32_10G_2.csv"});
  std::vector<std::pair<Collective, DType>> kinds;
  for (const doc::CollectiveCost& cost : all.collectives)
    kinds.emplace_back(cost.collective, cost.dtype);
  EXPECT_THAT(kinds,
              testing::UnorderedElementsAre(std::pair{Collective::all_reduce, DType::f32},
                                            std::pair{Collective::all_reduce, DType::f16},
                                            std::pair{Collective::all_gather, DType::f32},
                                            std::pair{Collective::reduce_scatter, DType::f32}));
  EXPECT_NEAR(step_ms(all, "ddp+fp16"), 84.69, 0.05 * 84.69);
}

}  // namespace
}  // namespace linerate::whatif
