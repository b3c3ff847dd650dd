// linerate calibrate [--from LOG] -o cluster.json: logs people already have become a Cluster with
// errors.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <tuple>

#include "linerate/calibrate/fit.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/log.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/json.hpp"
#include "linerate/trace/collective_log.hpp"

namespace linerate::cli {
namespace {

struct CalibrateOptions {
  std::vector<std::string> logs;
  std::string output, collective, line_rate;
  std::optional<int> ranks;
  bool json = false;
};

/// One table for each (collective, ranks, dtype, in place or not): they are never mixed.
void add_tables(const trace::CollectiveLog& log, std::vector<doc::CollectiveCost>& tables) {
  std::map<std::tuple<bool, Collective, int, DType>, doc::CollectiveCost> by_kind;
  for (const trace::CollectiveSample& row : log.rows) {
    doc::CollectiveCost& table = by_kind[{row.in_place, row.collective, row.ranks, row.dtype}];
    table.collective = row.collective, table.ranks = row.ranks;
    table.dtype = row.dtype, table.in_place = row.in_place;
    table.source = log.source;
    table.samples.push_back({static_cast<double>(row.bytes), row.seconds, row.low_s, row.high_s});
  }
  for (auto& [kind, table] : by_kind) tables.push_back(std::move(table));
}

doc::Cluster calibrate_from_logs(const CalibrateOptions& o) {
  trace::CollectiveLogOptions reading;
  reading.ranks = o.ranks;
  if (!o.collective.empty()) reading.collective = parse_collective(o.collective);
  calibrate::FitOptions fitting;
  fitting.ranks = o.ranks.value_or(0);
  if (!o.line_rate.empty()) fitting.line_rate_bytes_per_s = parse_rate(o.line_rate).value;
  std::vector<doc::CollectiveCost> tables;
  for (const std::string& file : o.logs) {
    const trace::CollectiveLog log = trace::load_collective_log(file, reading);
    for (const std::string& note : log.notes) log::warning(log.source + ": " + note);
    add_tables(log, tables);
  }
  return calibrate::fit_cluster(tables, fitting);
}

void print_table(const doc::Cluster& cluster) {
  fmt::print("{:<16}{:>6}  {:<5}{:>6}{:>20}{:>8}{:>8}  {}\n", "collective", "ranks", "type",
             "sizes", "from .. to", "mean", "max", "switches");
  for (const doc::CollectiveCost& c : cluster.collectives) {
    std::vector<std::string> switches;
    for (const doc::RegimeSwitch& s : c.switches)
      switches.push_back(fmt::format("{} .. {}", format_size(static_cast<double>(s.after_bytes)),
                                     format_size(static_cast<double>(s.before_bytes))));
    fmt::print("{:<16}{:>6}  {:<5}{:>6}{:>20}{:>7.2f}%{:>7.1f}%  {}\n",
               fmt::format("{}{}", name_of(c.collective), c.in_place ? "*" : ""), c.ranks,
               name_of(c.dtype), c.samples.size(),
               fmt::format("{} .. {}", format_size(c.samples.front().bytes),
                           format_size(c.samples.back().bytes)),
               100 * c.error_mean, 100 * c.error_max,
               switches.empty() ? "none" : join(switches, ", "));
  }
  fmt::print(
      "mean, max: relative error of each inner size when the fit does not see it.  *: in place\n");
}

void print_json(const doc::Cluster& cluster) {
  doc::Json all = doc::Json::array();
  for (const doc::CollectiveCost& c : cluster.collectives) {
    doc::Json switches = doc::Json::array();
    for (const doc::RegimeSwitch& s : c.switches)
      switches.push_back({{"after_bytes", s.after_bytes}, {"before_bytes", s.before_bytes}});
    all.push_back({{"collective", name_of(c.collective)},
                   {"ranks", c.ranks},
                   {"dtype", name_of(c.dtype)},
                   {"in_place", c.in_place},
                   {"sizes", c.samples.size()},
                   {"segments", c.segments.size()},
                   {"error_mean", c.error_mean},
                   {"error_max", c.error_max},
                   {"switches", switches}});
  }
  fmt::print("{}\n", doc::Json{{"collectives", all}}.dump(2));
}

void run_calibrate(const CalibrateOptions& o) {
  const doc::Cluster cluster = calibrate_from_logs(o);
  doc::save(cluster, o.output);
  if (o.json)
    print_json(cluster);
  else
    print_table(cluster);
}

}  // namespace

void setup_calibrate(CLI::App& app) {
  const auto o = std::make_shared<CalibrateOptions>();
  CLI::App* verb =
      app.add_subcommand("calibrate", "Fit the cost of collectives from logs or own probes.");
  verb->add_option("--from", o->logs, "nccl-tests text or JSON, OSU micro-benchmarks, vTrain CSV.");
  verb->add_option("--ranks", o->ranks, "Ranks that took part, where the log does not say.")
      ->check(CLI::PositiveNumber);
  verb->add_option("--collective", o->collective, "What was measured, where the log does not say.");
  verb->add_option("--line-rate", o->line_rate,
                   "Of the slowest link, such as 100Gbit/s: times that beat it are refused.");
  verb->add_option("-o,--output", o->output, "The Cluster to write.")->required();
  verb->add_flag("--json", o->json, "Print the errors and switches as JSON.");
  verb->callback([o] { run_calibrate(*o); });
}

}  // namespace linerate::cli
