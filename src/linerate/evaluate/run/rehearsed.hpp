// A setup whose computation waits: step times alone, on the network at hand.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "linerate/comm/communicator.hpp"
#include "linerate/core/units.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/evaluation.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/evaluate/run/contest.hpp"

namespace linerate::evaluate {

struct RehearsedOptions {
  ContestOptions contest;
  std::string network = "host";
  std::optional<BytesPerSecond> line_rate;  // of the network; plans are made for it
};

/// Without runs: what tells it from others.
doc::Setup empty_setup(const comm::Communicator& communicator, const doc::Workload& workload,
                       const RehearsedOptions& options);

/// Encoding and decoding wait as long as the Cluster's codecs say (calibrate --codecs); a note
/// names those that it does not know, which cost nothing here. Complete and alike on every rank.
/// Collective.
doc::Setup rehearsed_setup(comm::Communicator& communicator, const doc::Workload& workload,
                           const doc::Cluster& cluster, const RehearsedOptions& options,
                           const std::function<void(const std::string&)>& progress = {});

}  // namespace linerate::evaluate
