// The step that one rank takes alone: its parts, and the same job with other times.
#pragma once

#include "linerate/doc/cluster.hpp"
#include "linerate/doc/workload.hpp"

namespace linerate::doc {

/// The parts of T_1, in seconds; forward + backward + update + tail = T_1 always. Measured parts
/// are kept if they fit into the measured step, and the rest of T_1 is `tail`. Parts that add up to
/// more than T_1 are shrunk alike. An unknown forward pass gets the time that nothing else claims.
struct OneRankParts {
  double forward_s = 0;
  double backward_s = 0;
  double update_s = 0;
  double tail_s = 0;
};
OneRankParts parts_of(const Workload& workload);

/// Every time of a step that the device takes, but for those of `blocks`: change(double&).
template <typename Change>
void each_device_time(Workload& w, const Change& change) {
  const auto known = [&change](std::optional<double>& s) {
    if (s) change(*s);
  };
  for (Layer& layer : w.layers) known(layer.forward_s), known(layer.backward_s);
  for (Gradient& g : w.gradients) change(g.ready_s);
  for (OtherCollective& o : w.other_collectives) change(o.at_s);
  change(w.backward_s), known(w.forward_s), known(w.update_s);
}

/// The same step, `factor` times as long in all its parts, those of the host too. What describes
/// the device (add_cost) stays.
Workload with_times(Workload workload, double factor);

/// The step that each of several ranks computes, with `share` of what several_ranks->compute_factor
/// adds. Factors of K-FAC stay.
Workload among_ranks(Workload workload, double share = 1);
/// The Cluster with the slowdown of computing that the Workload's own job has.
Cluster slowed_by(Cluster cluster, const Workload& workload);

/// The same job on a device `speed` times as fast: forward, backward, update, factors and add_cost
/// take less. The host's time (tail, and T_1 beyond the known parts) stays. Throws UsageError for a
/// speed that is not above 0.
Workload on_device(Workload workload, double speed);
/// The same Cluster with such devices. Factors, inverses and directions of K-FAC take less, and so
/// do its own codecs that code on the device that computes. Codecs on processors of their own,
/// those measured elsewhere and the network stay. Throws as above.
Cluster on_device(Cluster cluster, double speed);

}  // namespace linerate::doc
