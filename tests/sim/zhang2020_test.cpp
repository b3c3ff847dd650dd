// Zhang et al. 2020 on ResNet-50: a schedule worked by hand and the golden table.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "linerate/cost/estimate.hpp"
#include "linerate/plan/planner.hpp"
#include "linerate/sim/simulate.hpp"
#include "linerate/sim/simulator.hpp"
#include "linerate/trace/per_gradient/per_gradient.hpp"

namespace linerate::sim {
namespace {

const std::filesystem::path kShared = "../shared";
constexpr double kStep = 0.12808580219559176;

class Zhang2020 : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto folder = kShared / "data/per_gradient";
    if (!std::filesystem::exists(folder / "resnet50.bk.log"))
      GTEST_SKIP() << folder << " is absent";
    trace::InputFile log = trace::InputFile::open((folder / "resnet50.bk.log").string());
    workload_ = trace::read_per_gradient_log(
        log, {folder / "cuda_vec_add.log", kStep, trace::StepTimeCovers::step});
  }

  cost::CostModel model(double bits_per_s, double ratio = 1) const {
    doc::Cluster c;
    c.network.bandwidth_bytes_per_s = bits_per_s / 8;
    cost::CostOptions options;
    options.compression_ratio = ratio;
    options.add_table = std::make_shared<const cost::AddTable>(workload_.add_cost);
    return cost::CostModel(c, options);
  }
  doc::Plan plan(const cost::CostModel& m, int ranks) const {
    return plan::make_plan(workload_, m.cluster(), doc::parse_strategy("horovod"), ranks,
                           {.cost = m, .first_step = false});
  }

  doc::Workload workload_;
};

TEST_F(Zhang2020, FusesIntoTheTwelveBuckets) {
  const cost::CostModel m = model(25e9);
  std::vector<std::int64_t> bytes;
  const doc::Plan fused = plan(m, 16);
  for (const doc::Payload& b : fused.variants.back().buckets()) bytes.push_back(4 * b.elements);
  EXPECT_THAT(bytes, ::testing::ElementsAre(43896736, 24158208, 9994240, 11298816, 6574080, 1912832,
                                            1976320, 1383424, 347648, 281600, 201216, 203008));
}

TEST_F(Zhang2020, WorkedScheduleOfSixteenRanksAt25Gbit) {
  // Ends of the twelve all-reduces in ms since the start of backward, to 4 decimals.
  const std::vector<double> finish_ms = {32.1044, 46.7769, 52.9277, 59.8617, 63.9609, 65.2502,
                                         66.5773, 67.5503, 67.9015, 68.2110, 68.4723, 68.7347};
  const cost::CostModel m = model(25e9);
  const doc::Plan p = plan(m, 16);
  Prices prices(m, 16);
  TaskTimes times;
  Unrolled step;
  lay_out_steps(p, first_of_cycle(p), 1, step);
  run_steps(step, prices, times);
  const double forward = times.end[0];
  std::size_t bucket = 0;
  for (std::uint32_t i = 0; i < p.variants.back().tasks.size(); ++i) {
    if (p.variants.back().tasks[i].kind != doc::TaskKind::all_reduce) continue;
    EXPECT_NEAR((times.end[i] - forward) * 1e3, finish_ms.at(bucket++), 1e-4);
  }
  EXPECT_EQ(bucket, finish_ms.size());
  EXPECT_NEAR((simulate(p, m).step_s - kStep) * 1e3, 3.9281, 1e-4);
}

TEST_F(Zhang2020, SecondCheckOfSixtyFourRanksAt10Gbit) {
  const cost::CostModel m = model(10e9);
  EXPECT_NEAR((simulate(plan(m, 64), m).step_s - kStep) * 1e3, 109.2203, 1e-4);
}

TEST_F(Zhang2020, EveryCellOfTheGoldenTable) {
  std::ifstream table(kShared / "checks/golden_resnet50.csv");
  if (!table) GTEST_SKIP() << "the golden table is absent";
  std::string line;
  std::getline(table, line);
  int cells = 0;
  while (std::getline(table, line)) {
    int ranks = 0;
    double bandwidth = 0, ratio = 0, expected = 0;
    ASSERT_EQ(std::sscanf(line.c_str(), "%d,%lf,%lf,%lf", &ranks, &bandwidth, &ratio, &expected),
              4);
    const cost::CostModel m = model(bandwidth, ratio);
    EXPECT_NEAR(kStep / simulate(plan(m, ranks), m).step_s, expected, 1e-4) << line;
    ++cells;
  }
  EXPECT_EQ(cells, 75);
}

TEST_F(Zhang2020, ScalingDependsOnBandwidthTimesRatioOnly) {
  for (const int ranks : {16, 32, 64}) {
    const cost::CostModel a = model(1e9, 10), b = model(10e9, 1);
    EXPECT_DOUBLE_EQ(simulate(plan(a, ranks), a).step_s, simulate(plan(b, ranks), b).step_s);
  }
}

}  // namespace
}  // namespace linerate::sim
