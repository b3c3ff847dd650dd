// Private: Chakra execution traces, one file for each rank. The reader knows protobuf of schema
// 0.0.4 and the JSON form of its feeder. Process groups are in a file of their own.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "linerate/trace/input/input_file.hpp"
#include "linerate/trace/job/job.hpp"

namespace linerate::trace {

/// One rank, before the members of its groups are known. Until join_chakra(), Communication::group
/// is an index into group_names, and the bytes of an all-gather or gather are the rank's own part.
struct ChakraTrace {
  RankActivity rank;
  std::vector<std::string> group_names;
  bool has_durations = false, has_starts = false;
  std::vector<std::string> notes;
};

/// {"1": [0, 1], ...}: ranks by pg_name.
using ChakraGroups = std::map<std::string, std::vector<std::int64_t>>;

/// Begins with a varint length and a GlobalMetadata with a version string?
bool is_chakra(std::string_view head);
/// Throws InputError for a schema that is not this one.
ChakraTrace read_chakra(std::string_view bytes, const std::string& name);
/// {"workload_graph": [...]}.
ChakraTrace read_chakra_json(PaddedText text, const std::string& name);
/// Throws InputError naming what is no list of ranks.
ChakraGroups read_chakra_groups(PaddedText text, const std::string& name);
/// All ranks of one job, in any order. Sizes of groups and totals of all-gathers come from the
/// groups; without them they stay unknown and a note says so.
Job join_chakra(std::vector<ChakraTrace> traces, const ChakraGroups& groups);

}  // namespace linerate::trace
