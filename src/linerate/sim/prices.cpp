// A Plan has thousands of tasks but few kinds of them, so a price is a look-up of a cost curve and
// one evaluation. The curves are kept in two short lists that are searched from the front. One is
// for collectives of all ranks, which are most, and one for collectives of fewer.
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

// The curve says when the last rank has the message. The split into a rank's own part and the rest
// is taken from its growth. Take a chain that pipelines chunks, with a curve of 1 ms + 1 ms/MiB.
// Each further MiB occupies every link for 1 ms, so 4 MiB keep a rank busy for 1 + 4 ms. Take a
// binomial tree of 4 ranks over links of 1 ms/MiB. Its curve grows by 2 ms/MiB, because the message
// takes two hops; the root does send it twice. If a curve grows faster than that, the excess is
// spent on the links of other ranks.
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

// The low or the high end of a price, as the Bound says.
double Prices::bounded(const cost::CostCurve& curve, double bytes) const {
  const cost::Estimate e = curve.estimate(bytes);
  return bound_ == Bound::low ? e.low : e.high;
}

// Contention at a Bound. A network of a kind has slowdowns from 1 to its slowdown_high. A measured
// Cluster has a noise floor instead. The noise is in the time that is lost, not in the whole. With
// a floor of 10 %, a slowdown of 1.30 lies between 1 + .30 / 1.1 = 1.27 and 1 + .30 * 1.1 = 1.33.
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
