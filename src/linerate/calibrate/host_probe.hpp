// What the machines of a job have besides its network: cores, and what adding 16-bit numbers takes.
#pragma once

#include "linerate/comm/communicator.hpp"
#include "linerate/core/duration.hpp"
#include "linerate/core/units.hpp"

namespace linerate::calibrate {

/// Cores of all machines that the ranks run on, each machine counted once: containers and network
/// namespaces of one kernel are one machine.
/// Collective; every rank returns the same.
int probe_cores(comm::Communicator& communicator);

/// How many ranks before this one run on its machine. Collective.
int rank_on_machine(comm::Communicator& communicator);

struct HalfSumProbeOptions {
  Bytes size = MiB(4);  // of one all-reduce
  Duration budget{0.5};
  int fewest_rounds = 5;
};

/// Seconds a byte that sums of f16 numbers take longer than as many bytes of f32; at least 0.
/// All-reduces of both types are timed in turn. A rank adds the share (n-1)/n of the bytes. On four
/// ranks 4 MiB are 3 MiB to add, so 0.6 ms more are 0.2 ms for each MiB. Collective; every rank
/// returns the same.
double probe_half_sum(comm::Communicator& communicator, const HalfSumProbeOptions& options = {});

}  // namespace linerate::calibrate
