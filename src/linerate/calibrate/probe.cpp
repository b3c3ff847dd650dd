#include "linerate/calibrate/probe.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <fstream>
#include <limits>
#include <map>
#include <thread>

#include "linerate/calibrate/fit.hpp"
#include "linerate/core/clock.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/cost/fitted.hpp"

namespace linerate::calibrate {
namespace {

// The rest of the budget is contention's; the sleep probe takes half a second of any budget.
constexpr double kCollectiveShare = 0.7;

// Run before the first planned step of a training job (replan/run_planner.cpp). Training waits for
// it, so sizes grow fourfold and each has three calls. That is enough to choose bucket sizes by,
// and not for predictions.

constexpr std::int64_t kSmallest = 4096, kLargest = 16 << 20;
constexpr double kLongest = 0.2;  // seconds for one call

/// Three calls in a row, mean over ranks.
double measure(comm::Communicator& communicator, CallTimer& timer, const Call& call) {
  std::vector<double> seconds = timer.time(std::array{CallRun{call, 3}});
  mean_over_ranks(communicator, seconds);
  return seconds[0];
}

/// One table of `kind`, from the smallest size up to `largest`, or to the first size that takes too
/// long.
doc::CollectiveCost probe(comm::Communicator& communicator, CallTimer& timer, Collective kind,
                          std::int64_t largest) {
  doc::CollectiveCost cost;
  cost.collective = kind;
  cost.ranks = communicator.size();
  cost.in_place = kind == Collective::all_reduce || kind == Collective::broadcast;
  cost.source = "probe before the first planned step";
  for (std::int64_t size = kSmallest; size <= largest; size *= 4) {
    const std::int64_t bytes = whole_blocks(size, communicator.size());
    const double seconds = measure(communicator, timer, {kind, bytes});
    // A larger message never costs less: noise of three repetitions must not suggest it.
    const double floor = cost.samples.empty() ? 0.0 : cost.samples.back().seconds;
    cost.samples.push_back({static_cast<double>(bytes), std::max(seconds, floor), 0, 0});
    if (seconds > kLongest) break;
  }
  bound_start_ups(cost.samples);
  cost.segments = segments_between(cost.samples);
  return cost;
}

// What machines have besides their network. Ranks find out who shares a machine by one all-reduce.
// Each rank writes a hash of its machine, and its cores, into its own place of a vector of zeros.
// The sum is the vector of all ranks.

/// The same for all ranks on one running kernel, whatever its containers and namespaces are named.
std::string machine() {
  std::string id;
  if (std::ifstream boot("/proc/sys/kernel/random/boot_id"); std::getline(boot, id)) return id;
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : std::string();
}

/// As doubles hold it: a hash of its name, and its cores.
struct Machine {
  double id = 0, cores = 0;
};

/// By rank. Collective.
std::vector<Machine> machines_of(comm::Communicator& communicator) {
  std::vector<double> all(2 * to_index(communicator.size()), 0.0);  // every rank fills in its own
  const auto mine = 2 * to_index(communicator.rank());
  all[mine] = static_cast<double>(std::hash<std::string>{}(machine()) >> 12);
  all[mine + 1] = std::max(1u, std::thread::hardware_concurrency());
  communicator.all_reduce(comm::buffer(all), comm::Reduce::sum, "core probe")->wait();
  std::vector<Machine> machines;
  for (std::size_t i = 0; i < all.size(); i += 2) machines.push_back({all[i], all[i + 1]});
  return machines;
}

}  // namespace

void require_network(const comm::Communicator& communicator) {
  if (communicator.size() < 2)
    throw UsageError(
        "calibrate: one rank has no network to probe; start it as tools/mpirun -n 2 linerate "
        "calibrate ..., or give a log with --from");
}

doc::Cluster probe_cluster(comm::Communicator& communicator, ComputeLoad& load,
                           const ProbeOptions& options) {
  require_network(communicator);
  CollectiveProbeOptions collectives;
  collectives.largest = options.largest;
  collectives.budget = options.budget * kCollectiveShare;
  if (options.progress)
    collectives.progress = [&](double done) { options.progress(kCollectiveShare * done); };
  const CollectiveProbe measured = probe_collectives(communicator, collectives);

  ContentionProbeOptions contention;
  contention.budget = options.budget * (1 - kCollectiveShare);
  if (options.progress)
    contention.progress = [&](double done) {
      options.progress(kCollectiveShare + (1 - kCollectiveShare) * done);
    };
  doc::Cluster cluster = fit_cluster(measured.tables, {});
  cluster.contention = probe_contention(communicator, load, contention);
  const IdleStart idle = probe_idle_start(communicator);
  cluster.progress_sleep_s = idle.longest_sleep_s;
  // The tables are of calls back to back.
  cluster.start_delay_s = std::max(
      0.0, idle.call_s - cost::evaluate(cluster.collectives.front(), kMessage.value).seconds);
  cluster.noise_floor = measured.noise_floor;
  cluster.cores = probe_cores(communicator);
  HalfSumProbeOptions sums;
  sums.size = std::min(sums.size, options.largest);
  cluster.half_sum_s_per_byte = probe_half_sum(communicator, sums);
  communicator.barrier("codec probe")->wait();
  add_codecs(cluster, options.codecs);
  cluster.name = fmt::format("{} ranks over {}", communicator.size(), communicator.transport());
  return cluster;
}

void bound_start_ups(std::vector<doc::CostSample>& samples) {
  for (std::size_t i = samples.size(); i-- > 1;) {
    doc::CostSample& part = samples[i - 1];
    const doc::CostSample& whole = samples[i];
    const double parts = whole.bytes / part.bytes;
    const double start_up = samples.front().seconds;
    part.seconds = std::min(part.seconds, (whole.seconds + (parts - 1) * start_up) / parts);
  }
}

std::vector<doc::CostSegment> segments_between(const std::vector<doc::CostSample>& samples) {
  constexpr std::int64_t kNoEnd = std::numeric_limits<std::int64_t>::max();
  std::vector<doc::CostSegment> segments;
  const auto add = [&segments](std::int64_t to, double alpha_s, double beta) {
    segments.push_back({.from_bytes = segments.empty() ? 0 : segments.back().to_bytes,
                        .to_bytes = to,
                        .alpha_s = alpha_s,
                        .beta_s_per_byte = beta,
                        .low = 0.5,
                        .high = 2});
  };
  for (std::size_t i = 0; i + 1 < samples.size(); ++i) {
    const doc::CostSample &a = samples[i], &b = samples[i + 1];
    const double beta = (b.seconds - a.seconds) / (b.bytes - a.bytes);
    const double alpha_s = a.seconds - beta * a.bytes;
    if (i == 0 && alpha_s < 0) add(static_cast<std::int64_t>(a.bytes), 0, a.seconds / a.bytes);
    const bool last = i + 2 == samples.size();
    add(last ? kNoEnd : static_cast<std::int64_t>(b.bytes), alpha_s, beta);
  }
  if (segments.empty())  // a link so slow that the smallest size already takes long
    add(kNoEnd, 0, samples[0].seconds / samples[0].bytes);
  return segments;
}

std::int64_t largest_probed(std::int64_t gradient_bytes) {
  return std::clamp<std::int64_t>(gradient_bytes, 16 * kSmallest, kLargest);
}

doc::Cluster quick_probe(comm::Communicator& communicator, CallTimer& timer,
                         std::int64_t largest_bytes, const std::vector<Collective>& kinds) {
  if (kinds.empty()) throw UsageError("quick_probe: expected a collective to time, found none");
  doc::Cluster cluster;
  cluster.name = "probed";
  cluster.ranks = communicator.size();
  for (const Collective kind : kinds)
    cluster.collectives.push_back(probe(communicator, timer, kind, largest_bytes));
  cluster.source = cluster.collectives.front().source;
  return cluster;
}

int probe_cores(comm::Communicator& communicator) {
  std::map<double, double> cores_of;
  for (const Machine& machine : machines_of(communicator)) cores_of[machine.id] = machine.cores;
  double cores = 0;
  for (const auto& [id, count] : cores_of) cores += count;
  return static_cast<int>(cores);
}

int rank_on_machine(comm::Communicator& communicator) {
  const std::vector<Machine> machines = machines_of(communicator);
  const auto mine = machines.begin() + communicator.rank();
  return static_cast<int>(
      std::count_if(machines.begin(), mine, [&](const Machine& m) { return m.id == mine->id; }));
}

double probe_half_sum(comm::Communicator& communicator, const HalfSumProbeOptions& options) {
  const std::int64_t bytes = options.size.value;
  std::vector<std::byte> zeros(to_index(bytes));
  const auto time = [&](DType type) {
    communicator.barrier("half sum probe")->wait();
    const std::int64_t begin = steady_ns();
    communicator
        .all_reduce({zeros.data(), {bytes / size_of(type)}, type}, comm::Reduce::sum,
                    "half sum probe")
        ->wait();
    return static_cast<double>(steady_ns() - begin) * 1e-9;
  };
  std::vector<double> full, half;
  double spent = 0;
  for (int round = 0; round < options.fewest_rounds || spent < options.budget.count(); ++round) {
    std::vector<double> seconds = {time(DType::f32), time(DType::f16)};
    mean_over_ranks(communicator, seconds);  // every rank stops after the same round
    full.push_back(seconds[0]), half.push_back(seconds[1]);
    spent += seconds[0] + seconds[1];
  }
  const double share = static_cast<double>(communicator.size() - 1) / communicator.size();
  const double extra = median(half) - median(full);
  return std::max(0.0, extra / (static_cast<double>(bytes) * share));
}

void add_device_samples(doc::Cluster& cluster, const DeviceSamples& samples) {
  for (const CodecSamples& codec : samples.codecs) {
    doc::CodecCost cost = fit_codec(codec);
    cost.device = samples.device;
    add_codec(cluster, cost);
  }
  if (samples.second_order) {
    cluster.second_order = fit_second_order(*samples.second_order);
    cluster.second_order->device = samples.device;
  }
  if (samples.device != "cpu") cluster.cores.reset();
}

}  // namespace linerate::calibrate
