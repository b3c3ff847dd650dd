// linerate whatif all-reduce | all-gather | ...: the time of one collective.
#pragma once

#include <string>

#include "linerate/core/collective.hpp"
#include "linerate/cost/collective_times.hpp"
#include "linerate/verbs/caller.hpp"
#include "linerate/verbs/network_argument.hpp"

namespace CLI {
class App;
}

namespace linerate::verbs {

struct CollectiveOptions {
  Collective collective = Collective::all_reduce;
  NetworkArgument network;
  std::string ranks, sizes, bandwidth, latency;
};

/// All but the collective: its name is the verb's.
void add_options(CLI::App& verb, CollectiveOptions& options);
/// Throws UsageError, InputError.
cost::CollectiveTimes whatif_collective(const CollectiveOptions& options,
                                        const Caller& caller = {});

}  // namespace linerate::verbs
