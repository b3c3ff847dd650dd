// Files of all kinds become tables, and tables become one Cluster. Logs of benchmarks are read one
// by one; rows that agree in collective, ranks, type and place share a table, from whatever file
// they come. Traces belong to one job and are read together.
#include "linerate/calibrate/from_logs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/calibrate/fit.hpp"
#include "linerate/calibrate/from_traces.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/importers.hpp"
#include "linerate/trace/input/input_file.hpp"
#include "linerate/trace/load.hpp"

namespace linerate::calibrate {
namespace {

using Tables = std::map<std::tuple<bool, Collective, int, int, DType>, doc::CollectiveCost>;

void add_rows(const bench_logs::CollectiveLog& log, Tables& tables) {
  for (const bench_logs::CollectiveSample& row : log.rows) {
    doc::CollectiveCost& table =
        tables[{row.in_place, row.collective, row.ranks, row.ranks_per_node, row.dtype}];
    table.collective = row.collective, table.ranks = row.ranks;
    table.dtype = row.dtype, table.in_place = row.in_place;
    table.ranks_per_node = row.ranks_per_node;
    if (table.source.find(log.source) == std::string::npos)
      table.source += (table.source.empty() ? "" : ", ") + log.source;
    table.samples.push_back({static_cast<double>(row.bytes), row.seconds, row.low_s, row.high_s});
  }
}

/// Rows of one size are repetitions, unless they were measured under settings that no column
/// states.
void note_scatter(const doc::CollectiveCost& table, std::vector<std::string>& notes) {
  constexpr double kTwice = 2;
  std::map<double, std::pair<double, double>> extremes;  // by size
  for (const doc::CostSample& s : table.samples) {
    const auto [at, first] = extremes.try_emplace(s.bytes, s.seconds, s.seconds);
    at->second.first = std::min(at->second.first, s.seconds);
    at->second.second = std::max(at->second.second, s.seconds);
  }
  std::size_t apart = 0;
  double worst = 0, at = 0;
  for (const auto& [bytes, times] : extremes) {
    const double ratio = times.second / times.first;
    apart += ratio > kTwice;
    if (ratio > worst) worst = ratio, at = bytes;
  }
  if (apart > 0)
    notes.push_back(
        fmt::format("{}: {} of {} sizes of {} on {} ranks have rows whose times differ more than "
                    "twofold; those of {} differ by {:.3g} times. Their median was taken. Put rows "
                    "of other settings into another file",
                    table.source, apart, extremes.size(), name_of(table.collective), table.ranks,
                    format_size(at), worst));
}

/// Tables without a type of their own that were read as one table's repetitions.
void note_types(const std::vector<bench_logs::CollectiveLog>& logs,
                std::vector<std::string>& notes) {
  std::map<std::tuple<bool, Collective, int, int>, std::set<std::string>> untyped;
  for (const bench_logs::CollectiveLog& log : logs)
    for (const bench_logs::CollectiveSample& row : log.rows)
      if (!row.says_type)
        untyped[{row.in_place, row.collective, row.ranks, row.ranks_per_node}].insert(log.source);
  for (const auto& [kind, sources] : untyped)
    if (sources.size() > 1)
      notes.push_back(fmt::format(
          "{}: none of them says its element type, so all are taken as repetitions of {} f32; name "
          "another one in a column type (f16, bf16) or in the file's name",
          fmt::join(sources, ", "), name_of(std::get<Collective>(kind))));
}

/// Of the line, sockets leave this much to collectives: NCCL's got 9.26 of 10 and 4.6 of 5 Gbit/s.
constexpr double kGoodputShare = 0.92;

void assume_line_rate(doc::Link& network) {
  if (network.line_rate_bytes_per_s > 0 || !(network.bandwidth_bytes_per_s > 0)) return;
  network.line_rate_bytes_per_s = network.bandwidth_bytes_per_s / kGoodputShare;
  network.line_rate_assumed = true;
}

/// Events of a job, whose collectives were timed on the way.
bool is_trace(const std::filesystem::path& file) {
  return trace::is_trace(trace::InputFile::open(file).head());
}

/// Traces of one job belong together: what each rank of a collective did.
TracedJob calibrate_job(const std::vector<std::filesystem::path>& traces,
                        std::vector<std::string>& notes) {
  if (traces.empty()) return {};
  std::string source = traces.front().string();
  if (traces.size() > 1) source += fmt::format(" and {} more", traces.size() - 1);
  const trace::Job job = trace::load_job(traces);
  notes.insert(notes.end(), job.notes.begin(), job.notes.end());
  return calibrate_from_trace(job, source, notes);
}

/// Throws with the notes about unread rows, since the missing sizes may be in them.
doc::Cluster fit_rows(const std::vector<doc::CollectiveCost>& measured, const FitOptions& options,
                      const std::vector<bench_logs::CollectiveLog>& logs,
                      std::vector<std::string>& notes) try {
  return fit_cluster(measured, options, &notes);
} catch (const InputError& e) {
  std::string said = e.what();
  for (const bench_logs::CollectiveLog& log : logs)
    if (!log.unread.empty()) said += "; " + log.unread;
  throw InputError(said);
}

}  // namespace

doc::Cluster calibrate_from_logs(const std::vector<LogFile>& files, const FitOptions& fitting,
                                 std::vector<std::string>* notes) {
  std::vector<std::string> said;
  Tables tables;
  std::vector<std::filesystem::path> traces;
  std::vector<bench_logs::CollectiveLog> logs;
  for (const LogFile& file : files) {
    if (is_trace(file.path)) {
      traces.push_back(file.path);
      continue;
    }
    logs.push_back(bench_logs::load_collective_log(file.path, file.reading));
    said.insert(said.end(), logs.back().notes.begin(), logs.back().notes.end());
    add_rows(logs.back(), tables);
  }
  note_types(logs, said);
  TracedJob job = calibrate_job(traces, said);
  std::vector<doc::CollectiveCost>& measured = job.tables;
  for (auto& [kind, table] : tables) {
    note_scatter(table, said);
    measured.push_back(std::move(table));
  }
  FitOptions options = fitting;
  // The buckets of a job are few; their own repetitions say how far they scatter.
  options.fewest_sizes = traces.empty() ? fitting.fewest_sizes : 1;
  doc::Cluster cluster = fit_rows(measured, options, logs, said);
  assume_line_rate(cluster.network);
  cluster.contention = job.contention;
  cluster.start_delay_s = job.start_delay_s;
  cluster.rank_speeds = std::move(job.late_ranks);
  if (notes)
    *notes = std::move(said);
  else
    for (const std::string& note : said) log::warning(note);
  return cluster;
}

}  // namespace linerate::calibrate
