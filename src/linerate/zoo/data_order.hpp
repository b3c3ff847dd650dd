// In which order samples are visited, and which of them each rank takes.
#pragma once

#include <cstdint>
#include <vector>

namespace linerate::zoo {

/// The samples of one epoch in their global order: a permutation of 0 .. samples-1 that depends on
/// seed and epoch alone, never on ranks.
std::vector<std::int64_t> epoch_order(std::uint64_t seed, std::int64_t epoch, std::int64_t samples);

/// Half-open range of places in the epoch's order.
struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

/// Cuts an epoch into steps. Step s covers `global_batch` places of the order, and the last step
/// covers the rest. The rest is dropped if it has fewer samples than ranks, since a rank without
/// samples has no gradient to give.
struct EpochPlan {
  std::int64_t samples = 0;
  std::int64_t global_batch = 1;
  int ranks = 1;

  std::int64_t steps() const;
  Range step(std::int64_t index) const;
  /// A contiguous share of the step, sizes differing by at most one.
  Range share(std::int64_t index, int rank) const;
};

/// Contiguous share of `whole`.
Range share_of(Range whole, int rank, int ranks);

}  // namespace linerate::zoo
