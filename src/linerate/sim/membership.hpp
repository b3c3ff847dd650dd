// Which classes of ranks are in which group of a Plan; slots and collectives are laid out by it.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "linerate/core/index.hpp"

namespace linerate::sim {

inline constexpr std::uint32_t kNoSlot = std::numeric_limits<std::uint32_t>::max();

/// The classes of each group that a graph uses, part after part. Groups that the graph does not use
/// are empty. A class is in a part with all of its ranks or with none.
///
/// An example: 4 ranks in two nodes {0, 1} and {2, 3}, and rank 3 is slow. Then ranks 0 and 1 are
/// class 0, rank 2 is class 1 and rank 3 is class 2. The group of nodes has the classes 0, 1, 2 at
/// its positions 0, 1, 2. Its two parts are the positions [0, 1) and [1, 3), of two ranks each.
class Membership {
 public:
  struct Part {
    std::uint32_t begin = 0, end = 0;  // positions of its classes within the group
    std::int32_t ranks = 0;
  };

  std::span<const std::int32_t> classes_in(std::int32_t group) const {
    const Group& g = at(group);
    return {classes_.data() + g.begin, classes_.data() + g.end};
  }
  std::span<const Part> parts_of(std::int32_t group) const {
    const Group& g = at(group);
    return {parts_.data() + g.parts_begin, parts_.data() + g.parts_end};
  }
  /// How many classes are in the group.
  std::uint32_t count(std::int32_t group) const { return at(group).end - at(group).begin; }
  /// Where a class stands among the classes of the group; kNoSlot if it is in none of its parts.
  std::uint32_t position(std::int32_t group, std::int32_t rank_class) const {
    const Group& g = at(group);
    const auto offset = static_cast<std::uint32_t>(rank_class - g.low);
    return offset < g.range ? positions_[g.positions + offset] : kNoSlot;
  }

  /// Building it: groups in the order of the Plan, each with its parts.
  void add_group();
  void add_part(std::span<const std::int32_t> classes, std::int32_t ranks);
  /// Call it once the group added last has all its parts. position() answers from then on.
  void finish_group();

 private:
  // Positions are looked up in [low, low + range), the classes that the group spans: a group of one
  // rank costs one entry.
  struct Group {
    std::uint32_t begin = 0, end = 0;
    std::uint32_t parts_begin = 0, parts_end = 0;
    std::int32_t low = 0;
    std::uint32_t range = 0, positions = 0;
  };
  const Group& at(std::int32_t group) const { return groups_[to_index(group)]; }

  std::vector<Group> groups_;
  std::vector<Part> parts_;
  std::vector<std::int32_t> classes_;
  std::vector<std::uint32_t> positions_;
};

}  // namespace linerate::sim
