// How many ranks ran, and how many of them on a node. With one communicator, the highest listed
// number plus one is the count. With several groups, numbers run over all of them, so the lines of
// the largest group are counted.
//
// Example: 8 ranks, with 4 lines of node1, 2 of node2 and two lines lost. There are two hosts, and
// the fullest one has 4 lines. 4 x 2 is 8, so four ranks share a node. With 3 lines of node1 this
// would not hold, and the answer is unknown.
#include "linerate/bench_logs/listed_ranks.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "linerate/bench_logs/log_words.hpp"
#include "linerate/core/collective.hpp"

namespace linerate::bench_logs {

void ListedRanks::add(int rank, int group, std::string_view host, std::string_view device) {
  highest_rank_ = std::max(highest_rank_, rank);
  Group& g = groups_[group];
  ++g.lines;
  if (host.empty()) return;
  ++g.of_host[std::string(host)];
  const auto number = number_of(device);
  if (number && rank == highest_rank_ && *number >= 0 && *number < kMostRanks)
    last_device_ = static_cast<int>(*number);
  if (!device.empty() && !devices_.emplace(host, device).second) one_name_for_several_ = true;
}

void ListedRanks::set(int ranks, int ranks_per_node) {
  ranks_ = ranks;
  ranks_per_node_ = ranks_per_node;
}

std::optional<int> ListedRanks::ranks() const {
  if (ranks_) return ranks_;
  if (groups_.empty()) return std::nullopt;
  if (groups_.size() == 1) return highest_rank_ + 1;
  // Numbers run over all groups, and each group has a communicator of its own.
  int most = 0;
  for (const auto& [number, group] : groups_) most = std::max(most, group.lines);
  return most;
}

int ListedRanks::ranks_per_node(int ranks) const {
  if (ranks_per_node_) return *ranks_per_node_;
  if (groups_.empty() || one_name_for_several_ || ranks < 1) return 0;
  const auto largest = std::max_element(
      groups_.begin(), groups_.end(),
      [](const auto& a, const auto& b) { return a.second.lines < b.second.lines; });
  int most = 0;
  for (const auto& [host, count] : largest->second.of_host) most = std::max(most, count);
  // Holds when lines were lost, too: as many on every host as on the one that is listed whole.
  if (most * static_cast<int>(largest->second.of_host.size()) == ranks) return most;
  const int devices = last_device_.value_or(0) + 1;
  const bool ends_node = (highest_rank_ + 1) % devices == 0 && ranks % devices == 0;
  return is_cut(ranks) && devices > 1 && ends_node ? devices : 0;
}

bool ListedRanks::is_cut(int ranks) const {
  return !ranks_per_node_ && groups_.size() == 1 && groups_.begin()->second.lines < ranks;
}

std::string ListedRanks::doubt(int ranks) const {
  if (!is_cut(ranks)) return "";
  const int lines = groups_.begin()->second.lines, taken = ranks_per_node(ranks);
  const std::string listed =
      fmt::format("{} of {} ranks {} listed", lines, ranks, lines == 1 ? "is" : "are");
  if (taken == 0)
    return listed + ": the number that share a node is not known; give --ranks-per-node";
  return fmt::format("{}: taken as {} on each node; if that is wrong, give --ranks-per-node",
                     listed, taken);
}

}  // namespace linerate::bench_logs
