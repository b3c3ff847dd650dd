#include "linerate/calibrate/from_logs.hpp"

#include <map>
#include <string>
#include <tuple>

#include "linerate/core/log.hpp"

namespace linerate::calibrate {
namespace {

using Tables = std::map<std::tuple<bool, Collective, int, DType>, doc::CollectiveCost>;

void add_rows(const trace::CollectiveLog& log, Tables& tables) {
  for (const trace::CollectiveSample& row : log.rows) {
    doc::CollectiveCost& table = tables[{row.in_place, row.collective, row.ranks, row.dtype}];
    table.collective = row.collective, table.ranks = row.ranks;
    table.dtype = row.dtype, table.in_place = row.in_place;
    if (table.source.find(log.source) == std::string::npos)
      table.source += (table.source.empty() ? "" : ", ") + log.source;
    table.samples.push_back({static_cast<double>(row.bytes), row.seconds, row.low_s, row.high_s});
  }
}

}  // namespace

doc::Cluster calibrate_from_logs(const std::vector<std::filesystem::path>& files,
                                 const trace::CollectiveLogOptions& reading,
                                 const FitOptions& fitting) {
  Tables tables;
  for (const std::filesystem::path& file : files) {
    const trace::CollectiveLog log = trace::load_collective_log(file, reading);
    for (const std::string& note : log.notes) log::warning(note);
    add_rows(log, tables);
  }
  std::vector<doc::CollectiveCost> measured;
  for (auto& [kind, table] : tables) measured.push_back(std::move(table));
  return fit_cluster(measured, fitting);
}

}  // namespace linerate::calibrate
