// A record of an event has only part of what is known about its group, and records of one group
// differ. A kernel has a cut list, and the operation that launched it has start and stride. Each
// record is resolved by itself first, and then by its siblings.
#include "linerate/trace/job/process_group.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>

#include "linerate/core/index.hpp"
#include "linerate/trace/input/decimal.hpp"
#include "linerate/trace/input/input_file.hpp"
#include "linerate/trace/input/json_token.hpp"

namespace linerate::trace {
namespace {

constexpr int kMostRanksListed =
    1 << 20;  // more than any job has; keeps absurd sizes from taking memory

std::vector<std::int64_t> strided(std::int64_t start, std::int64_t stride, int size) {
  std::vector<std::int64_t> ranks(to_index(size));
  for (int i = 0; i < size; ++i) ranks[to_index(i)] = start + i * stride;
  return ranks;
}

/// "0..7", "0..14 by 2" or "0, 4, 6": short for the groups that jobs of thousands of ranks have.
std::string text_of(const std::vector<std::int64_t>& ranks) {
  const std::int64_t stride = ranks.size() > 1 ? ranks[1] - ranks[0] : 1;
  bool even = stride > 0 && ranks.size() > 2;
  for (std::size_t i = 1; even && i < ranks.size(); ++i) even = ranks[i] - ranks[i - 1] == stride;
  if (even)
    return fmt::format("{}..{}{}", ranks.front(), ranks.back(),
                       stride == 1 ? "" : fmt::format(" by {}", stride));
  return fmt::format("{}", fmt::join(ranks, ", "));
}

bool plausible(int size) { return size > 0 && size <= kMostRanksListed; }

std::vector<std::int64_t> ranks_of(const GroupRecord& g,
                                   const std::vector<ConfiguredGroup>& configured, int world_size) {
  if (g.start >= 0 && g.start <= kMostRanksListed && g.stride > 0 && g.stride <= kMostRanksListed &&
      plausible(g.size))
    return strided(g.start, g.stride, g.size);
  if (const auto list = parse_number_list(g.ranks); list && !list->cut && !list->items.empty())
    return list->items;
  for (const ConfiguredGroup& c : configured)
    if (c.name == g.name && (g.size < 0 || c.size < 0 || c.size == g.size)) {
      if (!c.ranks.empty()) return c.ranks;
      if (plausible(c.size) && c.size == world_size) return strided(0, 1, c.size);
    }
  if (plausible(g.size) && g.size == world_size) return strided(0, 1, g.size);
  return {};
}

}  // namespace

/// "..." marks a cut and is no item. Anything else that is no number makes the text no list.
std::optional<NumberList> parse_number_list(std::string_view text) {
  text = unquoted(text);
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return std::nullopt;
  text = text.substr(1, text.size() - 2);
  NumberList list;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view item = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    while (!item.empty() && (item.front() == ' ' || item.front() == '\n')) item.remove_prefix(1);
    while (!item.empty() && (item.back() == ' ' || item.back() == '\n')) item.remove_suffix(1);
    if (item.starts_with("...")) {
      list.cut = true;
    } else if (const auto n = parse_whole(item)) {
      list.items.push_back(*n);
    } else if (!item.empty()) {
      return std::nullopt;
    }
  }
  return list;
}

std::vector<ConfiguredGroup> parse_configured_groups(std::string_view json) {
  std::vector<ConfiguredGroup> groups;
  if (json.empty()) return groups;
  const PaddedText text(json);
  simdjson::dom::parser parser;
  simdjson::dom::array list;
  if (parser.parse(text.data(), text.size(), false).get_array().get(list)) return groups;
  for (const simdjson::dom::element& e : list) {
    ConfiguredGroup g;
    simdjson::dom::element name;
    if (e["pg_name"].get(name) && e["uid"].get(name)) continue;
    std::string_view word;
    g.name = name.get(word) == simdjson::SUCCESS ? std::string(word) : simdjson::minify(name);
    std::int64_t size = -1;
    if (!e["pg_size"].get(size) && size <= kMostRanksListed) g.size = static_cast<int>(size);
    simdjson::dom::element ranks;
    if (!e["ranks"].get(ranks)) {
      // An array, but text from the on-demand writer; both may be cut.
      const std::string written =
          ranks.get(word) == simdjson::SUCCESS ? std::string(word) : simdjson::minify(ranks);
      if (auto numbers = parse_number_list(written);
          numbers && !numbers->cut && (g.size < 0 || numbers->items.size() == std::size_t(g.size)))
        g.ranks = std::move(numbers->items);
    }
    groups.push_back(std::move(g));
  }
  return groups;
}

std::vector<ResolvedGroup> resolve_groups(const std::vector<GroupRecord>& records,
                                          const std::vector<ConfiguredGroup>& configured,
                                          int world_size) {
  std::vector<ResolvedGroup> groups(records.size());
  for (std::size_t i = 0; i < records.size(); ++i)
    groups[i].ranks = ranks_of(records[i], configured, world_size);
  for (std::size_t i = 0; i < records.size(); ++i) {
    const GroupRecord& g = records[i];
    // A kernel has the cut list only; start and stride are on the operation that launched it.
    for (std::size_t k = 0; groups[i].ranks.empty() && k < records.size(); ++k)
      if (records[k].start >= 0 && records[k].name == g.name && records[k].size == g.size &&
          records[k].ranks == g.ranks)
        groups[i].ranks = groups[k].ranks;
    if (!groups[i].ranks.empty())
      groups[i].text = fmt::format("{} (ranks {})", g.name, text_of(groups[i].ranks));
    else
      groups[i].text = fmt::format("{} ({} ranks{})", g.name,
                                   g.size > 0 ? std::to_string(g.size) : "an unknown number of",
                                   g.ranks.empty() ? "" : ", cut list " + g.ranks);
  }
  return groups;
}

}  // namespace linerate::trace
