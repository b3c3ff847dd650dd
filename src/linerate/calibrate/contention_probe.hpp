// How much computation, communication and coding slow each other down when they are active on the
// same ranks.
#pragma once

#include <vector>

#include "linerate/calibrate/collective_probe.hpp"
#include "linerate/calibrate/compute_load.hpp"
#include "linerate/comm/communicator.hpp"
#include "linerate/doc/cluster.hpp"

namespace linerate::calibrate {

struct ContentionProbeOptions {
  /// All-reduces of one round, back to back, as a step of bucketed training sends them.
  std::vector<Bytes> exchange = {MiB(1), MiB(8), MiB(16)};
  Duration budget{4};
  int fewest_rounds = 3;
  int messages = 20;  // small all-reduces of one round
  Progress progress = {};
};

/// Every round, on all ranks at once: computation alone, communication alone, both together. If 100
/// slices a second run alone and 80 during the exchange, compute_slowdown is 1.25. If the exchange
/// takes 10 ms alone and 12 ms during computation, communication_slowdown is 1.2.
///
/// - compute_slowdown: slices a second alone / slices a second over the exchange.
/// - communication_slowdown: time of the exchange while all ranks compute / while they sleep.
/// - coding_slowdown: slices a second alone / slices a second while a thread of each rank casts.
/// - message_s: processor time of a rank over a small all-reduce, less that over as long a rest.
///
/// Medians over rounds, mean over ranks; slowdowns are at least 1. Computation "alone" has all
/// ranks computing, because cores shared by ranks are no cost of communication. Collective; every
/// rank returns the same.
doc::Contention probe_contention(comm::Communicator& communicator, ComputeLoad& load,
                                 const ContentionProbeOptions& options);

/// The sleep of the progress thread: the longest time that an idle communicator took from
/// submission to its first message. It is measured in 20 trials, each after 20 ms of silence.
/// Collective.
Seconds probe_progress_sleep(comm::Communicator& communicator);

}  // namespace linerate::calibrate
