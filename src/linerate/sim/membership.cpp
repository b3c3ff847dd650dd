// The arrays are flat, instead of a vector a group. Plans for K-FAC have thousands of groups of one
// rank, and a simulation copies the Membership into its TaskTimes.
#include "linerate/sim/membership.hpp"

#include <algorithm>

namespace linerate::sim {

void Membership::add_group() {
  Group& g = groups_.emplace_back();
  g.begin = g.end = static_cast<std::uint32_t>(classes_.size());
  g.parts_begin = g.parts_end = static_cast<std::uint32_t>(parts_.size());
}

void Membership::add_part(std::span<const std::int32_t> classes, std::int32_t ranks) {
  Group& g = groups_.back();
  classes_.insert(classes_.end(), classes.begin(), classes.end());
  const std::uint32_t before = g.end - g.begin;
  g.end = static_cast<std::uint32_t>(classes_.size());
  parts_.push_back({before, g.end - g.begin, ranks});
  g.parts_end = static_cast<std::uint32_t>(parts_.size());
}

void Membership::finish_group() {
  Group& g = groups_.back();
  if (g.begin == g.end) return;
  const auto [low, high] =
      std::minmax_element(classes_.begin() + g.begin, classes_.begin() + g.end);
  g.low = *low;
  g.range = static_cast<std::uint32_t>(*high - *low + 1);
  g.positions = static_cast<std::uint32_t>(positions_.size());
  positions_.resize(positions_.size() + g.range, kNoSlot);
  for (std::uint32_t k = g.begin; k < g.end; ++k)
    positions_[g.positions + static_cast<std::uint32_t>(classes_[k] - g.low)] = k - g.begin;
}

}  // namespace linerate::sim
