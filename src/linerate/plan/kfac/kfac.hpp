// kfac(d|mpd|mem|hybrid|spd|dp, ...): how K-FAC's work is shared among the ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "linerate/doc/block.hpp"
#include "linerate/doc/strategy.hpp"
#include "linerate/plan/kfac/placement.hpp"
#include "linerate/plan/make_plan.hpp"

namespace linerate::plan {

/// Who computes, inverts and preconditions (docs/kfac-plans.md has them side by side).
enum class Sharing : std::uint8_t {
  d,       // every rank inverts every factor
  mpd,     // each inverse by one rank, for all (COMM-OPT; Pauloski et al. 2020)
  mem,     // each layer inverted and preconditioned by one rank (MEM-OPT)
  hybrid,  // inverses for a column of ranks, directions along its rows (Pauloski et al. 2021,
           // KAISA)
  spd,     // factors under forward and backward, large inverses by one rank (Shi, Zhang & Li 2021)
  dp       // factors, too, by one rank alone, of its own samples (Zhang et al. 2022, DP-KFAC)
};

enum class FactorFusion : std::uint8_t { optimal, greedy, none, bulk };
enum class InversePlacement : std::uint8_t { search, threshold, longest_first, in_turn };
/// As strategies say it.
std::string_view name_of(InversePlacement placement);

/// What a step brings up to date.
struct CurvatureUpdate {
  bool factors = true, inverses = true;
  bool operator==(const CurvatureUpdate&) const = default;
};

/// Steps between updates of factors, and of inverses: a multiple.
struct Intervals {
  std::int64_t factors = 10, inverses = 100;
};
/// Where one alone is said: factors in every step, inverses with every update of factors.
Intervals intervals_of(std::optional<std::int64_t> factors, std::optional<std::int64_t> inverses);

struct Kfac {
  Sharing sharing = Sharing::spd;
  FactorFusion fusion = FactorFusion::optimal;
  InversePlacement placement = InversePlacement::search;
  bool fuses_broadcasts = true;        // of one root: inverses, directions
  double fraction = 0.5;               // hybrid: of the ranks, how many hold a layer's inverses
  std::int64_t theta = kAuthorsTheta;  // threshold: whatever is smaller is inverted everywhere
  std::int64_t factor_interval = Intervals{}.factors, inverse_interval = Intervals{}.inverses;
  bool clips = true;   // the KL clip: the update waits for every direction
  bool eigen = false;  // inverse=eigen: eigenvectors and eigenvalues in place of inverses
  bool norms = false;  // layers of BlockKind::unit_wise take part
  bool embeddings = false;
  std::int64_t largest = kLargestFactor;  // dimension of a factor
  // What training computes with; plans are the same.
  double damping = 0.03, decay = 0.95;
  double kl = 1e-3;   // bound of the clip; 0: none
  int subsample = 1;  // of a convolution's positions: one in so many squared
  /// Backward passes of a step whose losses are divided by their number; absent: not said.
  std::optional<std::int64_t> accumulate = {};
  bool samples_labels = false;  // fisher=mc: G of labels drawn from the model

  /// Throws UsageError.
  static Kfac parse(const doc::Component& component);

  /// Factors leave as soon as groups of them are there, not all together after backward.
  bool overlaps_factors() const { return sharing == Sharing::spd; }
  /// The order of factors and gradients is ours, not a published method's.
  bool searches_order() const { return overlaps_factors() && fusion == FactorFusion::optimal; }
  /// Whether whole layers have owners, not single inverses.
  bool owns_layers() const {
    return sharing == Sharing::mem || sharing == Sharing::hybrid || sharing == Sharing::dp;
  }
  bool takes(const doc::Block& block) const;
  /// Takes layers of its kind, but not one with so large a factor.
  bool finds_too_large(const doc::Block& block) const;
  /// Ranks that hold a layer's inverses: the rows of the grid. Throws UsageError if they do not
  /// divide the ranks.
  int rows_of_grid(int ranks) const;

  /// The kinds of steps, what changes most first; the inverse interval's first step is the first.
  std::vector<CurvatureUpdate> updates() const;
  CurvatureUpdate update_of_step(std::int64_t step) const {
    return {step % factor_interval == 0, step % inverse_interval == 0};
  }

 private:
  bool takes_kind(doc::BlockKind kind) const;
};

/// What the name of a variant ends with: "", "factors" or "stale".
std::string_view name_of(const CurvatureUpdate& update);

/// "kfac(spd)" alone is "ddp+kfac(spd)", and "fp16" is "ddp+fp16".
doc::Strategy with_exchange(doc::Strategy strategy);

/// What a strategy says about K-FAC; absent: nothing. Throws UsageError.
std::optional<Kfac> kfac_of(const doc::Strategy& strategy);

}  // namespace linerate::plan
