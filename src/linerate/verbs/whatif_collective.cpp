#include "linerate/verbs/whatif_collective.hpp"

#include <CLI/CLI.hpp>

#include "linerate/core/text.hpp"
#include "linerate/verbs/option_value.hpp"

namespace linerate::verbs {

void add_options(CLI::App& verb, CollectiveOptions& o) {
  add_network_options(verb, o.network);
  verb.add_option(
      "--ranks", o.ranks,
      "Number of ranks that take part. May be several, such as 72,144. Default: the Cluster's.");
  if (o.collective != Collective::barrier)
    verb.add_option(
            "--size", o.sizes,
            "Size, or several, such as 1MiB,64MiB. For a gather or scatter: of the whole array.")
        ->required()
        ->type_name(kSize);
  verb.add_option(
          "--bandwidth", o.bandwidth,
          "Line rate of the network per direction, such as 100Gbit/s. Default: the Cluster's.")
      ->type_name(kRate);
  verb.add_option("--latency", o.latency, "Latency of the network per message step, such as 20us.")
      ->type_name(kTime);
}

// Lists of sizes and rank counts give a time for each pair. A barrier has no size, and one time for
// each rank count.
cost::CollectiveTimes whatif_collective(const CollectiveOptions& o, const Caller& caller) {
  cost::CostOptions options;
  if (!o.bandwidth.empty())
    options.bandwidth = parse_option("--bandwidth", o.bandwidth, parse_bandwidth);
  if (!o.latency.empty()) options.latency = parse_option("--latency", o.latency, parse_time);
  return cost::collective_times(*read_network(o.network, options.bandwidth.has_value(), caller),
                                o.collective, parse_option_list("--size", o.sizes, parse_size),
                                parse_option_list("--ranks", o.ranks, parse_ranks), options);
}

}  // namespace linerate::verbs
