// linerate calibrate [--from LOG] -o cluster.json: logs people already have, or probes under
// mpirun, become a Cluster with errors.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "linerate/calibrate/codec_probe.hpp"
#include "linerate/calibrate/from_logs.hpp"
#include "linerate/calibrate/probe.hpp"
#include "linerate/cli/option_value.hpp"
#include "linerate/cli/progress_line.hpp"
#include "linerate/cli/verb.hpp"
#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/log.hpp"
#include "linerate/core/text.hpp"
#include "linerate/report/cluster_text.hpp"

namespace linerate::cli {
namespace {

struct CalibrateOptions {
  std::vector<std::string> logs;
  std::optional<std::string> codecs;  // empty: all of them
  std::string output, collective, line_rate, budget, largest, ranks;
  std::optional<int> threads, ranks_per_node, cores;
  bool json = false;
};

std::vector<doc::Component> codecs_of(const CalibrateOptions& o) {
  if (!o.codecs) return {};
  if (o.codecs->empty()) return calibrate::all_compressors();
  return parse_option_list("--codecs", *o.codecs, calibrate::parse_compressor);
}

int parse_rank_count(const std::string& text) {
  const std::int64_t ranks = parse_integer(text);
  if (ranks < 2 || ranks > kMostRanks)
    throw UsageError(fmt::format("expected 2 to {} ranks, found {}", kMostRanks, text));
  return static_cast<int>(ranks);
}

/// One count for all logs, or one for each.
std::vector<int> ranks_of(const CalibrateOptions& o) {
  if (o.ranks.empty()) return {};
  std::vector<int> ranks = parse_option_list("--ranks", o.ranks, parse_rank_count);
  const std::size_t most = o.logs.empty() ? 1 : o.logs.size();
  if (ranks.size() != 1 && ranks.size() != most)
    throw UsageError(fmt::format(
        "--ranks: expected one count, or one for each of {} logs, found {}", most, ranks.size()));
  return ranks;
}

doc::Cluster calibrate_from_logs(const CalibrateOptions& o, std::vector<std::string>& notes) {
  bench_logs::CollectiveLogOptions reading;
  if (!o.collective.empty())
    reading.collective = parse_option("--collective", o.collective, parse_collective);
  const std::vector<int> ranks = ranks_of(o);
  std::vector<calibrate::LogFile> files;
  for (const std::string& log : o.logs) {
    if (!ranks.empty()) reading.ranks = ranks[ranks.size() == 1 ? 0 : files.size()];
    files.push_back({log, reading});
  }
  calibrate::FitOptions fitting;
  fitting.ranks_per_node = o.ranks_per_node.value_or(0);
  if (!o.line_rate.empty())
    fitting.line_rate_bytes_per_s = parse_option("--line-rate", o.line_rate, parse_bandwidth).value;
  doc::Cluster cluster = calibrate::calibrate_from_logs(files, fitting, &notes);
  calibrate::add_codecs(cluster, codecs_of(o));
  return cluster;
}

/// On every rank; nullopt except on rank 0, which prints and writes.
std::optional<doc::Cluster> calibrate_by_probes(const CalibrateOptions& o) {
  calibrate::ProbeOptions probing;
  if (!o.budget.empty()) probing.budget = parse_option("--budget", o.budget, parse_time);
  if (!o.largest.empty()) probing.largest = parse_option("--largest", o.largest, parse_size);
  probing.codecs = codecs_of(o);
  comm::WorldOptions world;
  if (const std::vector<int> ranks = ranks_of(o); !ranks.empty()) world.expected_size = ranks[0];
  const auto communicator = comm::make_world(world);
  ProgressLine progress(communicator->rank() != 0);
  probing.progress = [&](double done) {
    progress.show(fmt::format("calibrate: {:3.0f} %", 100 * done));
  };
  calibrate::EmulatedTraining load(
      o.threads.value_or(calibrate::threads_per_rank(communicator->size())));
  const doc::Cluster cluster = calibrate::probe_cluster(*communicator, load, probing);
  return communicator->rank() == 0 ? std::optional(cluster) : std::nullopt;
}

// Options that only logs, or only probes, read are refused elsewhere.
void check_options(const CalibrateOptions& o) {
  const bool probes = o.logs.empty();
  if (!probes && (!o.budget.empty() || !o.largest.empty() || o.threads))
    throw UsageError("--budget, --largest and --threads belong to probes: leave out --from");
  if (probes && (!o.collective.empty() || !o.line_rate.empty() || o.ranks_per_node))
    throw UsageError(
        "--collective, --line-rate and --ranks-per-node belong to logs: give --from LOG");
}

void run_calibrate(const CalibrateOptions& o) {
  check_options(o);
  refuse_input_as_output("--output", o.output, o.logs);
  std::vector<std::string> notes;
  std::optional<doc::Cluster> cluster =
      o.logs.empty() ? calibrate_by_probes(o) : calibrate_from_logs(o, notes);
  if (!cluster) return;
  if (o.cores) cluster->cores = o.cores;
  doc::save(*cluster, o.output);
  if (!o.json)
    for (const std::string& note : notes) log::warning(note);
  fmt::print("{}", o.json ? report::summary_json(*cluster, notes) : report::to_text(*cluster));
}

}  // namespace

void setup_calibrate(CLI::App& app) {
  const auto o = std::make_shared<CalibrateOptions>();
  CLI::App* verb =
      app.add_subcommand("calibrate", "Fit the cost of collectives from logs or own probes.");
  verb->add_option("--from", o->logs,
                   "nccl-tests or rccl-tests text, JSON or CSV, OSU micro-benchmarks, tables "
                   "bytes,seconds[,ranks[,collective]], or the traces of all ranks of a job: its "
                   "collectives, contention, start delay. Absent: probe the ranks of this mpirun.");
  verb->add_option("--budget", o->budget, "Time the probes may take; absent: 10s.");
  verb->add_option("--largest", o->largest, "Largest collective to probe; absent: 64MiB.");
  verb->add_option("--threads", o->threads,
                   "Compute threads per rank while probing; absent: cores / ranks.")
      ->check(CLI::Range(1, 4096));
  verb->add_option("--ranks", o->ranks,
                   "Ranks that took part, where the log does not say: one count, or one for each "
                   "log, such as 2,4; ranks expected when probing.");
  verb->add_option("--ranks-per-node", o->ranks_per_node,
                   "Ranks that share a node, where the logs do not list their hosts or list less.")
      ->check(CLI::Range(1, kMostRanks));
  verb->add_option("--cores", o->cores,
                   "CPU cores that all ranks compute on together; absent: probes count them.")
      ->check(CLI::Range(1, kMostRanks));
  verb->add_option("--codecs", o->codecs,
                   "Time compressors here too: \"topk,powersgd(rank=4)\"; without names: all.")
      ->expected(0, 1);
  verb->add_option("--collective", o->collective, "What was measured, where the log does not say.");
  verb->add_option(
      "--line-rate", o->line_rate,
      "Of the slowest link, such as 100Gbit/s, kept for --bandwidth; times that beat it "
      "are refused.");
  verb->add_option("-o,--output", o->output, "The Cluster to write.")->required();
  verb->add_flag("--json", o->json, "Print errors, switches and notes as JSON.");
  verb->callback([o] { run_calibrate(*o); });
}

}  // namespace linerate::cli
