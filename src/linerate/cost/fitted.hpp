// A measured table as prices use it: a function from bytes to seconds that grows with the bytes,
// apart into start-up and bulk, with an interval. And the laws that move it to another collective
// or rank count.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "linerate/core/dtype.hpp"
#include "linerate/cost/estimate.hpp"
#include "linerate/doc/cluster.hpp"

namespace linerate::cost {

/// A table answers for sizes within so many times its own.
inline constexpr double kReach = 8;

/// How far a measurement may be off before its size is an outlier: 10 % from 1 MiB on, twice below.
double tolerance_at(double bytes);

/// Message steps of a ring (2 (n-1) of an all-reduce, n-1 of its halves) or of a tree of ranks.
double message_steps(Collective collective, int ranks);

/// The factors that move a cost to another rank count; at its own all are 1.
struct RankLaw {
  double start = 1;                        // message steps, of a ring
  double start_least = 1, start_most = 1;  // of a ring and a tree, the fewer and the more
  double bulk = 1;                         // bytes per link
  double pass_s_per_byte = 0;              // least bulk, where the measured one is no less
  double interval = 1;                     // on either side
  bool moved = false;
};
/// `ranks_per_node` above 1: nodes exchange in trees, or rail by rail, so that nodes count and not
/// ranks. Two nodes are one pair, which may be quicker than the law of more.
RankLaw law_of(Collective collective, int from, int to, int ranks_per_node = 1);

/// A time taken apart: what bandwidth and compression scale (bulk) and what they do not (start).
struct FittedSplit {
  double start = 0, bulk = 0;  // seconds

  double seconds() const { return start + bulk; }
  FittedSplit times(double start_factor, double bulk_factor) const {
    return {start * start_factor, bulk * bulk_factor};
  }
  /// The same by a law, of a message of so many bytes; the start-up by another factor if told.
  FittedSplit by(const RankLaw& law, double bytes, std::optional<double> start_factor = {}) const {
    const double pass = std::min(bulk, law.pass_s_per_byte * bytes);
    return {start * start_factor.value_or(law.start), std::max(bulk * law.bulk, pass)};
  }
};

/// The range of measured sizes; segments may go further.
struct MeasuredSizes {
  double from, to;
};

/// Ranks a node, if a table goes by nodes (law_of); 1: one ring over all ranks. It goes by nodes if
/// it crossed them quicker than one ring can: none passes PCI Express 5 faster than its 16 lanes
/// carry. `ranks_per_node`: where the table does not say its own.
int by_node_of(const doc::CollectiveCost& cost, int ranks_per_node);
/// Whether a measurement had all its ranks in one node. The table's own word counts before that of
/// its Cluster, `ranks_per_node`.
inline bool was_inside_node(const doc::CollectiveCost& cost, int ranks_per_node) {
  const int per_node = cost.ranks_per_node > 0 ? cost.ranks_per_node : ranks_per_node;
  return per_node > 1 && cost.ranks <= per_node;
}
/// So many nodes hold these ranks.
inline int nodes_for(int ranks, int ranks_per_node) {
  return ranks_per_node > 1 ? (ranks + ranks_per_node - 1) / ranks_per_node : ranks;
}

/// Made once from a table, which it borrows. Costs grow with the bytes: sizes that took longer than
/// larger ones are pooled (fitted.cpp). Each regime, from one switch of algorithm to the next, has
/// a start-up of its own. No bytes cost the start-up, or an eighth of the smallest size if the
/// table shows none.
class TableLaw {
 public:
  /// Throws InternalError if the table has no segments.
  /// `ranks_per_node`: the Cluster's, where the table does not say its own.
  explicit TableLaw(const doc::CollectiveCost& table, int ranks_per_node = 1);

  const doc::CollectiveCost& table() const { return *table_; }
  /// From the table's rank count to another one.
  RankLaw law_to(Collective collective, int ranks) const;
  /// At the table's own rank count.
  FittedSplit at(double bytes) const;
  /// Ends of a 90 % interval as factors. Outside the measured sizes they widen by their own width
  /// (as a ratio, both ways) per doubling of the distance.
  struct Interval {
    double low = 1, high = 1;
    bool extrapolated = false;
  };
  Interval interval_at(double bytes) const;
  /// The table that answers for a size: this one, or the one that goes on from it.
  const doc::CollectiveCost& source_at(double bytes) const;
  /// What is measured, by this table or by those that go on from it.
  const MeasuredSizes& sizes() const { return sizes_; }

  /// The same as a cost of another collective on another number of ranks.
  TableLaw moved_to(Collective collective, int ranks) const;
  /// Whether `other`, of whatever collective, measured sizes beyond its reach.
  bool is_beyond_reach(const TableLaw& other) const {
    return other.sizes_.to > sizes_.to * kReach || other.sizes_.from < sizes_.from / kReach;
  }
  /// Goes on with the sizes that `other` measured beyond this table's reach; `other` was moved
  /// here. A straight line leads from the end of one table to the beginning of the other.
  void go_on_with(const TableLaw& other);

  /// Sizes of straight pieces' ends, ascending; the last one goes on.
  std::vector<double> ends() const;
  /// Sizes after which start-up or bulk falls, while both together do not. Else, and between
  /// ends(), the start-up stays and the bulk grows.
  const std::vector<double>& falls() const { return falls_; }
  /// The sizes at which regimes begin, the first included.
  const std::vector<double>& regimes() const { return regimes_; }

 private:
  /// A point of the curve; a size at which it jumps has two. Interval, source and `measured` are
  /// those of the stretch that ends here.
  struct Node {
    double bytes = 0;
    FittedSplit split{};
    double low = 1, high = 1;
    const doc::CollectiveCost* source = nullptr;
    bool measured = true;  // by a table that covers this stretch
  };
  struct Piece {
    double to = 0, from = 0;
    FittedSplit at_from{};
    double bulk_s_per_byte = 0;
  };
  void draw_measured();
  void split_by_regime();
  void add_below();
  void settle();
  std::size_t index_of(double bytes) const;

  const doc::CollectiveCost* table_;
  int by_node_of_ = 1;  // ranks a node, if it goes by nodes
  MeasuredSizes sizes_{};
  std::vector<Node> nodes_;    // ascending, from 0 bytes on
  double end_s_per_byte_ = 0;  // of the bulk, beyond the last
  double end_low_ = 1, end_high_ = 1;
  std::vector<Piece> pieces_;
  std::vector<double> falls_, regimes_;
};

/// At the table's own rank count. Bytes in the convention of core/dtype.hpp.
Estimate evaluate(const doc::CollectiveCost& cost, double bytes);

}  // namespace linerate::cost
