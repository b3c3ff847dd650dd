// The files of one Chakra job: the traces of its ranks, and its process groups.
//
// Ranks 0, 1 and 2 of group "1" each state 4 MiB of an all-gather. S of core/collective.hpp is the
// whole array, 12 MiB. Only the file of process groups says that the group has three ranks, so
// without that file the total stays unknown.
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>

#include "linerate/core/error.hpp"
#include "linerate/core/index.hpp"
#include "linerate/trace/chakra/chakra.hpp"
#include "linerate/trace/importer/file_ranks.hpp"
#include "linerate/trace/importer/importer.hpp"
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
      const ResolvedGroup& g = resolved[to_index(c.group)];
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
  bool unknown = false;  // of a rank, when anything began
  if (const int ranks = ranks_of_job(groups); ranks > 0) job.world_size = ranks;
  const std::vector<ConfiguredGroup> known = configured(groups);
  for (ChakraTrace& t : traces) {
    job.has_durations = job.has_durations || t.has_durations;
    unknown = unknown || (t.has_durations && !t.has_starts);
    job.notes.insert(job.notes.end(), t.notes.begin(), t.notes.end());
    if (const std::size_t parts = place(t, known, job); parts > 0)
      job.notes.push_back(fmt::format(
          "{}: {} all-gathers state the part of one rank, and the group's size is in another file, "
          "so their total bytes are unknown; give the JSON of process groups too",
          t.rank.source, parts));
    job.ranks.push_back(std::move(t.rank));
  }
  job.has_durations = job.has_durations && !unknown;
  return job;
}

namespace {

constexpr std::string_view kGroupsAlone =
    "process groups of a Chakra job, not a trace; give its traces (*.et) together with it";

/// Traces and tables of groups may come in any order. Tables are merged; a job needs one trace at
/// least.
Job join_files(std::vector<FilePart> parts) {
  std::vector<ChakraTrace> traces;
  std::vector<RankOfFile> ranks;
  ChakraGroups groups;
  for (FilePart& part : parts)
    if (auto* some = std::any_cast<ChakraGroups>(&part.content)) {
      groups.merge(*some);
    } else {
      const auto& trace = traces.emplace_back(std::any_cast<ChakraTrace>(std::move(part.content)));
      ranks.push_back({trace.rank.rank, trace.rank.source});
    }
  if (traces.empty()) throw InputError(parts.front().file, std::string(kGroupsAlone));
  require_ranks(ranks);
  return join_chakra(std::move(traces), groups);
}

/// The next character that is no blank, 0 at the end.
char next_of(std::string_view text, std::size_t& at) {
  at = text.find_first_not_of(" \t\r\n", at);
  return at == std::string_view::npos ? '\0' : text[at++];
}

/// {"1": [0, 1], ...}: process groups, given with the traces of the ranks.
bool is_group_table(const Head& head) {
  // A host execution trace may begin with an empty list too, and states its schema.
  if (head.form() != HeadForm::object || head.contains("\"schema\"")) return false;
  const std::string_view text = head.text();
  std::size_t at = 0;
  if (next_of(text, at) != '{' || next_of(text, at) != '"') return false;
  const std::size_t quote = text.find('"', at);
  if (quote == std::string_view::npos || quote - at > 64) return false;
  at = quote + 1;
  if (next_of(text, at) != ':' || next_of(text, at) != '[') return false;
  const char first = next_of(text, at);
  return (first >= '0' && first <= '9') || first == ']';
}

}  // namespace

std::vector<Importer> chakra_importers() {
  return {
      {.name = "Chakra execution trace",
       .matches =
           [](const Head& head) { return yes_if(!head.is_json() && is_chakra(head.bytes())); },
       .read = [](PaddedText text, const std::string& file, const ReadOptions&) -> std::any {
         return read_chakra(text.view(), file);
       },
       .join = join_files},
      {.name = "Chakra JSON trace",
       .matches =
           [](const Head& head) {
             return yes_if(head.form() == HeadForm::object && head.contains("\"workload_graph\""));
           },
       .read = [](PaddedText text, const std::string& file, const ReadOptions&) -> std::any {
         return read_chakra_json(std::move(text), file);
       },
       .join = join_files},
      {.name = "Chakra process groups",
       .matches = [](const Head& head) { return yes_if(is_group_table(head)); },
       .read = [](PaddedText text, const std::string& file, const ReadOptions&) -> std::any {
         return read_chakra_groups(std::move(text), file);
       },
       .join = join_files}};
}

}  // namespace linerate::trace
