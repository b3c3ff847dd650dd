// linerate calibrate: logs people already have, or probes under mpirun, become a Cluster with
// errors.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "linerate/calibrate/device_probe.hpp"
#include "linerate/comm/communicator.hpp"
#include "linerate/doc/second_order_cost.hpp"
#include "linerate/verbs/caller.hpp"

namespace CLI {
class App;
}

namespace linerate::verbs {

struct CalibrateOptions {
  std::vector<std::string> logs;
  std::optional<std::string> codecs;        // empty: all of them
  std::optional<std::string> second_order;  // a table; empty: measured on these ranks
  std::string device;                       // where both are measured; empty: on processors
  std::string cluster;                      // what to add to; empty: a new one
  std::string collective, line_rate, budget, largest, ranks, link;
  std::optional<int> threads, ranks_per_node, cores;

  /// Nothing else gives a network.
  bool probes_network() const { return logs.empty() && cluster.empty(); }
  /// On these ranks, rather than read from a table.
  bool probes_second_order() const { return second_order && second_order->empty(); }
  /// Compressors have code for processors of their own; K-FAC and devices are LibTorch's.
  bool needs_torch() const { return probes_second_order() || !device.empty(); }
  /// The files it names, for refuse_input_as_output().
  std::vector<std::string> inputs() const;
};

void add_options(CLI::App& verb, CalibrateOptions& options);

/// Collective; with so many compute threads a rank. What K-FAC costs is measured by LibTorch.
using SecondOrderProbe = std::function<doc::SecondOrderSamples(comm::Communicator&, int threads)>;

/// What LibTorch measures; empty without it.
struct TorchProbes {
  SecondOrderProbe second_order;
  calibrate::DeviceProbe on_device;
};

struct Calibrated {
  doc::Cluster cluster;  // on every rank of a probe
  bool is_first = true;  // of the ranks: the one that prints and writes
  std::vector<std::string> notes;
};

/// `probes`: for needs_torch(); empty: a UsageError then. Throws UsageError, InputError; CommError
/// if probes need ranks that are not there, DeviceError if a device is not.
Calibrated calibrate(const CalibrateOptions& options, const Caller& caller = {},
                     const TorchProbes& probes = {});

}  // namespace linerate::verbs
