// A setup whose computation waits: step times alone, on the network at hand.
#pragma once

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/evaluation.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/evaluate/contest.hpp"
#include "linerate/evaluate/run_setups.hpp"

namespace linerate::evaluate {

/// For this Workload on the ranks and the network of `place`; plans are made for its line rate.
/// Encoding and decoding wait as long as the Cluster's codecs say (calibrate --codecs); a note
/// names those that it does not know, which cost nothing here.
NewSetup rehearsed_setup(comm::Communicator& communicator, const doc::Workload& workload,
                         const doc::Cluster& cluster, const ContestOptions& options,
                         doc::Setup place, const Progress& progress = {});

}  // namespace linerate::evaluate
