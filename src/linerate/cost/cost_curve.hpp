// The cost of one collective at one rank count as a function of its size alone: what planners
// search over and what the simulator evaluates once a task.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "linerate/cost/add_table.hpp"
#include "linerate/cost/closed_form.hpp"
#include "linerate/cost/estimate.hpp"
#include "linerate/cost/fitted.hpp"
#include "linerate/doc/cluster.hpp"

namespace linerate::cost {

/// How a fitted cost is moved to another collective, bandwidth or latency (CostModel decides the
/// numbers).
struct FittedMove {
  double start_factor = 1;  // on the start-up: message steps of this collective / of the measured
  double added_s = 0;       // message steps * change of latency
  double bulk_factor = 1;   // on the part that grows with the size, intervals included
  double least_beta_s_per_byte = 0;  // no faster than this: host or line
  bool moved = false;                // then the answer is marked extrapolated
};

/// A measured cost at one rank count. With `above`, between two measured counts: both are brought
/// to `ranks` by the collective's law and weighted.
struct FittedPart {
  const doc::CollectiveCost* table = nullptr;
  const doc::CollectiveCost* above = nullptr;  // measured on more ranks than `table`
  double above_weight = 0;
  int ranks = 1;
  RankLaw law{}, law_above{};  // from the ranks of either to these
  FittedMove move{};
  double share = 1;  // of the bytes asked

  explicit operator bool() const { return table != nullptr; }
  FittedParts parts(double bytes) const;
  /// The sum of parts(), without the interval.
  double seconds(double bytes) const;
};

/// Borrows what it is made from: valid as long as its CostModel.
struct CostCurve {
  Line line;  // closed form; with a fitted part, what comes on top of it
  // Other closed forms: a double tree, in chunks and in one. The shortest counts. Not with a fitted
  // part.
  std::optional<std::array<Line, 2>> trees;
  // Zhang et al. 2020: add_steps * AddEst(bytes * add_share) on top of the line.
  const AddTable* add = nullptr;
  double add_steps = 0;
  double add_share = 0;
  FittedPart fitted;
  FittedPart between;           // nodes, on top of `fitted` inside them
  bool has_links = false;       // part of it is a closed form over links that were given
  double floor_s_per_byte = 0;  // what the line takes at least

  /// Whether it is `line` and nothing else.
  bool is_line() const { return !fitted && !trees && !add; }
  double seconds(double bytes) const {
    if (fitted) return fitted_seconds(bytes);
    double t = line(bytes);
    if (trees) t = std::min({t, (*trees)[0](bytes), (*trees)[1](bytes)});
    return add ? t + add_steps * add->seconds(bytes * add_share) : t;
  }
  /// Closed forms answer low = seconds = high: their error is unknown, not zero.
  Estimate estimate(double bytes) const;
  /// The sizes at which the seconds may jump, ascending: a size itself is of the stretch that ends
  /// there. Between them they are continuous and straight except for a few bends.
  std::vector<double> joints() const;
  /// Up to which size a tree is shorter than the ring; 0: at none, infinite: at all.
  double tree_up_to() const;
  /// Every part of the answer was measured.
  bool has_known_error() const { return fitted && !has_links; }

 private:
  double fitted_seconds(double bytes) const;
};

}  // namespace linerate::cost
