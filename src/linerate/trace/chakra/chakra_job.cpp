// Ranks of one Chakra job, and the file of its process groups.
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/trace/chakra/chakra.hpp"
#include "linerate/trace/job/process_group.hpp"

namespace linerate::trace {
namespace {

/// The sum of input tensors per rank is one rank's part of these.
bool states_part(CommOp op) { return op == CommOp::all_gather || op == CommOp::gather; }

std::int64_t total_of(std::int64_t part, int ranks) {
  return part >= 0 && ranks > 0 && part < (std::int64_t{1} << 60) / ranks ? part * ranks : -1;
}

std::vector<ConfiguredGroup> configured(const ChakraGroups& groups) {
  std::vector<ConfiguredGroup> all;
  for (const auto& [name, ranks] : groups)
    all.push_back({.name = name, .size = static_cast<int>(ranks.size()), .ranks = ranks});
  return all;
}

int ranks_of_job(const ChakraGroups& groups) {
  std::int64_t most = -1;
  for (const auto& [name, ranks] : groups)
    for (const std::int64_t r : ranks) most = std::max(most, r);
  return static_cast<int>(most + 1);
}

/// Members and totals of a rank's communications; returns how many parts stay parts.
std::size_t place(ChakraTrace& t, const std::vector<ConfiguredGroup>& known, Job& job) {
  std::vector<GroupRecord> records;
  for (const std::string& name : t.group_names) records.push_back({.name = name, .ranks = {}});
  const std::vector<ResolvedGroup> resolved = resolve_groups(records, known, job.world_size);
  std::size_t parts = 0;
  for (Communication& c : t.rank.communications) {
    if (c.group >= 0) {
      const ResolvedGroup& g = resolved[static_cast<std::size_t>(c.group)];
      if (!g.ranks.empty()) c.group_size = static_cast<int>(g.ranks.size());
      c.group = group_index(job, g.text);
    }
    if (!states_part(c.op) || c.bytes < 0) continue;
    c.bytes = total_of(c.bytes, c.group_size);
    parts += c.bytes < 0;
  }
  return parts;
}

}  // namespace

ChakraGroups read_chakra_groups(PaddedText text, const std::string& name) {
  simdjson::dom::parser parser;
  simdjson::dom::object root;
  if (const auto e = parser.parse(text.data(), text.size(), false).get_object().get(root))
    throw InputError(name, fmt::format("expected process groups such as {{\"1\": [0, 1]}}: {}",
                                       simdjson::error_message(e)));
  ChakraGroups groups;
  for (const auto& [key, value] : root) {
    simdjson::dom::array list;
    std::vector<std::int64_t>& ranks = groups[std::string(key)];
    bool whole = value.get(list) == simdjson::SUCCESS;
    if (whole)
      for (const simdjson::dom::element& e : list) {
        std::int64_t rank = -1;
        whole = whole && e.get(rank) == simdjson::SUCCESS && rank >= 0 && rank < (1 << 20);
        ranks.push_back(rank);
      }
    if (!whole)
      throw InputError(name, fmt::format("/{}: expected a list of ranks, found {}", key,
                                         simdjson::minify(value).substr(0, 60)));
  }
  return groups;
}

Job join_chakra(std::vector<ChakraTrace> traces, const ChakraGroups& groups) {
  Job job;
  job.has_durations = false;
  if (const int ranks = ranks_of_job(groups); ranks > 0) job.world_size = ranks;
  const std::vector<ConfiguredGroup> known = configured(groups);
  for (ChakraTrace& t : traces) {
    job.has_durations = job.has_durations || t.has_durations;
    job.notes.insert(job.notes.end(), t.notes.begin(), t.notes.end());
    if (const std::size_t parts = place(t, known, job); parts > 0)
      job.notes.push_back(fmt::format(
          "{}: {} all-gathers state one rank's part, and the group's size is in another file "
          "(give the JSON of process groups too): their total bytes are unknown",
          t.rank.source, parts));
    job.ranks.push_back(std::move(t.rank));
  }
  return job;
}

}  // namespace linerate::trace
