#include "linerate/verbs/network_argument.hpp"

#include <CLI/CLI.hpp>

#include "linerate/core/error.hpp"
#include "linerate/cost/network_kinds.hpp"
#include "linerate/verbs/option_value.hpp"

namespace linerate::verbs {

void add_network_options(CLI::App& verb, NetworkArgument& a) {
  verb.add_option("-c,--cluster", a.cluster, "A Cluster, calibrated or written by hand.");
  verb.add_option("--network", a.kind,
                  "A network by its kind, if it was not measured, such as 4xpcie3,tcp:10Gbit/s "
                  "(linerate list networks).");
}

// A bandwidth alone is enough: then costs are those of a network of any kind, and intervals reach
// as far.
std::shared_ptr<const doc::Cluster> read_network(const NetworkArgument& a, bool has_bandwidth,
                                                 const Caller& caller) {
  if (!a.cluster.empty() && !a.kind.empty())
    throw UsageError("--cluster and --network name two networks; give one of them");
  if (!a.cluster.empty()) return cluster_of(a.cluster, caller);
  if (!a.kind.empty())
    return std::make_shared<doc::Cluster>(parse_option("--network", a.kind, cost::nominal_cluster));
  if (!has_bandwidth)
    throw UsageError(
        "-c: expected a Cluster, --network or --bandwidth, found none of them; give one");
  doc::Cluster cluster;
  cluster.nominal = cost::any_network();
  return std::make_shared<doc::Cluster>(std::move(cluster));
}

}  // namespace linerate::verbs
