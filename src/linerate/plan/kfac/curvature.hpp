// What K-FAC does in the steps of a Plan, and on which rank: the same in all of its variants.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "linerate/core/index.hpp"
#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/plan/kfac/kfac.hpp"
#include "linerate/plan/kfac/placement.hpp"

namespace linerate::plan {

/// A factor of a layer. Seconds are of one rank.
struct PlannedFactor {
  double factor_s = 0, inverse_s = 0;
  /// Of Cholesky's inverses in f32, of one matrix each: how many of this size one call inverts
  /// sooner than one by one. `together_share` is what each of them then takes of inverse_s.
  int most_together = 1;
  double together_share = 1;
};

/// A layer that is preconditioned.
struct PlannedBlock {
  doc::Block block;                     // as the Workload has it
  std::vector<std::int32_t> gradients;  // positions, ascending: what the layer's gradient is
  std::array<PlannedFactor, 2> factors{};
  double precondition_s = 0;
};

/// What the network does up to the first inverse, as far as it is known beforehand.
struct FactorArrivals {
  std::vector<Transfer> transfers;  // in their order on the network
  std::vector<std::int32_t> after;  // [factors] which of them brings it; empty: they are all there
  std::vector<std::int32_t> gradient_after;  // [blocks] which brings the last of its gradient
  double computed_s = 0;                     // when ranks are free to invert
};

struct Curvature {
  Kfac kfac;
  DType dtype = DType::f32;  // of factors, inverses, directions: f64 if a gradient is
  int ranks = 1, rows = 1;   // of the grid: rank r is in row r / columns() and column r % columns()
  std::vector<PlannedBlock> blocks;       // forward order
  std::vector<std::int32_t> layer_owner;  // [blocks] a rank; empty if layers have none

  int columns() const { return ranks / rows; }
  const PlannedBlock& block_of(std::int32_t factor) const {
    return blocks[to_index(doc::block_of_factor(factor))];
  }
  std::int64_t elements(std::int32_t factor) const {
    return packed_elements(block_of(factor).block, doc::side_of_factor(factor));
  }
  /// Of its sum, as it travels.
  std::int64_t sent_elements(std::int32_t factor) const {
    return elements(factor) + doc::kFactorCounts;
  }
  /// Of its inverse, as it travels.
  std::int64_t inverse_elements(std::int32_t factor) const {
    const auto of = kfac.eigen ? doc::eigen_elements : doc::packed_elements;
    return of(block_of(factor).block, doc::side_of_factor(factor));
  }
  const PlannedFactor& planned(std::int32_t factor) const {
    return block_of(factor).factors[to_index(doc::side_of_factor(factor))];
  }
  std::int32_t factors() const { return 2 * static_cast<std::int32_t>(blocks.size()); }

  /// By factor, for those that are inverted; `sent` is empty if owners keep them.
  Placement place(const cost::CostModel& cost, const FactorArrivals& arrivals) const;
  /// Places inverses for these arrivals. The result says for other arrivals when all would be
  /// inverted and sent. The cost must outlive it.
  std::function<double(const FactorArrivals&)> inverted_s(const cost::CostModel& cost,
                                                          const FactorArrivals& arrivals) const;
  /// When all inverses are made and sent, and every direction and gradient is there, in seconds. A
  /// step without inverses has an empty placement.
  double done_s(const cost::CostModel& cost, const FactorArrivals& arrivals,
                const Placement& placement) const;

  /// The later of the two arrivals that bring the factors of a layer. Damping takes the traces of
  /// both (Martens & Grosse 2015, 6.3), so an inverse needs both.
  std::int32_t needed_by_inverse(std::int32_t factor,
                                 const std::vector<std::int32_t>& arrivals) const;

  /// The groups of the Plan (added if new) that invert what this owner has, that hold the inverses
  /// of this block, and that get its directions.
  std::int32_t inverse_group(std::int32_t owner, doc::Plan& plan) const;
  std::int32_t holder_group(std::int32_t block, doc::Plan& plan) const;
  std::int32_t direction_group(doc::Plan& plan) const;
  /// The ranks that compute this block's factors: all, or its owner alone.
  std::int32_t factor_group(std::int32_t block, doc::Plan& plan) const;
  /// The owner's position among those that hold, receive, as the root of a broadcast.
  std::int32_t root_among_holders(std::int32_t owner) const;
  std::int32_t root_among_receivers(std::int32_t block) const;
  /// Whether directions travel: no rank holds the inverses of every layer.
  bool sends_directions() const { return kfac.owns_layers() && columns() > 1; }

 private:
  std::int32_t single_rank_group(std::int32_t rank, doc::Plan& plan) const;
};

/// Throws UsageError for a Workload without blocks that take part, and for ranks that the strategy
/// cannot arrange. `strategy` names it in errors.
Curvature curvature_of(const Kfac& kfac, const doc::Workload& workload, const cost::CostModel& cost,
                       int ranks, const std::string& strategy);

/// Seconds that a collective among so many ranks takes: a message of so many elements of so many
/// tensors, and what each tensor adds to it (add_tensor_times).
MessageSeconds seconds_of_messages(const cost::CostModel& cost, Collective collective, int ranks,
                                   DType dtype);

/// What the blocks of a Plan say to executors.
std::vector<doc::Block> shapes_of(const Curvature& curvature);

/// Says for people that there are more ranks than layers to share whole; empty if not.
std::string idle_ranks(const Kfac& kfac, std::int64_t layers, int ranks);

/// A layer that is left out for the dimension of its largest factor.
struct TooLarge {
  std::string layer;
  std::int64_t dimension = 0;
};
/// Says for people which they are; empty if there are none.
std::string too_large(const std::vector<TooLarge>& layers, std::int64_t largest);
std::string too_large(const Kfac& kfac, const doc::Workload& workload);

/// Says for people if layers are left out for their size, its costs are not known, or ranks have
/// nothing to do.
std::vector<std::string> caveats_of(const Kfac& kfac, const doc::Workload& workload,
                                    const doc::Cluster& cluster, int ranks);

}  // namespace linerate::plan
