// linerate advise: what to do about the network.
#pragma once

#include <string>
#include <vector>

#include "linerate/verbs/caller.hpp"
#include "linerate/verbs/network_argument.hpp"
#include "linerate/verbs/workload_argument.hpp"

namespace CLI {
class App;
}

namespace linerate::verbs {

struct AdviseOptions {
  WorkloadArgument workload;
  NetworkArgument network;
  std::string bandwidth, latency, memory;
  std::string current, framework;
  std::vector<std::string> codecs, strategies, steps;
  int ranks = 0;
  double least_gain_percent = 2;
};

void add_options(CLI::App& verb, AdviseOptions& options);
/// Throws UsageError, InputError.
doc::Advice advise(const AdviseOptions& options, const Caller& caller = {});

}  // namespace linerate::verbs
