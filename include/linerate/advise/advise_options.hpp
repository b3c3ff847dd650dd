// What is asked of advise().
#pragma once

#include <optional>
#include <vector>

#include "linerate/advise/convergence.hpp"
#include "linerate/advise/progress.hpp"
#include "linerate/core/units.hpp"
#include "linerate/doc/strategy.hpp"

namespace linerate::advise {

/// What advise() is to look for, and what it may assume.
struct AdviseOptions {
  int ranks = 0;                            // 0: the Cluster's
  std::optional<BytesPerSecond> bandwidth;  // absent: the Cluster's
  std::optional<Seconds> latency;  // of the network, per message step; absent: the Cluster's
  doc::Strategy current = doc::parse_strategy("ddp");  // the strategy in use
  std::vector<doc::Component> codecs;                  // codec(ratio=8, encode=10GB/s, ...)
  std::vector<doc::Strategy> more;                     // considered besides the search space
  std::optional<double> memory_bytes;  // for the exchange, per rank; absent: the Cluster's
  std::vector<StepsToTarget> steps;    // what strategies that change convergence cost in steps
  double least_gain = 0.02;            // of the step: less is not worth a change
  OnProgress on_progress = {};         // called while it works; empty: not
};

}  // namespace linerate::advise
