// The cost of one collective at one rank count as a function of its size alone. Planners search
// over it, and the simulator evaluates it once a task.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "linerate/cost/closed_form.hpp"
#include "linerate/cost/estimate.hpp"
#include "linerate/cost/fitted.hpp"

namespace linerate::cost {

/// How a fitted cost is moved to another bandwidth or latency (CostModel decides the numbers).
struct FittedMove {
  double added_s = 0;                // message steps * change of latency
  double bulk_factor = 1;            // on the part that grows with the size, intervals included
  double least_beta_s_per_byte = 0;  // no faster than this: host or line
  bool moved = false;                // then the answer is marked extrapolated
};

/// A table as a cost of the collective that is asked for, at the table's rank count.
struct Anchor {
  const TableLaw* law = nullptr;
  double start_factor = 1, bulk_factor = 1;

  Anchor(const TableLaw& table, Collective asked);
  int ranks() const { return law->table().ranks; }
  FittedSplit at(double bytes) const { return law->at(bytes).times(start_factor, bulk_factor); }
};

/// Measured costs of one collective at one rank count. Between two measured counts start-up and
/// bulk each lie on a straight line, over message steps and over bytes per link. So a cost that
/// follows the law at both counts follows it in between. On more ranks nothing takes less time: a
/// count that took longer than a larger count takes that one's time.
class FittedPart {
 public:
  FittedPart() = default;
  /// `anchors` ascend in ranks: the one of at most `ranks`, or else the first, and those above it.
  FittedPart(std::vector<Anchor> anchors, Collective collective, int ranks);

  explicit operator bool() const { return !anchors_.empty(); }
  int ranks() const { return ranks_; }
  /// The measurement that answers: the nearest of at most these ranks.
  const TableLaw& law() const { return *anchors_.front().law; }
  bool is_between() const { return between_; }
  void set_move(const FittedMove& move);

  double seconds(double bytes) const;
  Estimate estimate(double bytes) const;
  /// Ends of straight pieces.
  void add_joints(std::vector<double>& sizes) const;

 private:
  FittedSplit own(std::size_t anchor, double bytes) const;
  FittedSplit split(double bytes) const;
  FittedSplit moved(const FittedSplit& split, double bytes) const;
  Estimate from_one(double bytes) const;
  Estimate from_two(double bytes) const;
  void find_floors();
  double floor_at(double bytes) const;

  std::vector<Anchor> anchors_;
  Collective collective_ = Collective::all_reduce;
  int ranks_ = 1;
  bool between_ = false;  // two measured rank counts
  RankLaw law_{};         // from the first anchor's ranks to these
  std::vector<RankLaw>
      on_the_way_;        // to doublings or halves of its ranks, up to these or past them
  FittedSplit weight_{};  // of the second anchor's start-up and bulk
  double weight_log_ = 0;
  FittedMove move_{};
  // After a size no less than so many seconds. Once a move weighs start-up and
  // bulk anew, a later regime may be below the regime before it.
  struct Floor {
    double after_bytes, seconds;
  };
  std::vector<Floor> floors_;
};

/// The larger of both at each end.
Estimate larger(const Estimate& a, const Estimate& b);

/// Borrows what it is made from: valid as long as its CostModel.
struct CostCurve {
  Line line;  // closed form; with a fitted part, what 16-bit sums take on top of it
  // Other closed forms: a double tree, in chunks and in one. The shortest counts. Not with a fitted
  // part.
  std::optional<std::array<Line, 2>> trees;
  // Closed forms that the interval reaches down and up to; absent: the error is unknown.
  std::optional<std::array<Line, 2>> ends;
  // Zhang et al. 2020: add_steps * AddEst(bytes * add_share) on top of the line.
  const AddTable* add = nullptr;
  double add_steps = 0;
  double add_share = 0;
  FittedPart fitted;
  // Of an all-reduce: its halves. It takes no longer than both in turn, as it can be made of them.
  // If it is made of them, no half takes longer than `whole`, the all-reduce around it. These are
  // the self-consistent performance guidelines of Traeff, Gropp & Thakur 2010. Disturbances make
  // times longer, so the longer one gives way.
  std::shared_ptr<const std::array<CostCurve, 2>> halves;
  bool is_sum_of_halves = false;           // not measured itself
  std::shared_ptr<const CostCurve> whole;  // of a half
  double made_of_halves_above = -1;
  Estimate least_above{};                     // there at least: what a half takes up to that size
  std::shared_ptr<const CostCurve> one_node;  // the same on one node: more nodes take no less
  double floor_s_per_byte = 0;                // what the line takes at least
  double least_s = 0;  // what its latency takes if the tables show no start-up

  double seconds(double bytes) const {
    if (fitted) return fitted_seconds(bytes);
    double t = line(bytes);
    if (trees) t = std::min({t, (*trees)[0](bytes), (*trees)[1](bytes)});
    if (add) t += add_steps * add->seconds(bytes * add_share);
    return one_node ? std::max(t, one_node->seconds(bytes)) : t;
  }
  /// Closed forms without `ends` answer low = seconds = high: their error is unknown, not zero.
  Estimate estimate(double bytes) const;
  /// Of an all-reduce: whether at this size it is a reduce-scatter and an all-gather in turn. Then
  /// it takes at least the longer of the two. Trees, NVLS and SHARP are not made of halves, and
  /// neither are small messages by another schedule.
  bool is_made_of_halves(double bytes) const {
    return bytes > (trees ? tree_up_to() : made_of_halves_above);
  }
  /// The sizes at which the seconds may jump, ascending: a size itself is of the stretch that ends
  /// there. Between them they are continuous and straight except for a few bends.
  std::vector<double> joints() const;
  /// Up to which size a tree is shorter than the ring; 0: at none, infinite: at all.
  double tree_up_to() const;
  /// Every part of the answer was measured, or the spread of its kind of network is known.
  bool has_known_error() const { return fitted || ends; }

 private:
  double fitted_seconds(double bytes) const;
};

// A cost curve as straight pieces, by which a search over sizes can prune.

/// T(S) = alpha + beta S for from_bytes < S <= to_bytes; the first one from 0 on.
struct AffinePiece {
  double from_bytes = 0, to_bytes = 0;
  double alpha_s = 0, beta_s_per_byte = 0;

  double seconds(double bytes) const { return alpha_s + beta_s_per_byte * bytes; }
};

/// Ascending pieces without gaps, from 0 to `most` bytes; at least one. Between the sizes at which
/// the curve may jump (CostCurve::joints) it is a least or a largest of straight lines. Its bends
/// are found where the tangents of both ends meet.
std::vector<AffinePiece> affine_pieces(const CostCurve& curve, double most);

}  // namespace linerate::cost
