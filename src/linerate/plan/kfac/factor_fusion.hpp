// Which Kronecker factors travel together (reference: Shi, Zhang & Li 2021, SPD-KFAC; the exact
// program is ours).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "linerate/plan/kfac/channel.hpp"

namespace linerate::plan {

/// Factors 1 .. L in the order in which they are sent; groups are runs of them. A group is ready
/// with the last of its members, and leaves after what is ready by then.
struct FactorFusionProblem {
  std::span<const double> ready_s;         // [L]; they may decrease
  std::span<const std::int64_t> elements;  // [L] packed
  std::span<const std::int32_t> kind;      // [L] a group holds one kind; empty: they are all alike
  /// A message of so many elements of so many factors, at full speed.
  std::function<double(std::int64_t, std::int64_t)> seconds_of;
  std::span<const Transfer> others{};  // by ready time: gradients
  Channel channel{};
};

/// Ends of the groups: group k holds factors ends[k-1] .. ends[k] - 1.
using FactorGroups = std::vector<std::int32_t>;

/// When the last group is through.
double finish_s(const FactorFusionProblem& problem, const FactorGroups& groups);

/// The groups that finish first: f[j] = min over i < j of end(max(f[i], others, ready of i+1..j),
/// T(N_j
/// - N_i)). It is exact, as finishing a prefix earlier never hurts. Ties go to fewer groups, then
///   to the smaller i. O(L^2) time, O(L) memory.
FactorGroups fuse_optimally(const FactorFusionProblem& problem);

/// The authors' rule, factor by factor. l joins l + 1 if l + 1 is ready before the channel would
/// have started l and paid `start_up_s` for it. Each kind goes by itself, as if the channel were
/// its own. Sizes are those of packed triangles throughout, which the released program mixes up.
FactorGroups fuse_greedily(const FactorFusionProblem& problem, double start_up_s);

/// Every factor by itself; every kind in one message; all kinds in one.
FactorGroups fuse_nothing(const FactorFusionProblem& problem);
FactorGroups fuse_each_kind(const FactorFusionProblem& problem);
FactorGroups fuse_everything(const FactorFusionProblem& problem);

}  // namespace linerate::plan
