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

class TablesOfOthers : public testing::TestWithParam<std::size_t> {};

TEST_P(TablesOfOthers, AgreeAtEverySizeAndRankCount) {
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

doc::CollectiveCost fit_again(doc::CollectiveCost cost, std::vector<doc::CostSample> samples) {
  cost.samples = std::move(samples);
  return fit_collective(cost, {});
}

TEST(PublicTables, NoRowMovesAPriceOutOfItsInterval) {
  std::vector<std::string> broken;
  for (const auto& [name, cost] : fitted_tables())
    for (std::size_t left_out = 0; left_out < cost.samples.size(); ++left_out) {
      std::vector<doc::CostSample> samples = cost.samples;
      samples.erase(samples.begin() + static_cast<std::ptrdiff_t>(left_out));
      const doc::CollectiveCost less = fit_again(cost, samples);
      for (const doc::CostSample& s : cost.samples)
        for (const double bytes : {s.bytes, 1.2 * s.bytes, 1.5 * s.bytes}) {
          const cost::Estimate price = cost::evaluate(cost, bytes);
          const double seconds = cost::evaluate(less, bytes).seconds;
          if (seconds < price.low * (1 - 1e-9) || seconds > price.high * (1 + 1e-9))
            broken.push_back(fmt::format("{} without {}: {} B {:.4g} of {:.4g} .. {:.4g}", name,
                                         cost.samples[left_out].bytes, bytes, seconds, price.low,
                                         price.high));
        }
    }
  EXPECT_EQ(fmt::format("{}", fmt::join(broken, "\n")), "");
}

TEST(PublicTables, PricesAreWhatWasMeasuredAndNoOutlier) {
  std::vector<std::string> broken;
  for (const auto& [name, cost] : fitted_tables()) {
    const std::vector<bool> is_outlier = find_outliers(cost.samples);
    for (std::size_t i = 0; i < cost.samples.size(); ++i) {
      const auto& [bytes, seconds, low_s, high_s] = cost.samples[i];
      const double price = cost::evaluate(cost, bytes).seconds;
      const double off = std::max(price / seconds, seconds / price);
      const bool is_named = off > cost::tolerance_at(bytes);  // another contradicts it
      if (bytes >= 1 << 20 && off > 1.02 && !is_outlier[i] && !is_named)
        broken.push_back(fmt::format("{}: {} B {:.4g} for {:.4g}", name, bytes, price, seconds));
    }
  }
  EXPECT_EQ(fmt::format("{}", fmt::join(broken, "\n")), "");
}

/// Two disturbances within two sizes cannot be told from a regime.
bool has_outlier_beside(const std::vector<bool>& is_outlier, std::size_t i) {
  const std::size_t begin = i - std::min<std::size_t>(i, 2);
  const std::size_t end = std::min(i + 3, is_outlier.size());
  return std::any_of(is_outlier.begin() + static_cast<std::ptrdiff_t>(begin),
                     is_outlier.begin() + static_cast<std::ptrdiff_t>(end), std::identity{});
}

TEST(PublicTables, ARowMadeSlowerMovesNoPriceOutOfItsInterval) {
  std::vector<std::string> broken;
  int rows = 0;
  for (const auto& [name, cost] : fitted_tables()) {
    const std::vector<bool> is_outlier = find_outliers(cost.samples);
    for (std::size_t slow = 1; slow + 1 < cost.samples.size(); ++slow) {
      if (cost.samples[slow].bytes < 1 << 20 || has_outlier_beside(is_outlier, slow)) continue;
      std::vector<doc::CostSample> samples = cost.samples;
      samples[slow].seconds *= 1.3;
      const doc::CollectiveCost other = fit_again(cost, samples);
      for (const doc::CostSample& s : samples) {
        const double seconds = cost::evaluate(other, s.bytes).seconds;
        const cost::Estimate price = cost::evaluate(cost, s.bytes);
        if (s.bytes >= 1 << 20 && (seconds < price.low || seconds > price.high))
          broken.push_back(fmt::format("{}, {} slow: {} B {:.4g} of {:.4g} .. {:.4g}", name,
                                       samples[slow].bytes, s.bytes, seconds, price.low,
                                       price.high));
      }
      ++rows;
    }
  }
  EXPECT_EQ(fmt::format("{}", fmt::join(broken, "\n")), "");
  RecordProperty("rows", std::to_string(rows));
}

INSTANTIATE_TEST_SUITE_P(Shared, TablesOfOthers,
                         testing::Range(std::size_t{0}, all_tables().size()),
                         [](const auto& row) { return all_tables()[row.param].name; });

}  // namespace
}  // namespace linerate::calibrate
