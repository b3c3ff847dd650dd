#include "linerate/sim/prices.hpp"

#include <algorithm>

#include "linerate/core/error.hpp"

namespace linerate::sim {

Collective collective_of(doc::TaskKind kind) {
  switch (kind) {
    case doc::TaskKind::all_reduce:
      return Collective::all_reduce;
    case doc::TaskKind::reduce_scatter:
      return Collective::reduce_scatter;
    case doc::TaskKind::all_gather:
      return Collective::all_gather;
    case doc::TaskKind::all_to_all:
      return Collective::all_to_all;
    case doc::TaskKind::broadcast:
      return Collective::broadcast;
    default:
      break;
  }
  throw InternalError(std::string("not a collective: ") + std::string(name_of(kind)));
}

const cost::CostCurve& Prices::add(const doc::Task& task) {
  lines_.push_back(
      {task.kind, task.wire, model_.curve(collective_of(task.kind), ranks_, task.wire)});
  return lines_.back().curve;
}

double Prices::bounded(const cost::CostCurve& curve, double bytes) const {
  const cost::Estimate e = curve.estimate(bytes);
  return bound_ == Bound::low ? e.low : e.high;
}

bool Prices::has_known_error() const {
  return !lines_.empty() && std::all_of(lines_.begin(), lines_.end(),
                                        [](const Line& l) { return l.curve.fitted != nullptr; });
}

}  // namespace linerate::sim
