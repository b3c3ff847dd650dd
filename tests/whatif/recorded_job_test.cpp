// Jobs on GPUs (../shared/gpu: ResNet-50 on two halves of an H100). Low-rank compression and K-FAC
// are predicted from recordings that ran plain DDP, and steps under PyTorch's communication hooks
// where nobody calibrated a codec.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>

#include "linerate/calibrate/from_logs.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/models/workload.hpp"
#include "linerate/trace/load.hpp"
#include "linerate/whatif/answer.hpp"
#include "support/message_of.hpp"

namespace linerate::whatif {
namespace {

using testing::HasSubstr;

const std::filesystem::path kFolder = "../shared/gpu";

class OnGpus : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kFolder)) GTEST_SKIP() << kFolder << " is absent";
    load();
  }
  virtual void load() = 0;

  static doc::Cluster calibrated(const std::vector<const char*>& tables) {
    std::vector<calibrate::LogFile> files;
    for (const char* table : tables) files.push_back({kFolder / table});
    return calibrate::calibrate_from_logs(files, {});
  }
  doc::Bounded step_s(const doc::Cluster& cluster, const std::string& strategy,
                      const std::vector<BytesPerSecond>& bandwidths = {}) const {
    const Question q{.strategies = {doc::parse_strategy(strategy)}, .bandwidths = bandwidths};
    return *ask(workload_, cluster, q).predictions.front().step_s;
  }
  double step_ms(const doc::Cluster& cluster, const std::string& strategy) const {
    return 1e3 * step_s(cluster, strategy).value;
  }
  /// What was measured is foreseen to this share.
  void expect_ms(const doc::Cluster& cluster, const char* strategy, double ms, double share,
                 const std::vector<BytesPerSecond>& bandwidths = {}) const {
    EXPECT_NEAR(1e3 * step_s(cluster, strategy, bandwidths).value, ms, share * ms) << strategy;
  }

  doc::Workload workload_;
};

class RecordedResNet50 : public OnGpus {
 protected:
  void load() override {
    std::vector<std::filesystem::path> files;
    for (const char* rank : {"0", "1"})
      files.push_back(kFolder / fmt::format("resnet50_un_r{}.json.gz", rank));
    workload_ = *trace::import_files(files).workload;
    at_10_ = calibrated({"table_10G.csv"});
    at_5_ = calibrated({"table_5G.csv"});
    unshaped_ = calibrated({"table_un.csv"});
  }

  /// If encoding takes so long for each byte of the gradients, and nothing is computed meanwhile,
  /// as under PyTorch's hooks.
  double powersgd_ms(doc::Cluster cluster, double s_per_byte) const {
    cluster.codecs = {{.name = "powersgd(rank=4)",
                       .encode_bytes_per_s = 1 / s_per_byte,
                       .on = doc::CodingPlace::alone}};
    return step_ms(cluster, "ddp+powersgd(rank=4)");
  }
  /// With which the step takes so long.
  double s_per_byte_of(const doc::Cluster& cluster, double ms) const {
    double low = 1e-12, high = 1e-8;
    while (high / low > 1.0001) {
      const double middle = std::sqrt(low * high);
      (powersgd_ms(cluster, middle) < ms ? low : high) = middle;
    }
    EXPECT_NEAR(powersgd_ms(cluster, high), ms, 0.1);
    return high;
  }

  doc::Cluster at_10_, at_5_, unshaped_;
};

// bench/nccl_steps prints these; the step alone is the eighth.
TEST_F(RecordedResNet50, DenseStepsAreForeseen) {
  struct Measured {
    const doc::Cluster& at;
    const char* strategy;
    double ms;
  };
  const Measured steps[] = {
      {unshaped_, "ddp(bucket_cap_mb=25)", 52.52}, {at_10_, "ddp(bucket_cap_mb=25)", 105.94},
      {at_5_, "ddp(bucket_cap_mb=25)", 195.25},    {at_10_, "ddp(bucket_cap_mb=1000)", 130.98},
      {at_5_, "ddp(bucket_cap_mb=1000)", 221.28},  {at_10_, "ddp(bucket_cap_mb=5)", 106.01},
      {at_5_, "ddp(bucket_cap_mb=5)", 199.29}};
  double errors = std::abs(1e3 * workload_.step_s.value() / 37.44 - 1);
  int inside = 0;
  for (const Measured& m : steps) {
    const doc::Bounded step = step_s(m.at, m.strategy);
    const double error = std::abs(1e3 * step.value / m.ms - 1);
    EXPECT_LE(error, 0.065) << m.strategy << " " << m.ms;
    errors += error;
    inside += *step.low <= 1e-3 * m.ms && 1e-3 * m.ms <= *step.high;
  }
  EXPECT_LE(errors / 8, 0.03);
  EXPECT_GE(inside, 6);
}

// The recordings hold 17 all-reduces of four buckets that follow each other: per step 89.2 ms at 10
// Gbit/s and 38.2 ms unshaped.
TEST_F(RecordedResNet50, BucketsMoveAsTheTableSays) {
  const auto chain_ms = [](const doc::Cluster& cluster, std::initializer_list<std::int64_t> sizes) {
    const cost::CostModel model(cluster);
    double ms = 0;
    for (const std::int64_t bytes : sizes)
      ms += 1e3 * model.collective(Collective::all_reduce, bytes, 2).seconds;
    return ms;
  };
  const auto recorded = {30257056L, 26255360L, 28366848L, 17348864L};
  EXPECT_NEAR(chain_ms(at_10_, recorded), 89.2, 0.01 * 89.2);
  EXPECT_NEAR(chain_ms(unshaped_, recorded), 38.2, 0.04 * 38.2);
}

// Its line is what `tbf` was told.
TEST_F(RecordedResNet50, TheLineFollowsFromTheTable) {
  EXPECT_NEAR(at_10_.network.line_rate_bytes_per_s, 1.25e9, 0.01 * 1.25e9);
  EXPECT_NEAR(at_5_.network.line_rate_bytes_per_s, 0.625e9, 0.01 * 0.625e9);
}

// PyTorch's powerSGD_hook of rank 4, measured without a profiler at 10 and 5 Gbit/s. Its factors
// are 1.5 MB instead of 102 MB, so nearly all that it takes is its own: 2,600 small kernels a step
// that the host launches.
constexpr double kAt10 = 64.45, kAt5 = 74.33;

TEST_F(RecordedResNet50, OneRateTellsWhatPowerSgdTakesAtAnother) {
  const double by_10 = s_per_byte_of(at_10_, kAt10), by_5 = s_per_byte_of(at_5_, kAt5);
  EXPECT_NEAR(powersgd_ms(at_5_, by_10) / kAt5, 1, 0.15);
  EXPECT_NEAR(powersgd_ms(at_10_, by_5) / kAt10, 1, 0.15);
  // In the recordings of that job (resnet50_psgd_10G) the hook's kernels keep the device for 7 ms a
  // step; its calls keep the host for 77 ms and more, which the profiler draws out.
  for (const double cost : {by_10, by_5}) {
    EXPECT_GT(cost * 102e6, 7e-3);
    EXPECT_LT(cost * 102e6, 77e-3);
  }
}

TEST_F(RecordedResNet50, PowerSgdAtTheCostsThatAreKnownOfGpus) {
  workload_.step_s = 37.44e-3;  // measured alone
  expect_ms(at_10_, "ddp+powersgd(rank=4)", kAt10, 0.15);
  expect_ms(at_5_, "ddp+powersgd(rank=4)", kAt5, 0.15);
}

TEST_F(RecordedResNet50, FactorsAreNoDenseExchange) {
  at_10_.codecs = {{"powersgd", 0, 1e15, 0, 1e15}, {"acpsgd", 0, 1e15, 0, 1e15}};
  const double dense = step_ms(at_10_, "ddp");
  doc::Cluster fast = at_10_;
  for (const char* strategy : {"powersgd(rank=4)", "acpsgd(rank=4)"}) {
    fast.codecs = {{.name = strategy, .encode_bytes_per_s = 1e12}};
    EXPECT_LT(step_ms(fast, fmt::format("ddp+{}", strategy)), 0.5 * dense) << strategy;
  }
  // Factors of 77 million elements are summed in each step.
  EXPECT_GT(step_ms(at_10_, "ddp+kfac(spd, factors=1, inverses=1)"), 2 * dense);
}

TEST_F(RecordedResNet50, WithoutShapesTheyAreRefused) {
  for (doc::Gradient& g : workload_.gradients) g.rows.reset();
  workload_.blocks.clear();
  for (const char* strategy : {"ddp+powersgd(rank=4)", "dear+acpsgd", "ddp+kfac(spd)"})
    EXPECT_THAT(support::message_of([&] { return step_ms(at_10_, strategy); }),
                HasSubstr("record_shapes=True"))
        << strategy;
}

/// 37.44 ms alone.
class MeasuredHooks : public OnGpus {
 protected:
  void load() override {
    workload_ =
        models::load_workload({.reference = "zoo:resnet50", .step_time = Seconds{37.44e-3}});
  }
};

// 63.3, 84.7 and 128.4 ms: the casts are cheap, but no bucket travels under backward.
TEST_F(MeasuredHooks, Fp16LosesOnTheFastLinkAndWinsOnTheSlowOnes) {
  const doc::Cluster fast = calibrated({"table_un.csv"}), ten = calibrated({"table_10G.csv"}),
                     five = calibrated({"table_5G.csv"});
  expect_ms(fast, "ddp+fp16", 63.31, 0.10);
  expect_ms(ten, "ddp+fp16", 84.69, 0.05);
  expect_ms(five, "ddp+fp16", 128.39, 0.05);
  EXPECT_GT(step_ms(fast, "ddp+fp16"), step_ms(fast, "ddp"));
  EXPECT_LT(step_ms(ten, "ddp+fp16"), step_ms(ten, "ddp"));
  EXPECT_LT(step_ms(five, "ddp+fp16"), step_ms(five, "ddp"));
  // PowerSGD takes its coding whatever the rate.
  expect_ms(ten, "ddp+powersgd(rank=4)", kAt10, 0.15);
  expect_ms(five, "ddp+powersgd(rank=4)", kAt5, 0.15);
}

// The probe sees goodput, the user names the line: at 10 and 5 Gbit/s 105.9 and 195.3 ms.
TEST_F(MeasuredHooks, AnUnshapedTableForeseesShapedLines) {
  const doc::Cluster unshaped = calibrated({"table_un.csv"});
  const std::vector<BytesPerSecond> at_10 = {BytesPerSecond{1.25e9}};
  expect_ms(unshaped, "ddp(bucket_cap_mb=25)", 105.94, 0.065, at_10);
  expect_ms(unshaped, "ddp(bucket_cap_mb=25)", 195.25, 0.065, {BytesPerSecond{0.625e9}});
  expect_ms(unshaped, "ddp(bucket_cap_mb=1000)", 130.98, 0.065, at_10);
}

TEST_F(MeasuredHooks, AllTablesOfANetworkStandTogether) {
  const doc::Cluster all =
      calibrated({"table_10G.csv", "t_all_reduce_f16_10G_2.csv", "t_all_gather_f32_10G_2.csv",
                  "t_reduce_scatter_f32_10G_2.csv"});
  std::vector<std::string> kinds;
  for (const doc::CollectiveCost& cost : all.collectives)
    kinds.push_back(fmt::format("{} {}", name_of(cost.collective), name_of(cost.dtype)));
  EXPECT_THAT(kinds, testing::UnorderedElementsAre("all-reduce f32", "all-reduce f16",
                                                   "all-gather f32", "reduce-scatter f32"));
  expect_ms(all, "ddp+fp16", 84.69, 0.05);
}

// What a job sends besides gradients (SyncBatchNorm, ZeRO) is in its step as recorded: without it
// the interval misses, or the prediction is further off.
TEST(RecordedOtherCollectives, AreInThePrediction) {
  const std::filesystem::path wild = "../shared/wild";
  if (!std::filesystem::exists(wild)) GTEST_SKIP() << wild << " is absent";
  struct Recording {
    const char* files;
    double step_ms;    // explain's median step
    std::size_t held;  // collectives a step
    double most_off;   // of the step
  };
  for (const Recording& r :
       {Recording{"made/I_other_collectives/syncbn.rank{}.json", 13.1, 16, 0.1},
        Recording{"made/I_other_collectives/zero1gpu.rank{}.json", 12.6, 1, 0.02},
        Recording{"recorded/syncfwd.rank{}.json.gz", 48.4, 8, 0.25},
        Recording{"recorded/zero1.rank{}.json.gz", 65.7, 10, 0.25}}) {
    std::vector<std::filesystem::path> files;
    std::vector<calibrate::LogFile> logs;
    for (const int rank : {0, 1}) {
      files.push_back(wild / fmt::format(fmt::runtime(r.files), rank));
      logs.push_back({files.back()});
    }
    doc::Workload w = *trace::import_files(files).workload;
    EXPECT_EQ(w.other_collectives.size(), r.held) << r.files;
    const doc::Cluster cluster = calibrate::calibrate_from_logs(logs, {});
    const doc::Bounded with = *ask(w, cluster, {}).predictions.front().step_s;
    EXPECT_NEAR(1e3 * with.value / r.step_ms, 1, r.most_off) << r.files;
    EXPECT_LE(1e3 * *with.low, r.step_ms) << r.files;
    EXPECT_GE(1e3 * *with.high, r.step_ms) << r.files;
    w.other_collectives.clear();
    const doc::Bounded without = *ask(w, cluster, {}).predictions.front().step_s;
    EXPECT_LT(std::abs(1e3 * with.value - r.step_ms), std::abs(1e3 * without.value - r.step_ms))
        << r.files;
  }
}

}  // namespace
}  // namespace linerate::whatif
