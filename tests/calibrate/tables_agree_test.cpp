// Costs agree with each other on every table that others measured, in ../shared and in the tree.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>

#include "cost/agreement.hpp"
#include "linerate/calibrate/curve.hpp"
#include "linerate/calibrate/fit.hpp"
#include "linerate/calibrate/from_logs.hpp"
#include "linerate/cost/collective_times.hpp"

namespace linerate::calibrate {
namespace {

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

class TablesOfOthers : public testing::TestWithParam<std::size_t> {};

TEST_P(TablesOfOthers, AgreeAtEverySizeAndRankCount) {
  const Tables& tables = all_tables()[GetParam()];
  const std::optional<doc::Cluster> cluster = cluster_of(tables);
  if (!cluster) GTEST_SKIP() << "../shared has no tables of " << tables.name;
  const cost::CostModel model(*cluster);
  cost::Agreement agreement;
  agreement.check(model, tables.name, cost::sizes_around(*cluster), cost::kRanksAround);
  EXPECT_THAT(agreement.broken, testing::IsEmpty());
  RecordProperty("cases", std::to_string(agreement.cases));
  EXPECT_GT(agreement.cases, 1000);
  for (const std::string& note : cost::outlier_notes(model)) RecordProperty("outliers", note);
}

/// A measured table and its fit.
struct Fitted {
  std::string name;
  doc::CollectiveCost cost;
};

/// All that ../shared has of NCCL on GPUs.
std::vector<Fitted> fitted_tables() {
  std::vector<Fitted> all;
  for (const Tables& tables : all_tables())
    if (tables.name.starts_with("h100"))
      if (const std::optional<doc::Cluster> cluster = cluster_of(tables))
        for (const doc::CollectiveCost& cost : cluster->collectives)
          all.push_back(
              {fmt::format("{} {} {}", tables.name, name_of(cost.collective), name_of(cost.dtype)),
               cost});
  return all;
}

class PublicTables : public testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(fmt::format("{}", fmt::join(broken_, "\n")), ""); }
  /// What another fit says lies in the table's interval.
  void expect_inside(const std::string& what, const doc::CollectiveCost& cost,
                     const doc::CollectiveCost& other, double bytes, double rounding = 0) {
    const cost::Estimate price = cost::evaluate(cost, bytes);
    const double seconds = cost::evaluate(other, bytes).seconds;
    if (seconds < price.low * (1 - rounding) || seconds > price.high * (1 + rounding))
      broken_.push_back(fmt::format("{}: {} B {:.4g} of {:.4g} .. {:.4g}", what, bytes, seconds,
                                    price.low, price.high));
  }
  std::vector<std::string> broken_;
};

TEST_F(PublicTables, NoRowMovesAPriceOutOfItsInterval) {
  for (const auto& [name, cost] : fitted_tables())
    for (std::size_t left_out = 0; left_out < cost.samples.size(); ++left_out) {
      doc::CollectiveCost less = cost;
      less.samples.erase(less.samples.begin() + static_cast<std::ptrdiff_t>(left_out));
      less = fit_collective(less, {});
      for (const doc::CostSample& s : cost.samples)
        for (const double bytes : {s.bytes, 1.2 * s.bytes, 1.5 * s.bytes})
          expect_inside(fmt::format("{} without {}", name, cost.samples[left_out].bytes), cost,
                        less, bytes);
    }
}

TEST_F(PublicTables, PricesAreWhatWasMeasuredAndNoOutlier) {
  for (const auto& [name, cost] : fitted_tables()) {
    const std::vector<bool> is_outlier = find_outliers(cost.samples);
    for (std::size_t i = 0; i < cost.samples.size(); ++i) {
      const auto& [bytes, seconds, low_s, high_s] = cost.samples[i];
      const double price = cost::evaluate(cost, bytes).seconds;
      const double off = std::max(price / seconds, seconds / price);
      const bool is_named = off > cost::tolerance_at(bytes);  // another contradicts it
      if (bytes >= 1 << 20 && off > 1.02 && !is_outlier[i] && !is_named)
        broken_.push_back(fmt::format("{}: {} B {:.4g} for {:.4g}", name, bytes, price, seconds));
    }
  }
}

/// Two disturbances within two sizes cannot be told from a regime.
bool has_outlier_beside(const std::vector<bool>& is_outlier, std::size_t i) {
  for (std::size_t k = i - std::min<std::size_t>(i, 2); k < std::min(i + 3, is_outlier.size()); ++k)
    if (is_outlier[k]) return true;
  return false;
}

TEST_F(PublicTables, ARowMadeSlowerMovesNoPriceOutOfItsInterval) {
  for (const auto& [name, cost] : fitted_tables()) {
    const std::vector<bool> is_outlier = find_outliers(cost.samples);
    for (std::size_t slow = 1; slow + 1 < cost.samples.size(); ++slow) {
      if (cost.samples[slow].bytes < 1 << 20 || has_outlier_beside(is_outlier, slow)) continue;
      doc::CollectiveCost other = cost;
      other.samples[slow].seconds *= 1.3;
      other = fit_collective(other, {});
      for (const doc::CostSample& s : cost.samples)
        if (s.bytes >= 1 << 20)
          expect_inside(fmt::format("{}, {} slow", name, cost.samples[slow].bytes), cost, other,
                        s.bytes);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shared, TablesOfOthers,
                         testing::Range(std::size_t{0}, all_tables().size()),
                         [](const auto& row) { return all_tables()[row.param].name; });

}  // namespace
}  // namespace linerate::calibrate
