// Costs agree with each other on every table that others measured, in ../shared and in the tree.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "cost/agreement.hpp"
#include "linerate/calibrate/from_logs.hpp"
#include "linerate/cost/outliers.hpp"

namespace linerate::calibrate {
namespace {

using testing::IsEmpty;

/// One Cluster a row: tables of one network.
struct Tables {
  std::string name;
  std::vector<std::pair<std::string, int>> files;  // with their ranks; 0: the file says
};

const std::vector<Tables>& all_tables() {
  static const std::vector<Tables> all = {
      {"a100", {{"data/collectives/a100_nccl_allreduce_4gpu.csv", 4}}},
      {"v100", {{"data/collectives/v100_nccl_allreduce_8gpu.csv", 8}}},
      {"h100_10G",
       {{"gpu/table_10G.csv", 0},
        {"gpu/t_all_gather_f32_10G_2.csv", 0},
        {"gpu/t_reduce_scatter_f32_10G_2.csv", 0},
        {"gpu/t_broadcast_f32_10G_2.csv", 0},
        {"gpu/t_all_reduce_f16_10G_2.csv", 0}}},
      {"h100_5G", {{"gpu/table_5G.csv", 0}}},
      {"h100_unshaped", {{"gpu/table_un.csv", 0}, {"gpu/t_all_reduce_f16_un_2.csv", 0}}},
      {"two_nodes", {{"wild/made/B_two_nodes/nodes2.log", 0}}},
      {"up_to_16_nodes",
       {{"wild/made/B_two_nodes/nodes2.log", 0},
        {"wild/made/B_two_nodes/nodes4.log", 0},
        {"wild/made/B_two_nodes/nodes16.log", 0}}},
      {"tiny_gather",
       {{"wild/made/C_tiny_gather/gather1.rank0.json", 0},
        {"wild/made/C_tiny_gather/gather1.rank1.json", 0}}},
      {"gpu_job", {{"gpu/resnet50_10G_r0.json.gz", 0}, {"gpu/resnet50_10G_r1.json.gz", 0}}},
      {"metrics",
       {{"wild/recorded/metrics.rank0.json.gz", 0}, {"wild/recorded/metrics.rank1.json.gz", 0}}},
      {"sync_forward",
       {{"wild/recorded/syncfwd.rank0.json.gz", 0}, {"wild/recorded/syncfwd.rank1.json.gz", 0}}},
      {"zero1",
       {{"wild/recorded/zero1.rank0.json.gz", 0}, {"wild/recorded/zero1.rank1.json.gz", 0}}}};
  return all;
}

std::optional<doc::Cluster> cluster_of(const Tables& tables) {
  std::vector<LogFile> files;
  for (const auto& [name, ranks] : tables.files) {
    const std::filesystem::path path = std::filesystem::path("../shared") / name;
    if (!std::filesystem::exists(path)) return std::nullopt;
    files.push_back({path, {}});
    if (ranks > 0) files.back().reading.ranks = ranks;
  }
  return calibrate_from_logs(files, {});
}

class PublicTables : public testing::TestWithParam<std::size_t> {};

TEST_P(PublicTables, AgreeAtEverySizeAndRankCount) {
  const Tables& tables = all_tables()[GetParam()];
  const std::optional<doc::Cluster> cluster = cluster_of(tables);
  if (!cluster) GTEST_SKIP() << "../shared has no tables of " << tables.name;
  const cost::CostModel model(*cluster);
  cost::Agreement agreement;
  agreement.check(model, tables.name, cost::sizes_around(*cluster), cost::kRanksAround);
  EXPECT_THAT(agreement.broken, IsEmpty());
  RecordProperty("cases", std::to_string(agreement.cases));
  EXPECT_GT(agreement.cases, 1000);
  for (const std::string& note : cost::outlier_notes(model)) RecordProperty("outliers", note);
}

INSTANTIATE_TEST_SUITE_P(Shared, PublicTables, testing::Range(std::size_t{0}, all_tables().size()),
                         [](const auto& row) { return all_tables()[row.param].name; });

}  // namespace
}  // namespace linerate::calibrate
