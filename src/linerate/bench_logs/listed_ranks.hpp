// Private: the ranks that a log lists before its rows.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace linerate::bench_logs {

/// The lines "Rank 3 Group 0 Pid 12 on node1 device 3" of one run. Lines get lost, so the highest
/// number counts if there is one communicator: with lines of ranks 0, 1 and 3 there are four ranks.
class ListedRanks {
 public:
  void add(int rank, int group, std::string_view host, std::string_view device);
  void set(int ranks, int ranks_per_node);
  /// Ranks of one communicator; nullopt: nothing is listed.
  std::optional<int> ranks() const;
  /// Ranks on each node; 0 if the hosts do not say: they are absent, uneven, or have one name for
  /// several machines. If the list was cut, the device of the last listed rank may say it. Rank 7
  /// on device 7 ends a node of eight.
  int ranks_per_node(int ranks) const;
  /// What ranks_per_node() takes for granted, for people; empty: nothing.
  std::string doubt(int ranks) const;

 private:
  bool is_cut(int ranks) const;
  struct Group {
    int lines = 0;
    std::map<std::string, int> of_host = {};
  };
  std::map<int, Group> groups_;
  std::set<std::pair<std::string, std::string>> devices_;  // by host
  int highest_rank_ = -1;
  std::optional<int> last_device_;  // of the highest rank
  bool one_name_for_several_ = false;
  std::optional<int> ranks_, ranks_per_node_;  // set() outright
};

}  // namespace linerate::bench_logs
