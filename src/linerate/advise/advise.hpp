// Searches strategies and their options over the simulator and says what to do about the network:
// a strategy, nothing, or that the predictions do not tell.
#pragma once

#include <optional>
#include <vector>

#include "linerate/advise/convergence.hpp"
#include "linerate/core/units.hpp"
#include "linerate/doc/advice.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/doc/workload.hpp"

namespace linerate::advise {

struct AdviseOptions {
  int ranks = 0;                            // 0: the Cluster's
  std::optional<BytesPerSecond> bandwidth;  // absent: the Cluster's
  std::optional<Seconds> latency;
  doc::Strategy current = doc::parse_strategy("ddp");
  std::vector<doc::Component> codecs;  // codec(ratio=8, encode=10GB/s, ...)
  std::vector<doc::Strategy> more;     // considered besides the search space
  std::optional<double> memory_bytes;  // for the exchange, per rank; absent: the Cluster's
  std::vector<StepsToTarget> steps;
  double least_gain = 0.02;  // of the step: less is not worth a change
};

/// Ranked are strategies that take the same steps as the current one, and others whose
/// steps-to-target ratio is known, by step x ratio. do nothing: the current strategy is the best or
/// within least_gain of it. inconclusive: the best gains more, but their intervals overlap. change:
/// else. Deterministic. Throws UsageError and InputError.
doc::Advice advise(const doc::Workload& workload, const doc::Cluster& cluster,
                   const AdviseOptions& options);

}  // namespace linerate::advise
