#include "linerate/sim/prices.hpp"

#include <algorithm>

namespace linerate::sim {

double Prices::seconds_of_part(const doc::Task& task, int ranks) {
  if (ranks == ranks_ || !doc::is_communication(task.kind)) return seconds(task);
  if (ranks <= 1) return 0;
  const auto bytes = static_cast<double>(task.priced_bytes());
  for (const Line& l : part_lines_)
    if (l.ranks == ranks && l.kind == task.kind && l.wire == task.wire)
      return task.seconds + priced(l.curve, bytes);
  return task.seconds + priced(add(part_lines_, task, ranks), bytes);
}

const cost::CostCurve& Prices::add(std::vector<Line>& lines, const doc::Task& task, int ranks) {
  lines.push_back(
      {task.kind, task.wire, ranks, model_.curve(collective_of(task.kind), ranks, task.wire)});
  return lines.back().curve;
}

double Prices::bounded(const cost::CostCurve& curve, double bytes) const {
  const cost::Estimate e = curve.estimate(bytes);
  return bound_ == Bound::low ? e.low : e.high;
}

bool Prices::has_known_error() const {
  const auto known = [](const Line& l) { return l.curve.fitted != nullptr; };
  return !(lines_.empty() && part_lines_.empty()) &&
         std::all_of(lines_.begin(), lines_.end(), known) &&
         std::all_of(part_lines_.begin(), part_lines_.end(), known);
}

}  // namespace linerate::sim
