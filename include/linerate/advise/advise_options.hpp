// What is asked of advise().
#pragma once

#include <optional>
#include <vector>

#include "linerate/advise/convergence.hpp"
#include "linerate/advise/progress.hpp"
#include "linerate/core/units.hpp"
#include "linerate/doc/strategy.hpp"

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
  OnProgress on_progress = {};
};

}  // namespace linerate::advise
