// What K-FAC does in the steps of a Plan, and on which rank: the same in all of its variants.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "linerate/cost/cost_model.hpp"
#include "linerate/doc/plan.hpp"
#include "linerate/doc/workload.hpp"
#include "linerate/plan/kfac/kfac.hpp"
#include "linerate/plan/kfac/placement.hpp"

namespace linerate::plan {

/// A layer that is preconditioned. Seconds are of one rank.
struct CurvatureBlock {
  doc::Block block;                     // as the Workload has it
  std::vector<std::int32_t> gradients;  // positions, ascending: what the layer's gradient is
  std::array<double, 2> factor_s{}, inverse_s{};
  double precondition_s = 0;
};

struct Curvature {
  Kfac kfac;
  DType dtype = DType::f32;  // of factors, inverses, directions: f64 where a gradient is
  int ranks = 1, rows = 1;   // of the grid: rank r is in row r / columns() and column r % columns()
  std::vector<CurvatureBlock> blocks;     // forward order
  std::vector<std::int32_t> layer_owner;  // [blocks] a rank; empty where layers have none
  /// By factor, of those that somebody inverts: `sent` is empty where owners keep them.
  Placement inverses;

  int columns() const { return ranks / rows; }
  const CurvatureBlock& block_of(std::int32_t factor) const {
    return blocks[static_cast<std::size_t>(doc::block_of_factor(factor))];
  }
  std::int64_t elements(std::int32_t factor) const {
    return packed_elements(block_of(factor).block, doc::side_of_factor(factor));
  }
  double factor_s(std::int32_t factor) const { return block_of(factor).factor_s[side(factor)]; }
  double inverse_s(std::int32_t factor) const { return block_of(factor).inverse_s[side(factor)]; }
  std::int32_t factors() const { return 2 * static_cast<std::int32_t>(blocks.size()); }

  /// Who inverts this factor, holds the inverses of this block, gets its directions: one of the
  /// Plan's groups, added where it is new.
  std::int32_t inverting(std::int32_t factor, doc::Plan& plan) const;
  std::int32_t holding(std::int32_t block, doc::Plan& plan) const;
  std::int32_t receiving(doc::Plan& plan) const;
  /// The ranks that compute this block's factors: all, or its owner alone.
  std::int32_t computing_factors(std::int32_t block, doc::Plan& plan) const;
  /// The owner's position among those, as the root of a broadcast.
  std::int32_t root_among_holders(std::int32_t factor) const;
  std::int32_t root_among_receivers(std::int32_t block) const;
  /// Whether directions travel: no rank holds the inverses of every layer.
  bool sends_directions() const { return kfac.owns_layers() && columns() > 1; }

 private:
  static std::size_t side(std::int32_t factor) {
    return static_cast<std::size_t>(doc::side_of_factor(factor));
  }
  std::int32_t alone(std::int32_t rank, doc::Plan& plan) const;
};

/// Throws UsageError for a Workload without blocks that take part, and for ranks that the strategy
/// cannot arrange. `strategy` names it in errors.
Curvature curvature_of(const Kfac& kfac, const doc::Workload& workload, const cost::CostModel& cost,
                       int ranks, const std::string& strategy);

/// What the blocks of a Plan say to executors.
std::vector<doc::Block> shapes_of(const Curvature& curvature);

/// Where its costs are not known, or ranks have nothing to do, for people.
std::vector<std::string> caveats_of(const Kfac& kfac, const doc::Workload& workload,
                                    const doc::Cluster& cluster, int ranks);

}  // namespace linerate::plan
