#include "linerate/bench_logs/listed_ranks.hpp"

#include <algorithm>

namespace linerate::bench_logs {

void ListedRanks::add(int rank, int group, std::string_view host, std::string_view device) {
  highest_rank_ = std::max(highest_rank_, rank);
  Group& g = groups_[group];
  ++g.lines;
  if (host.empty()) return;
  ++g.of_host[std::string(host)];
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
  return most * static_cast<int>(largest->second.of_host.size()) == ranks ? most : 0;
}

}  // namespace linerate::bench_logs
