// Which rank inverts what (reference: Shi, Zhang & Li 2021, load-balancing placement; the search is
// ours).
#pragma once

#include <cstdint>
#include <vector>

#include "linerate/plan/kfac/factor_fusion.hpp"

namespace linerate::plan {

/// In place of an owner: every rank inverts it for itself, and nothing is sent.
inline constexpr std::int32_t kEverywhere = -1;

/// What is placed: inverses, or whole layers.
struct PlacementProblem {
  std::vector<std::int64_t> dims;   // [n]
  std::vector<double> inverse_s;    // [n] on one rank
  std::vector<double> broadcast_s;  // [n] at full speed; empty if nothing is sent
  int ranks = 1;
  double communication_slowdown = 1;  // of broadcasts while any rank computes
  /// [n] whose direction an inverse is for, and the seconds that every rank takes for it once it
  /// has all of its inverses. Empty: they do not count.
  std::vector<std::int32_t> layer{};
  std::vector<double> layer_s{};
  /// What the channel carries before the first broadcast, in its order: sums of factors, gradients.
  std::vector<Transfer> transfers{};
  /// [n] which of them brings what an inverse is made of; negative, empty: that is there.
  std::vector<std::int32_t> after{};
  /// [layers] which of them brings the last of a layer's gradient, likewise.
  std::vector<std::int32_t> gradient_after{};
  double start_s = 0;  // when ranks are free to invert
  /// What travels together: a message of inverses, and [n] the elements of each. Empty: each
  /// travels by itself.
  MessageSeconds seconds_of{};
  std::vector<std::int64_t> elements{};
  int columns = 1;  // rank r sends over channel r % columns
};

struct Placement {
  std::vector<std::int32_t> owner;  // [n] a rank, or kEverywhere
  /// All inverses in the order in which ranks work, each rank on those that are its own or
  /// everybody's. They follow the arrivals of their factors: those with an owner first, then the
  /// rest, the longest first among both. Every rank waits for an arrival in the same place, before
  /// the first inverse that needs it. By the authors' threshold they stand as they are numbered,
  /// layer by layer.
  std::vector<std::int32_t> order;
  bool behind_arrivals = false;  // ranks wait for every factor before they begin
  /// Those with an owner in the order in which they are sent; message k holds
  /// sent[ends[k - 1]] .. sent[ends[k] - 1], all of one owner.
  std::vector<std::int32_t> sent, ends;
};

/// The authors' threshold.
inline constexpr std::int64_t kAuthorsTheta = 1400;

/// How many k place_by_search looks at first.
inline constexpr std::size_t kCutGrid = 16;

/// The k inverses that take longest have owners, by longest processing time first. The others are
/// inverted everywhere, under the broadcasts. k is the number that makes overlapped_s least, the
/// smallest on ties. All k are tried up to 2 kCutGrid - 1 inverses; of more, those on the grid and
/// near the best of them. By overlapped_s the result is never later than in turn or by the authors'
/// threshold.
Placement place_by_search(const PlacementProblem& problem);
/// The authors' rule. An inverse of fewer than `theta` dimensions is made everywhere. The others,
/// the largest first, go to the rank with the least sum of dimensions. Ranks go through the layers
/// as the authors' do, so that broadcasts of the last layers leave last.
Placement place_by_threshold(const PlacementProblem& problem, std::int64_t theta);
/// All have owners: the longest first, to the rank with the least to do, the lowest on ties.
Placement place_longest_first(const PlacementProblem& problem);
/// All have owners: the largest first, in turn.
Placement place_in_turn(const PlacementProblem& problem);
Placement place_everywhere(const PlacementProblem& problem);
/// With these owners.
Placement place_on(const PlacementProblem& problem, std::vector<std::int32_t> owner);

/// When everything is inverted and sent, every direction made and every gradient there, in seconds.
/// Ranks work in `order`, then on layers that miss no message, as their gradients arrive, then on
/// the others. Messages leave in their order, one after the other, each when its inverses are
/// there, after all transfers.
double overlapped_s(const PlacementProblem& problem, const Placement& placement);

/// Longest processing time first over whole layers, within `columns` groups of ranks. Rank r is in
/// column r % columns, and a layer goes to the least loaded column and to its least loaded rank.
/// With one column it goes over all ranks. Graham 1969: at most 4/3 - 1/(3 ranks) of the best
/// there.
std::vector<std::int32_t> place_layers(const std::vector<double>& seconds, int ranks, int columns);

}  // namespace linerate::plan
