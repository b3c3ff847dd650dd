// How long each task of a Plan takes: what the Workload says, or what the cost model asks for it.
#pragma once

#include <vector>

#include "linerate/cost/cost_curve.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/cluster.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/sim/broadcast_reach.hpp"

namespace linerate::sim {

// Which end of the cost model's interval counts.
enum class Bound { expected, low, high };

/// Prices tasks of a job of so many ranks. Keeps one cost curve per collective, wire type and size
/// of a part; valid as long as the cost model.
class Prices {
 public:
  Prices(const cost::CostModel& model, int ranks, Bound bound = Bound::expected)
      : model_(model),
        ranks_(ranks),
        bound_(bound),
        start_delay_s_(model.cluster().start_delay_s) {}

  /// A collective joins all ranks; what its task says comes on top of what the cost model does.
  double seconds(const doc::Task& task) {
    if (!doc::is_communication(task.kind)) return task.seconds;
    const auto bytes = static_cast<double>(task.priced_bytes());
    for (const Line& l : lines_)
      if (l.kind == task.kind && l.wire == task.wire) return task.seconds + priced(l.curve, bytes);
    return task.seconds + priced(add(lines_, task, ranks_), bytes);
  }
  /// A collective joins `ranks` of them. A rank by itself exchanges nothing: 0.
  double seconds_of_part(const doc::Task& task, int ranks);

  /// Prices a broadcast among `ranks` of them, split into a rank's own part and the time until the
  /// last rank has it. A rank's own part is the start-up and the growth of the curve with the
  /// bytes, since each further byte occupies a link. It is no more than the root of a binomial tree
  /// sends over its link at the Cluster's bandwidth. The rest of the time is spent on other ranks'
  /// links: a chain of chunks fills, or inner ranks of a tree send on. The closed form of
  /// closed_form.hpp leaves no rest.
  BroadcastTime broadcast_of_part(const doc::Task& task, int ranks);

  /// The time from the end of a task's predecessors until an idle resource can start it
  /// (doc::Cluster::start_delay_s); `ranks`: of the part that it joins.
  double start_delay_s(const doc::Task& task, int ranks) const {
    return ranks > 1 && doc::is_communication(task.kind) ? start_delay_s_ : 0;
  }
  double start_delay_s(const doc::Task& task) const { return start_delay_s(task, ranks_); }

  const cost::CostModel& model() const { return model_; }
  /// The Cluster's contention. At a bound, the time that it costs is lower or higher by the share
  /// by which measurements of the Cluster differ (doc::Cluster::noise_floor).
  doc::Contention contention() const;
  /// True when every collective priced so far carries a measured error: one of unknown error makes
  /// the whole unknown.
  bool has_known_error() const;

 private:
  struct Line {
    doc::TaskKind kind;
    DType wire;
    int ranks;
    cost::CostCurve curve;
  };
  /// For all ranks, or for a part of them.
  const cost::CostCurve& curve_of(const doc::Task& task, int ranks);
  double priced(const cost::CostCurve& curve, double bytes) const {
    return bound_ == Bound::expected ? curve.seconds(bytes) : bounded(curve, bytes);
  }
  double bounded(const cost::CostCurve& curve, double bytes) const;
  const cost::CostCurve& add(std::vector<Line>& lines, const doc::Task& task, int ranks);

  const cost::CostModel& model_;
  int ranks_;
  Bound bound_;
  double start_delay_s_;
  std::vector<Line> lines_;       // of all ranks
  std::vector<Line> part_lines_;  // of fewer
};

}  // namespace linerate::sim
