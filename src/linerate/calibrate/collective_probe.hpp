// Times collectives between the ranks of a job: operation and size -> samples that fit_cluster
// takes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/core/units.hpp"
#include "linerate/doc/cluster.hpp"

namespace linerate::calibrate {

/// How far a probe is, 0 to 1; called on every rank.
using Progress = std::function<void(double)>;

struct CollectiveProbeOptions {
  Bytes smallest = KiB(1);
  Bytes largest = MiB(64);
  Seconds budget{6};
  int fewest_rounds = 3;  // taken even beyond the budget
  int most_rounds = 400;
  Progress progress = {};
};

struct CollectiveProbe {
  std::vector<doc::CollectiveCost>
      tables;  // samples only: all-reduce, reduce-scatter, all-gather, broadcast
  /// Relative difference of the medians of odd and even rounds, the 90th percentile over all sizes:
  /// an A/A run.
  double noise_floor = 0;
  int rounds = 0;
};

/// All sizes of all operations once a round (interleaved, so that a slow moment of the machine hits
/// all alike), after one round that warms up and finds out which sizes fit the budget. A time is
/// the least over ranks of one call's transfer: a rank that comes early waits, and waiting is no
/// transfer. A sample is the median over rounds, its spread their 10th to 90th percentile.
/// All-reduce at every doubling, the others at every second. Collective; every rank returns the
/// same.
CollectiveProbe probe_collectives(comm::Communicator& communicator,
                                  const CollectiveProbeOptions& options);

}  // namespace linerate::calibrate
