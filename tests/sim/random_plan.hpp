// Random plans over random groups, with warm-up, lanes and edges into the next step; and Clusters
// of unequal ranks.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "linerate/core/index.hpp"
#include "linerate/doc/cluster.hpp"
#include "plan/random.hpp"
#include "sim/hand_plan.hpp"
#include "support/sample_workloads.hpp"

namespace linerate::support {

inline constexpr int kRanks = 6;
inline constexpr int kSteps = 5;

// Every rank in one of so many parts, or in none.
inline doc::Group random_group(Random& random, int index, int ranks) {
  doc::Group group{"group " + std::to_string(index), {}};
  group.parts.resize(1 + random.below(3));
  for (std::int32_t r = 0; r < ranks; ++r) {
    const auto part = random.below(group.parts.size() + 1);
    if (part < group.parts.size()) group.parts[part].push_back(r);
  }
  std::erase_if(group.parts, [](const auto& part) { return part.empty(); });
  if (group.parts.empty())
    group.parts = {{static_cast<std::int32_t>(random.below(to_index(ranks)))}};
  return group;
}

inline void random_variant(Random& random, doc::TaskGraph& graph, std::size_t groups) {
  const auto count = 1 + random.below(12);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto group =
        random.below(2) ? doc::kWhole : static_cast<std::int32_t>(random.below(groups));
    if (random.below(3) == 0) {
      graph.add(
          exchange(4 * static_cast<std::int64_t>(random.below(5)), group,
                   random.below(2) ? doc::TaskKind::all_reduce : doc::TaskKind::all_gather_v));
    } else {
      constexpr std::array kWhere = {doc::Resource::compute, doc::Resource::codec,
                                     doc::Resource::host};
      graph.add(work(kWhere[random.below(kWhere.size())], random.unit(), group));
    }
    for (std::uint32_t p = 0; p < i; ++p)
      if (random.below(4) == 0) graph.add_predecessor_to_last(p);
  }
}

inline doc::Plan random_plan(Random& random, int ranks = kRanks) {
  doc::Plan plan = empty_plan(ranks);
  for (int g = 0; g < 3; ++g) plan.group(random_group(random, g, ranks));
  plan.variants.resize(2);
  for (doc::TaskGraph& graph : plan.variants) random_variant(random, graph, plan.groups.size());
  for (doc::TaskGraph& from : plan.variants)
    for (std::int32_t v = 0; v < 2; ++v)
      for (std::uint64_t k = random.below(4); k > 0; --k)
        from.next_step.push_back(
            {static_cast<std::uint32_t>(random.below(from.tasks.size())),
             static_cast<std::uint32_t>(random.below(plan.variants[to_index(v)].tasks.size())), v});
  plan.warm_up = {1, 0};
  plan.cycle = {0, 0, 1};
  doc::validate(plan);
  return plan;
}

inline doc::Cluster random_cluster(Random& random) {
  doc::Cluster c = two_rank_cluster(random.unit(), 0.1 * random.unit());
  for (int r = 0; r < kRanks; ++r)
    if (random.below(3) == 0)
      c.rank_speeds.push_back({r, random.below(2) ? 1.5 : 2, random.below(2) ? 0.7 : 0});
  return c;
}

}  // namespace linerate::support
