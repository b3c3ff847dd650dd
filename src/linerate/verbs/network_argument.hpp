// -c FILE or --network KIND, or a bandwidth alone: the network a verb works on.
#pragma once

#include <memory>
#include <string>

#include "linerate/doc/cluster.hpp"
#include "linerate/verbs/caller.hpp"

namespace CLI {
class App;
}

namespace linerate::verbs {

struct NetworkArgument {
  std::string cluster, kind;

  bool is_given() const { return !cluster.empty() || !kind.empty(); }
};

void add_network_options(CLI::App& verb, NetworkArgument& argument);
/// The Cluster of the file or of the kind. Of neither, an empty one with a network of any kind, if
/// `has_bandwidth`. Throws UsageError, InputError for a file that cannot be read.
std::shared_ptr<const doc::Cluster> read_network(const NetworkArgument& argument,
                                                 bool has_bandwidth, const Caller& caller);

}  // namespace linerate::verbs
