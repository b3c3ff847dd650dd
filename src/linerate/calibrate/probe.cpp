#include "linerate/calibrate/probe.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/calibrate/codec_probe.hpp"
#include "linerate/calibrate/contention_probe.hpp"
#include "linerate/calibrate/fit.hpp"
#include "linerate/calibrate/host_probe.hpp"
#include "linerate/core/error.hpp"

namespace linerate::calibrate {
namespace {

// The rest of the budget is contention's; the sleep probe takes half a second of any budget.
constexpr double kCollectiveShare = 0.7;

}  // namespace

void require_network(const comm::Communicator& communicator) {
  if (communicator.size() < 2)
    throw UsageError(
        "calibrate: one rank has no network to probe; start it as mpirun -n 2 linerate calibrate "
        "..., "
        "or give a log with --from");
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
  cluster.progress_sleep_s = probe_progress_sleep(communicator).value;
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

}  // namespace linerate::calibrate
