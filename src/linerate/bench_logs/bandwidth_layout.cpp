#include "linerate/bench_logs/bandwidth_layout.hpp"

#include <algorithm>

namespace linerate::bench_logs {
namespace {

void add_column(Group& g, std::string_view word) {
  if (word == "algbw") g.algbw = g.words;
  if (word == "busbw") g.busbw = g.words;
  if (word == "wrong") g.wrong = g.words;
  // Until 2022 "error": a difference, which may be small and right; 2017 "res".
  if (word == "wrong" || word == "error" || word == "res") g.check = g.words;
  if (word == "i_min") g.low = g.words;
  if (word == "i_max") g.high = g.words;
  ++g.words;
}

}  // namespace

Layout layout_of(const std::vector<std::string_view>& words) {
  Layout l;
  std::vector<std::string_view> keys;
  for (std::string_view w : words) {
    while (w.starts_with('#')) w.remove_prefix(1);
    if (w.empty() || w == "timestamp") continue;
    if (w == "time" || w == "cputime")
      l.groups.emplace_back();
    else if (l.groups.empty())
      keys.push_back(w);
    if (!l.groups.empty()) add_column(l.groups.back(), w);
  }
  const auto has = [&keys](std::string_view a, std::string_view b) {
    return std::find(keys.begin(), keys.end(), a) != keys.end() ||
           std::find(keys.begin(), keys.end(), b) != keys.end();
  };
  l.redop = has("redop", "op"), l.root = has("root", "root");
  l.is_of_2017 = has("bytes", "bytes") && has("N", "N");
  const bool whole = has("size", "bytes") && has("count", "N") && has("type", "type") &&
                     l.groups.size() <= 2 && !l.groups.empty() && l.groups[0].algbw > 0;
  return whole ? l : Layout{};
}

Layout usual_layout() {
  const Group group{.words = 4, .algbw = 1, .busbw = 2, .wrong = 3, .check = 3};
  return {.redop = true, .root = true, .groups = {group, group}};
}

}  // namespace linerate::bench_logs
