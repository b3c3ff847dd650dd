// How long each task of a Plan takes: what the Workload says, or what the cost model asks for it.
#pragma once

#include <vector>

#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/plan.hpp"

namespace linerate::sim {

enum class Bound { expected, low, high };

/// Prices tasks for one rank count. Keeps one cost curve per collective and wire type; valid as
/// long as the cost model.
class Prices {
 public:
  Prices(const cost::CostModel& model, int ranks, Bound bound = Bound::expected)
      : model_(model), ranks_(ranks), bound_(bound) {}

  double seconds(const doc::Task& task) {
    if (!doc::is_communication(task.kind)) return task.seconds;
    return exchange_seconds(task);
  }

  const cost::CostModel& model() const { return model_; }
  int ranks() const { return ranks_; }
  /// True when every collective priced so far carries a measured error: one of unknown error makes
  /// the whole unknown.
  bool has_known_error() const;

 private:
  struct Line {
    doc::TaskKind kind;
    DType wire;
    cost::CostCurve curve;
  };
  double exchange_seconds(const doc::Task& task) {
    const auto bytes = static_cast<double>(task.bytes);
    for (const Line& l : lines_)
      if (l.kind == task.kind && l.wire == task.wire) return priced(l.curve, bytes);
    return priced(add(task), bytes);
  }
  double priced(const cost::CostCurve& curve, double bytes) const {
    return bound_ == Bound::expected ? curve.seconds(bytes) : bounded(curve, bytes);
  }
  double bounded(const cost::CostCurve& curve, double bytes) const;
  const cost::CostCurve& add(const doc::Task& task);

  const cost::CostModel& model_;
  int ranks_;
  Bound bound_;
  std::vector<Line> lines_;
};

/// The collective behind a communication task. Throws InternalError for other kinds.
Collective collective_of(doc::TaskKind kind);

}  // namespace linerate::sim
