// linerate calibrate [--from LOG] -o cluster.json: logs people already have, or probes under
// mpirun, become a Cluster with errors. Its verb stands in both programs: what K-FAC costs is
// measured by LibTorch.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "linerate/comm/communicator.hpp"
#include "linerate/doc/second_order_cost.hpp"

namespace CLI {
class App;
}

namespace linerate::cli {

struct CalibrateArguments {
  std::vector<std::string> logs;
  std::optional<std::string> codecs;        // empty: all of them
  std::optional<std::string> second_order;  // a table; empty: measured on these ranks
  std::string cluster;                      // what to add to; empty: a new one
  std::string output, collective, line_rate, budget, largest, ranks;
  std::optional<int> threads, ranks_per_node, cores;
  bool json = false;

  bool probes_network() const { return logs.empty() && cluster.empty(); }
  bool probes_second_order() const { return second_order && second_order->empty(); }
};

/// Collective; with so many compute threads a rank.
using SecondOrderProbe = std::function<doc::SecondOrderSamples(comm::Communicator&, int threads)>;

void add_calibrate_verb(CLI::App& app, void (*run)(const CalibrateArguments&));
/// `probe`: for probes_second_order(), else empty.
void run_calibrate(const CalibrateArguments& o, const SecondOrderProbe& probe = {});

}  // namespace linerate::cli
