// linerate calibrate [--from LOG] -o cluster.json: logs people already have, or probes under
// mpirun, become a Cluster with errors.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <thread>
#include <tuple>

#include <unistd.h>

#include "linerate/calibrate/fit.hpp"
#include "linerate/calibrate/probe.hpp"
#include "linerate/cli/option_value.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/log.hpp"
#include "linerate/core/text.hpp"
#include "linerate/doc/json.hpp"
#include "linerate/trace/collective_log/collective_log.hpp"

namespace linerate::cli {
namespace {

struct CalibrateOptions {
  std::vector<std::string> logs;
  std::string output, collective, line_rate, budget, largest;
  std::optional<int> threads;
  std::optional<int> ranks;
  bool json = false;
};

/// One table for each (in place or not, collective, ranks, dtype): they are never mixed. Logs of
/// the same are repetitions.
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

doc::Cluster calibrate_from_logs(const CalibrateOptions& o) {
  trace::CollectiveLogOptions reading;
  reading.ranks = o.ranks;
  if (!o.collective.empty())
    reading.collective = parse_option("--collective", o.collective, parse_collective);
  calibrate::FitOptions fitting;
  fitting.ranks = o.ranks.value_or(0);
  if (!o.line_rate.empty())
    fitting.line_rate_bytes_per_s = parse_option("--line-rate", o.line_rate, parse_bandwidth).value;
  Tables tables;
  for (const std::string& file : o.logs) {
    const trace::CollectiveLog log = trace::load_collective_log(file, reading);
    for (const std::string& note : log.notes) log::warning(note);
    add_rows(log, tables);
  }
  std::vector<doc::CollectiveCost> measured;
  for (auto& [kind, table] : tables) measured.push_back(std::move(table));
  return calibrate::fit_cluster(measured, fitting);
}

/// On every rank; nullopt but on rank 0, which prints and writes.
std::optional<doc::Cluster> calibrate_by_probes(const CalibrateOptions& o) {
  calibrate::ProbeOptions probing;
  if (!o.budget.empty()) probing.budget = parse_option("--budget", o.budget, parse_time);
  if (!o.largest.empty()) probing.largest = parse_option("--largest", o.largest, parse_size);
  comm::WorldOptions world;
  world.expected_size = o.ranks;
  const auto communicator = comm::make_world(world);
  const bool shows = communicator->rank() == 0 && isatty(STDERR_FILENO);
  if (shows)
    probing.progress = [](double done) {
      fmt::print(stderr, "\rcalibrate: {:3.0f} %", 100 * done);
    };
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  calibrate::EmulatedTraining load(o.threads.value_or(std::max(1, cores / communicator->size())));
  const doc::Cluster cluster = calibrate::probe_cluster(*communicator, load, probing);
  if (shows) fmt::print(stderr, "\r{:20}\r", "");
  return communicator->rank() == 0 ? std::optional(cluster) : std::nullopt;
}

void print_probes(const doc::Cluster& c) {
  if (c.contention)
    fmt::print(
        "computing slows by {:.2f} while communicating, communication by {:.2f} while computing\n",
        c.contention->compute_slowdown, c.contention->communication_slowdown);
  if (c.progress_sleep_s)
    fmt::print("an idle progress thread wakes within {}\n", format_time(*c.progress_sleep_s));
  if (c.noise_floor) fmt::print("noise floor (A/A): {:.1f} %\n", 100 * *c.noise_floor);
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
  doc::Json json = {{"collectives", all}};
  if (cluster.contention)
    json["contention"] = {{"compute_slowdown", cluster.contention->compute_slowdown},
                          {"communication_slowdown", cluster.contention->communication_slowdown}};
  json["progress_sleep_s"] = doc::json_of(cluster.progress_sleep_s);
  json["noise_floor"] = doc::json_of(cluster.noise_floor);
  fmt::print("{}\n", json.dump(2));
}

// What only logs or only probes read must not be given in vain.
void check_options(const CalibrateOptions& o) {
  const bool probes = o.logs.empty();
  if (!probes && (!o.budget.empty() || !o.largest.empty() || o.threads))
    throw UsageError("--budget, --largest and --threads belong to probes: leave out --from");
  if (probes && (!o.collective.empty() || !o.line_rate.empty()))
    throw UsageError("--collective and --line-rate belong to logs: give --from LOG");
}

void run_calibrate(const CalibrateOptions& o) {
  check_options(o);
  keep_inputs("--output", o.output, o.logs);
  const std::optional<doc::Cluster> cluster =
      o.logs.empty() ? calibrate_by_probes(o) : calibrate_from_logs(o);
  if (!cluster) return;
  doc::save(*cluster, o.output);
  if (o.json) {
    print_json(*cluster);
  } else {
    print_table(*cluster);
    print_probes(*cluster);
  }
}

}  // namespace

void setup_calibrate(CLI::App& app) {
  const auto o = std::make_shared<CalibrateOptions>();
  CLI::App* verb =
      app.add_subcommand("calibrate", "Fit the cost of collectives from logs or own probes.");
  verb->add_option("--from", o->logs,
                   "nccl-tests text or JSON, OSU micro-benchmarks, vTrain CSV. Absent: probe the "
                   "ranks of this mpirun.");
  verb->add_option("--budget", o->budget, "Time the probes may take; absent: 10s.");
  verb->add_option("--largest", o->largest, "Largest collective to probe; absent: 64MiB.");
  verb->add_option("--threads", o->threads,
                   "Compute threads per rank while probing; absent: cores / ranks.")
      ->check(CLI::Range(1, 4096));
  verb->add_option("--ranks", o->ranks,
                   "Ranks that took part, where the log does not say; ranks expected when probing.")
      ->check(CLI::Range(2, kMostRanks));
  verb->add_option("--collective", o->collective, "What was measured, where the log does not say.");
  verb->add_option("--line-rate", o->line_rate,
                   "Of the slowest link, such as 100Gbit/s: times that beat it are refused.");
  verb->add_option("-o,--output", o->output, "The Cluster to write.")->required();
  verb->add_flag("--json", o->json, "Print the errors and switches as JSON.");
  verb->callback([o] { run_calibrate(*o); });
}

}  // namespace linerate::cli
