// The fit on tables that others measured: those that probes measured over shaped links
// (tests/calibrate/recorded, each with how it was made), and real ones of NCCL.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "cost/agreement.hpp"
#include "linerate/calibrate/collective_probe.hpp"
#include "linerate/calibrate/fit.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/cost/fitted.hpp"

namespace linerate::calibrate {
namespace {

/// The cells of each row, comments left out. Reading logs is trace's work; this is its barest form.
std::vector<std::vector<std::string>> read_rows(const std::filesystem::path& path) {
  std::vector<std::vector<std::string>> rows;
  std::ifstream in(path);
  for (std::string text; std::getline(in, text);)
    if (!text.starts_with('#')) rows.push_back(split_outside_parentheses(text, ','));
  return rows;
}

/// collective,bytes,seconds,low_s,high_s
std::map<std::string, doc::CollectiveCost> read_tables(const std::string& name) {
  std::map<std::string, doc::CollectiveCost> tables;
  for (const auto& row : read_rows(std::filesystem::path(RECORDED_PROBES) / name)) {
    if (row[0] == "collective") continue;
    doc::CollectiveCost& table = tables[row[0]];
    table.collective = parse_collective(row[0]);
    table.ranks = 2;
    table.source = name;
    table.samples.push_back(
        {std::stod(row[1]), std::stod(row[2]), std::stod(row[3]), std::stod(row[4])});
  }
  return tables;
}

TEST(RecordedProbe, RunsOnAnEmptiedLinkAreForeseenWithinTenPercent) {
  const auto tables = read_tables("runs_2ranks_1Gbit.csv");
  ASSERT_EQ(tables.size(), 3u);
  for (const auto& [kind, table] : tables)
    EXPECT_LT(fit_collective(table, {}).error_mean, 0.10) << kind;
}

TEST(RecordedProbe, CostsOfAllCollectivesAgreeOnAnyNumberOfRanks) {
  for (const char* name : {"runs_2ranks_1Gbit.csv", "single_calls_2ranks_200Mbit.csv"}) {
    doc::Cluster cluster;
    for (const auto& [kind, table] : read_tables(name))
      cluster.collectives.push_back(fit_collective(table, {}));
    cost::Agreement agreement;
    agreement.check(cost::CostModel(cluster), name, cost::sizes_around(cluster),
                    cost::kRanksAround);
    EXPECT_THAT(agreement.broken, testing::IsEmpty());
    EXPECT_GT(agreement.cases, 1000);
  }
}

TEST(RecordedProbe, WhereATokenBucketEndsTheNextSizeIsAskedFor) {
  // Single calls: 65.5 kB pass within the bucket of 73.7 kB, 262 kB do not.
  const auto tables = read_tables("single_calls_2ranks_200Mbit.csv");
  ASSERT_EQ(tables.size(), 2u);
  for (const auto& [kind, table] : tables) {
    EXPECT_GT(fit_collective(table, {}).error_mean, 1) << kind;
    std::vector<ProbedSize> sizes;
    for (const doc::CostSample& s : table.samples)
      sizes.push_back({static_cast<std::int64_t>(s.bytes), 0, {s.seconds, s.seconds, s.seconds}});
    const auto next = next_size(table.collective, 2, sizes);
    ASSERT_TRUE(next) << kind;
    EXPECT_GT(*next, 16384) << kind;
    EXPECT_LT(*next, 1 << 20) << kind;
  }
}

// ---- eleven samples of a real table predict the other thousand sizes ----

using Samples = std::vector<doc::CostSample>;

/// size(B),count,type,time(ns),...: out-of-place times.
Samples read_table(const std::filesystem::path& path) {
  Samples samples;
  for (const auto& row : read_rows(path))
    if (!row[0].empty() && std::isdigit(static_cast<unsigned char>(row[0][0])))
      samples.push_back({std::stod(row[0]), std::stod(row[3]) * 1e-9});
  return samples;
}

struct Outcome {
  double mean, p99, worst, inside;
};

Outcome predict_the_rest(const Samples& rows, const std::vector<std::size_t>& pick, int ranks) {
  doc::CollectiveCost measured;
  measured.ranks = ranks;
  for (const std::size_t i : pick) measured.samples.push_back(rows[i]);
  const doc::CollectiveCost cost = fit_collective(measured, {});
  std::vector<double> errors;
  double inside = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (std::find(pick.begin(), pick.end(), i) != pick.end()) continue;
    const cost::Estimate e = cost::evaluate(cost, rows[i].bytes);
    errors.push_back(std::abs(e.seconds / rows[i].seconds - 1));
    inside += e.low <= rows[i].seconds && rows[i].seconds <= e.high;
  }
  return {mean(errors), quantile(errors, 0.99), quantile(errors, 1),
          inside / static_cast<double>(errors.size())};
}

class SampleTable : public testing::TestWithParam<std::pair<const char*, int>> {
 protected:
  void SetUp() override {
    const std::filesystem::path path =
        std::filesystem::path("../shared/data/collectives") / GetParam().first;
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent";
    rows_ = read_table(path);
    ASSERT_EQ(rows_.size(), 1024u);
    for (int k = 0; k <= 10; ++k)
      pick_.push_back((std::size_t{1} << k) - 1);  // 1, 2, 4 ... 1024 MiB
  }
  Samples rows_;
  std::vector<std::size_t> pick_;
};

TEST_P(SampleTable, ElevenSamplesPredictTheOthers) {
  const Outcome o = predict_the_rest(rows_, pick_, GetParam().second);
  for (const auto& [name, value] : {std::pair{"mean", o.mean}, std::pair{"p99", o.p99},
                                    std::pair{"worst", o.worst}, std::pair{"inside", o.inside}})
    RecordProperty(name, std::to_string(value));
  EXPECT_LE(o.mean, 0.01);
  EXPECT_LE(o.p99, 0.10);
  EXPECT_LE(o.worst, 0.20);
  EXPECT_GE(o.inside, 0.85);
}

TEST_P(SampleTable, AThousandSamplesAreFittedToo) {
  // Dense tables are noise around a curve: 3 % is the scatter of the A100 table below 16 MiB.
  doc::CollectiveCost measured;
  measured.ranks = GetParam().second;
  measured.samples = rows_;
  EXPECT_LE(fit_collective(measured, {}).error_mean, 0.03);
}

INSTANTIATE_TEST_SUITE_P(VTrain, SampleTable,
                         testing::Values(std::pair{"a100_nccl_allreduce_4gpu.csv", 4},
                                         std::pair{"v100_nccl_allreduce_8gpu.csv", 8}),
                         [](const auto& table) { return std::string(table.param.first, 4); });

}  // namespace
}  // namespace linerate::calibrate
