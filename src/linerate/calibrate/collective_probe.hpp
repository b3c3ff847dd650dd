// Times collectives between the ranks of a job: operation and size -> samples that fit_cluster
// takes.
#pragma once

#include <functional>
#include <vector>

#include "linerate/calibrate/call_train.hpp"
#include "linerate/comm/communicator.hpp"
#include "linerate/core/duration.hpp"
#include "linerate/core/units.hpp"
#include "linerate/doc/cluster.hpp"

namespace linerate::calibrate {

/// How far a probe is, 0 to 1; called on every rank.
using Progress = std::function<void(double)>;

struct CollectiveProbeOptions {
  Bytes smallest = KiB(1);
  Bytes largest = MiB(64);
  Duration budget{6};
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
  int added = 0;  // sizes measured because the fit missed their neighbours
};

/// Measures in rounds. A round is one train (CallTrain) of all sizes of all operations. Their order
/// is shuffled, so that a slow moment of the machine hits all alike. Short calls come several times
/// in a row.
///
/// Sizes are first those that fit the budget: all-reduce at every doubling, the others at every
/// second. After the fewest rounds, and after each that follows, sizes are added if the fit does
/// not foresee them (next_size). That takes at most half of the time left.
///
/// A round's time is the mean over ranks. A sample is the median over rounds, its spread their 10th
/// to 90th percentile. Collective; every rank returns the same.
CollectiveProbe probe_collectives(comm::Communicator& communicator,
                                  const CollectiveProbeOptions& options);

/// The same with another timer: what it says on each rank is agreed over `communicator`.
CollectiveProbe probe_collectives(comm::Communicator& communicator, CallTimer& timer,
                                  const CollectiveProbeOptions& options);

}  // namespace linerate::calibrate
