// Networks that nobody measured but whose kind is known: what --network names.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/doc/cluster.hpp"

namespace linerate::cost {

/// A kind of link between the ranks of a node, or between nodes. Thread safety: a value.
struct NetworkKind {
  std::string name;                                 // "pcie3", "tcp"
  bool between = false;                             // nodes; false: ranks of a node
  std::string says;                                 // one sentence
  doc::NetworkLaw law = doc::NetworkLaw::one_ring;  // of nodes of this kind inside
  double line_bytes_per_s = 0;                      // of a rank's link inside; else 0
  double step_s = 0;                                // per message step
  doc::NominalLevel level;                          // the rest of its costs
  double slowdown = 1, slowdown_high = 1;           // of computing next to communication
  std::vector<std::string> sources;                 // of the numbers

  /// The time of a collective of `ranks` without its bytes, in one ring.
  double start_up_s(int ranks) const { return level.start_s + 2 * (ranks - 1) * step_s; }
};

/// networks.json as it stood when the build was configured, or the file that the environment
/// variable LINERATE_NETWORKS names: kinds inside nodes first. Throws InputError for such a file.
[[nodiscard]] const std::vector<NetworkKind>& network_kinds();

/// The Cluster that a text names: "4xpcie3,tcp:10Gbit/s", "8xnvlink4" (one node) or
/// "tcp:10Gbit/s" (one rank a node). Its ranks are unknown. Throws UsageError.
[[nodiscard]] doc::Cluster nominal_cluster(std::string_view text);

/// A network whose kind is not known: its costs reach up to those of the slowest kind. Kinds across
/// sites are left out, as their latencies are their own.
[[nodiscard]] doc::NominalNetwork any_network();

/// How wide the interval of an answer would be by this Cluster: high end less low end, 0 without
/// one.
using WidthOf = std::function<double(const doc::Cluster&)>;

/// Says that nothing of the network was measured, and what to measure first to halve the interval.
/// Five things may be unknown: links between nodes, links inside, computing next to communication,
/// one rank's step, and coding. The one that narrows the interval most comes first, then the next
/// one, until the interval is halved. Empty if something was measured, and for links that a Cluster
/// states: reports say of these that they have no interval.
[[nodiscard]] std::string nominal_note(const doc::Cluster& cluster, int ranks,
                                       const WidthOf& width_of);

}  // namespace linerate::cost
