// Private: which ranks a process group has, from what events and the head of a trace say about it.
// Ranks must agree on a name for the group, or their collectives are not matched
// (explain/match.hpp). PyTorch's own name is not enough: "tp" may be several groups of one job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace linerate::trace {

/// A list of numbers that PyTorch writes as text and cuts above 30 items. It then has the first 30
/// and "...", or the first 29, "..." and the last. A cut list is never taken for the whole.
struct NumberList {
  std::vector<std::int64_t> items;
  bool cut = false;
};
/// "[0, 1]", with or without the quotes around it; nullopt when it is no list of numbers.
std::optional<NumberList> parse_number_list(std::string_view text);

/// distributedInfo's pg_config.
struct ConfiguredGroup {
  std::string name;  // pg_name; files that have none: uid
  int size = -1;
  std::vector<std::int64_t> ranks;  // empty: not stated, or cut
};
/// The JSON of the array; what cannot be read is left out.
std::vector<ConfiguredGroup> parse_configured_groups(std::string_view json);

/// A group as an event names it. -1 and empty: absent.
struct GroupRecord {
  std::string name, ranks;  // both as written
  std::int64_t start = -1, stride = -1;
  int size = -1;
  bool operator==(const GroupRecord&) const = default;
};

/// A group record, resolved: its ranks in full, and a text for it. The text is equal on all ranks
/// of the group and differs between groups of one name.
struct ResolvedGroup {
  std::vector<std::int64_t> ranks;  // empty: unknown
  std::string text;  // "0 (ranks 0..7)", "tp (ranks 0, 4, 6)", "0 (8 ranks, cut list [0, ...)"
};
/// The ranks of each record, from the first of these that is there:
///
/// 1. start, stride and size
/// 2. a list that PyTorch did not cut
/// 3. the entry of pg_config with the same name
/// 4. the whole job, if the size is the job's
/// 5. another record of the same name, size and list
///
/// Two groups of 64 ranks may begin with the same 30, so a cut list never decides.
std::vector<ResolvedGroup> resolve_groups(const std::vector<GroupRecord>& records,
                                          const std::vector<ConfiguredGroup>& configured,
                                          int world_size);

}  // namespace linerate::trace
