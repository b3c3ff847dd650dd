#include "linerate/sim/prices.hpp"

#include <algorithm>
#include <cmath>

#include "linerate/cost/model_curve.hpp"

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

const cost::CostCurve& Prices::curve_of(const doc::Task& task, int ranks) {
  std::vector<Line>& lines = ranks == ranks_ ? lines_ : part_lines_;
  for (const Line& l : lines)
    if (l.ranks == ranks && l.kind == task.kind && l.wire == task.wire) return l.curve;
  return add(lines, task, ranks);
}

BroadcastTime Prices::broadcast_of_part(const doc::Task& task, int ranks) {
  const double last_s = seconds_of_part(task, ranks);
  if (ranks <= 1) return {last_s, last_s};
  const cost::CostCurve& curve = curve_of(task, ranks);
  const auto bytes = static_cast<double>(task.priced_bytes());
  const double whole_s = curve.seconds(bytes);
  // Two octaves, since fitted curves have jumps and dents.
  const double growth_s = (curve.seconds(2 * bytes) - curve.seconds(bytes / 2)) / 1.5;
  // The root of a binomial tree sends it so often over its own link; no rank does so more.
  const double copies = std::ceil(std::log2(ranks));
  const double bytes_per_s = model_.network_bytes_per_s();
  const double carried_s =
      bytes_per_s > 0 ? std::min(growth_s, copies * bytes / bytes_per_s) : growth_s;
  const double own_s = curve.seconds(0) + std::max(0.0, carried_s);
  if (!(own_s < whole_s)) return {last_s, last_s};
  // Bounds scale both alike.
  return {task.seconds + (last_s - task.seconds) * std::max(0.0, own_s) / whole_s, last_s};
}

const cost::CostCurve& Prices::add(std::vector<Line>& lines, const doc::Task& task, int ranks) {
  lines.push_back({task.kind, task.wire, ranks,
                   cost::cost_curve(model_, collective_of(task.kind), ranks, task.wire)});
  return lines.back().curve;
}

double Prices::bounded(const cost::CostCurve& curve, double bytes) const {
  const cost::Estimate e = curve.estimate(bytes);
  return bound_ == Bound::low ? e.low : e.high;
}

doc::Contention Prices::contention() const {
  const doc::Cluster& cluster = model_.cluster();
  doc::Contention c = cluster.contention.value_or(doc::Contention{});
  if (bound_ == Bound::expected) return c;
  if (model_.has_spread()) {
    c.compute_slowdown = bound_ == Bound::low ? 1 : cluster.nominal->slowdown_high;
    return c;
  }
  const double apart = 1 + cluster.noise_floor.value_or(0);
  const double times = bound_ == Bound::low ? 1 / apart : apart;
  for (double* factor : {&c.compute_slowdown, &c.communication_slowdown, &c.coding_slowdown})
    if (*factor > 1) *factor = 1 + (*factor - 1) * times;
  c.message_s *= times;
  return c;
}

bool Prices::has_known_error() const {
  const auto known = [](const Line& l) { return l.curve.has_known_error(); };
  return !(lines_.empty() && part_lines_.empty()) &&
         std::all_of(lines_.begin(), lines_.end(), known) &&
         std::all_of(part_lines_.begin(), part_lines_.end(), known);
}

}  // namespace linerate::sim
