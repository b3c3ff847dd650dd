// A Cluster has three sources: logs that people have, probes of the ranks of this launch, or a
// Cluster that is there. To any of them what compressors and K-FAC cost here may be added. Some of
// these parts need ranks, some LibTorch. calibrate() starts no more than the options need.
#include "linerate/verbs/verbs.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "linerate/calibrate/codec_probe.hpp"
#include "linerate/calibrate/from_logs.hpp"
#include "linerate/comm/launcher.hpp"
#include "linerate/comm/mpi/mpi_world.hpp"
#include "linerate/comm/thread/run_ranks.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/text.hpp"

namespace linerate::verbs {
namespace {

/// On processors, or on a device. "--codecs" alone means all.
std::vector<doc::Component> codecs_of(const CalibrateOptions& o) {
  if (!o.codecs) return {};
  if (o.codecs->empty()) return calibrate::all_compressors();
  return parse_option("--codecs", *o.codecs, list_of(calibrate::parse_compressor));
}

/// With a device none: all that --codecs names is measured there.
std::vector<doc::Component> codecs_of_processors(const CalibrateOptions& o) {
  return o.device.empty() ? codecs_of(o) : std::vector<doc::Component>();
}

/// One count for all logs, or one for each. An example: "--from a.txt b.txt --ranks 2,4" says that
/// b.txt is of 4 ranks.
void check_ranks(const CalibrateOptions& o) {
  const std::size_t found = o.ranks.size(), most = o.logs.empty() ? 1 : o.logs.size();
  if (found > 1 && found != most)
    throw UsageError(fmt::format(
        "--ranks: expected one count, or one for each of {} logs, found {}", most, found));
}

/// Logs are fitted together: sizes of one collective on one rank count may be in several files.
doc::Cluster calibrate_from_logs(const CalibrateOptions& o, std::vector<std::string>& notes) {
  check_ranks(o);
  bench_logs::CollectiveLogOptions reading;
  reading.collective = o.collective;
  std::vector<calibrate::LogFile> files;
  for (const std::string& log : o.logs) {
    if (!o.ranks.empty()) reading.ranks = o.ranks[o.ranks.size() == 1 ? 0 : files.size()];
    files.push_back({log, reading});
  }
  calibrate::FitOptions fitting;
  fitting.ranks_per_node = o.ranks_per_node.value_or(0);
  if (o.line_rate) fitting.line_rate_bytes_per_s = o.line_rate->value;
  return calibrate::calibrate_from_logs(files, fitting, &notes);
}

/// As many as a training would use on these ranks.
int threads_of(const CalibrateOptions& o, const comm::Communicator& communicator) {
  return o.threads.value_or(calibrate::threads_per_rank(communicator.size()));
}

/// Compute threads run while collectives are timed, as they do in training: both slow each other
/// down.
doc::Cluster probe_network(const CalibrateOptions& o, comm::Communicator& communicator,
                           const Caller& caller) {
  calibrate::ProbeOptions probing;
  if (o.budget) probing.budget = to_duration(*o.budget);
  if (o.largest) probing.largest = *o.largest;
  probing.codecs = codecs_of_processors(o);
  probing.progress = [&](double done) {
    if (communicator.rank() == 0) caller.show(fmt::format("calibrate: {:3.0f} %", 100 * done));
  };
  calibrate::EmulatedTraining load(threads_of(o, communicator));
  return calibrate::probe_cluster(communicator, load, probing);
}

/// --ranks of a probe is what is expected of the launcher; of logs it says what they lack.
std::unique_ptr<comm::Communicator> world_of(const CalibrateOptions& o) {
  check_ranks(o);
  comm::set_link(o.link);
  comm::WorldOptions world;
  if (o.probes_network() && !o.ranks.empty()) world.expected_size = o.ranks[0];
  return comm::make_world(world);
}

/// On every rank; null: there are none. What may be refused comes before what takes its time. An
/// example: the device is measured before the network. One that is missing is found at once, not
/// after seconds of probes.
Calibrated calibrated(const CalibrateOptions& o, comm::Communicator* ranks, const Caller& caller,
                      const TorchProbes& probes) {
  Calibrated all;
  all.is_first = !ranks || ranks->rank() == 0;
  doc::Cluster& cluster = all.cluster;
  if (o.probes_network()) {
    calibrate::require_network(*ranks);
  } else {
    // A copy: the Cluster that was named stays as it is.
    cluster =
        o.cluster.empty() ? calibrate_from_logs(o, all.notes) : *cluster_of(o.cluster, caller);
    calibrate::add_codecs(cluster, codecs_of_processors(o));
  }
  calibrate::DeviceSamples on_device;
  if (!o.device.empty())
    on_device = probes.on_device(
        *ranks, {o.device, codecs_of(o), o.probes_second_order(), threads_of(o, *ranks)});
  if (o.probes_network()) cluster = probe_network(o, *ranks, caller);
  if (!o.device.empty()) {
    calibrate::add_device_samples(cluster, on_device);
    all.notes.insert(all.notes.end(), on_device.notes.begin(), on_device.notes.end());
  } else if (o.probes_second_order()) {
    cluster.second_order =
        calibrate::fit_second_order(probes.second_order(*ranks, threads_of(o, *ranks)));
  }
  if (o.second_order && !o.second_order->empty())
    cluster.second_order = calibrate::fit_second_order(
        calibrate::read_second_order_table(*o.second_order, &all.notes));
  if (o.cores) cluster.cores = o.cores;
  const std::vector<std::string> outliers = cost::outlier_notes(cost::CostModel(cluster));
  all.notes.insert(all.notes.end(), outliers.begin(), outliers.end());
  return all;
}

// Options that only logs, or only probes, read are refused elsewhere. An option that is read by
// nothing would look as if it had had an effect.
void check_options(const CalibrateOptions& o) {
  if (!o.logs.empty() && !o.cluster.empty())
    throw UsageError(
        "--from and --cluster: expected logs to fit, or a Cluster to add to, found both; leave one "
        "out");
  if (!o.cluster.empty() && !o.second_order && !o.codecs)
    throw UsageError(
        "--cluster: expected --second-order or --codecs, found nothing to add to it; give one of "
        "them");
  if (!o.probes_network() && (o.budget || o.largest || o.link))
    throw UsageError(
        "--budget, --largest and --link belong to probes; leave out --from and --cluster");
  if (!o.device.empty() && !o.codecs && !o.probes_second_order())
    throw UsageError(
        "--device: expected --codecs or --second-order without a table, which are measured there, "
        "found neither; add one of them");
  if (!o.probes_network() && o.threads && !o.needs_torch())
    throw UsageError("--threads belongs to probes; leave out --from and --cluster");
  if (o.logs.empty() && (o.collective || o.line_rate || o.ranks_per_node))
    throw UsageError(
        "--collective, --line-rate and --ranks-per-node belong to logs; give --from LOG");
}

}  // namespace

// Logs, the Cluster and the table; empty names are no files.
std::vector<std::string> CalibrateOptions::inputs() const {
  std::vector<std::string> all = logs;
  all.insert(all.end(), {cluster, second_order.value_or("")});
  return all;
}

// No ranks for logs alone, one rank for what LibTorch measures without a launcher, and MPI's ranks
// for the rest.
Calibrated calibrate(const CalibrateOptions& o, const Caller& caller, const TorchProbes& probes) {
  check_options(o);
  if (!o.device.empty() && !probes.on_device)
    throw UsageError(
        "--device: LibTorch measures there, and this program has none; run linerate-torch "
        "calibrate --device, of a build with LibTorch");
  if (o.probes_second_order() && !probes.second_order)
    throw UsageError(
        "--second-order: LibTorch measures it, and this program has none; give a table, or run "
        "linerate-torch calibrate --second-order, of a build with LibTorch");
  if (!o.probes_network() && !o.needs_torch()) return calibrated(o, nullptr, caller, probes);
  if (o.probes_network() || comm::launcher_rank())
    return calibrated(o, world_of(o).get(), caller, probes);
  // A rank that no launcher started needs no MPI, unless its network is asked for. So
  // "--second-order --cluster c.json" runs without mpirun.
  Calibrated found;
  comm::run_ranks(
      1, [&](comm::Communicator& alone) { found = calibrated(o, &alone, caller, probes); }, {});
  return found;
}

void add_options(CLI::App& verb, CalibrateOptions& o) {
  verb.add_option(
      "--from", o.logs,
      "Logs to fit: nccl-tests or rccl-tests (text, JSON or CSV), OSU micro-benchmarks, or tables "
      "bytes,seconds[,ranks[,collective[,type]]]. Or the traces of all ranks of a job, for its "
      "collectives, contention and start delay. Default: probe the ranks of this mpirun.");
  add_parsed(verb, "--budget", o.budget, parse_time, "Time that the probes may take. Default: 10s.")
      ->type_name(kTime);
  add_parsed(verb, "--largest", o.largest, parse_size,
             "Largest collective to probe. Default: 64MiB.")
      ->type_name(kSize);
  add_link_option(verb, o.link);
  verb.add_option("--threads", o.threads,
                  "Compute threads per rank while probing. Default: cores / ranks.")
      ->check(count(1, kMostThreads));
  // One rank sends nothing, and a fit of it would be a fit of noise.
  add_parsed(
      verb, "--ranks", o.ranks, list_of(parse_ranks<2>),
      "Ranks that took part, if the log does not say: one count, or one for each log, such as "
      "2,4. When probing: the ranks expected.");
  verb.add_option(
          "--ranks-per-node", o.ranks_per_node,
          "Ranks that share a node, if the logs do not list their hosts, or not all of them.")
      ->check(count(1, kMostRanks));
  verb.add_option("--cores", o.cores,
                  "CPU cores that all ranks compute on together. Default: the probes count them.")
      ->check(count(1, kMostRanks));
  verb.add_option("--codecs", o.codecs,
                  "Also time compressors: \"topk,powersgd(rank=4)\". Without names: all.")
      ->expected(0, 1);
  verb.add_option("--second-order", o.second_order,
                  "Also measure what K-FAC costs: factors, inverses and directions on these ranks. "
                  "Or give a table of another machine, with lines inv,DIM,SECONDS.")
      ->expected(0, 1);
  verb.add_option("--device", o.device,
                  "Device for --codecs and --second-order, as PyTorch names it: cuda, cuda:1, xpu. "
                  "cpu: the device code on CPU tensors. Default: processors, with their own code.")
      ->type_name("DEVICE");
  verb.add_option("-c,--cluster", o.cluster,
                  "A Cluster to add --second-order or --codecs to. Its network is not probed.");
  add_parsed(verb, "--collective", o.collective, parse_collective,
             "The collective that was measured, if the log does not say.");
  add_parsed(verb, "--line-rate", o.line_rate, parse_bandwidth,
             "Rate of the slowest link, such as 100Gbit/s; --bandwidth means this rate. Faster "
             "times are refused. Default: assumed from what collectives got of it.")
      ->type_name(kRate);
}

}  // namespace linerate::verbs
