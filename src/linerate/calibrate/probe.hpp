// Measures a running job's own network and cores: a Communicator -> a Cluster, in about ten
// seconds.
#pragma once

#include <vector>

#include "linerate/calibrate/collective_probe.hpp"
#include "linerate/calibrate/compute_load.hpp"
#include "linerate/comm/communicator.hpp"
#include "linerate/core/duration.hpp"
#include "linerate/core/units.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/strategy.hpp"

namespace linerate::calibrate {

struct ProbeOptions {
  Duration budget{10};                      // all probes together
  Bytes largest = MiB(64);                  // largest collective
  std::vector<doc::Component> codecs = {};  // not in the budget; on every rank at once
  Progress progress = {};
};

/// Throws UsageError in a world of one rank.
void require_network(const comm::Communicator& communicator);

/// Measures these in order:
///
/// 1. all-reduce, reduce-scatter, all-gather and broadcast, with the noise floor of an A/A run
/// 2. the slowdown of computation and communication by each other (`load` on every rank)
/// 3. the progress thread's sleep
/// 4. the machines' cores
/// 5. what sums of 16-bit numbers take beyond those of f32
/// 6. the codecs
///
/// Collective: every rank calls it and gets the same Cluster. Throws as require_network().
doc::Cluster probe_cluster(comm::Communicator& communicator, ComputeLoad& load,
                           const ProbeOptions& options = {});

}  // namespace linerate::calibrate
