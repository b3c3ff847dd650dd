// What is asked of advise().
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "linerate/advise/convergence.hpp"
#include "linerate/advise/progress.hpp"
#include "linerate/core/units.hpp"
#include "linerate/doc/strategy.hpp"

namespace linerate::advise {

/// Whose strategies are candidates, and in whose words they are named. These are all of linerate's,
/// or what PyTorch's DistributedDataParallel, its communication hooks and its options can do.
enum class Framework { linerate, pytorch };
/// "pytorch". Throws UsageError, which says what is known.
[[nodiscard]] Framework parse_framework(const std::string& text);

/// What advise() is to look for, and what it may assume.
struct AdviseOptions {
  int ranks = 0;                            // 0: the Cluster's
  std::optional<BytesPerSecond> bandwidth;  // absent: the Cluster's
  std::optional<Seconds> latency;  // of the network, per message step; absent: the Cluster's
  doc::Strategy current = doc::parse_strategy("ddp");  // the strategy in use
  bool current_is_known = true;                        // false: a guess, since nothing says which
  Framework framework = Framework::linerate;           // restricts the search
  std::vector<doc::Component> codecs;                  // codec(ratio=8, encode=10GB/s, ...)
  std::vector<doc::Strategy> more;                     // considered besides the search space
  // Their exchanges are not considered: this very job has tried them and found them slower.
  std::vector<doc::Strategy> refuted;
  std::optional<double> memory_bytes;  // for the exchange, per rank; absent: the Cluster's
  std::vector<StepsToTarget> steps;    // what strategies that change convergence cost in steps
  double least_gain = 0.02;            // of the step: less is not worth a change
  OnProgress on_progress = {};         // called while it works; empty: not
};

}  // namespace linerate::advise
