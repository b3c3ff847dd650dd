// A network that is known by its kind alone: nothing of it was measured.
// Thread safety: values.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace linerate::doc {

/// How an all-reduce crosses nodes of several ranks.
enum class NetworkLaw {
  one_ring,  // over all n ranks: 2 (n - 1) / n of the data over every line, at its slowest link
  by_node    // a tree, or rings by rail: 2 (N - 1) / N of the data between N nodes
};
/// Their names in JSON and in `linerate list networks`, by value.
inline constexpr std::array<std::string_view, 2> kNetworkLawNames = {"one-ring", "by-node"};

/// The numbers of a kind of link, inside a node or between nodes. Message steps are the Link's.
struct NominalLevel {
  double efficiency = 1;        // share of a line that collectives get
  double most_bytes_per_s = 0;  // that they get whatever the line; 0: no bound
  double start_s = 0;           // of a collective, besides its message steps
  // 90 % of networks of the kind lie within these factors, either way: of what does not grow with
  // the bytes, and of what does.
  double start_spread = 1, transfer_spread = 1;
  int measurements = 0;  // public ones that the numbers come from
  bool adds = false;     // between nodes: switches add, so an all-reduce crosses a line once

  /// The rate that collectives get of a line.
  double goodput(double line_bytes_per_s) const {
    const double share = efficiency * line_bytes_per_s;
    return most_bytes_per_s > 0 && share > most_bytes_per_s ? most_bytes_per_s : share;
  }
};

/// Costs of collectives follow the law and the Links of the Cluster, and lie within the spread of
/// the kinds.
struct NominalNetwork {
  std::string name;  // as --network names it; empty: a bandwidth alone, of a network of any kind
  NetworkLaw law = NetworkLaw::one_ring;  // of its nodes
  NominalLevel inside, between;           // a node, and nodes
  double slowdown_high = 1;               // of computing next to communication, at most; 90 %
  double step_spread = 0;                 // of one rank's step between runs, relative, 90 %
};

}  // namespace linerate::doc
