#include "linerate/trace/collective_log/bandwidth_judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "linerate/core/text.hpp"

namespace linerate::trace {
namespace {

std::string names_of(const std::vector<const BandwidthTest*>& tests) {
  std::vector<std::string> names;
  for (const BandwidthTest* test : tests) names.push_back(std::string(test->name) + "_perf");
  return join(names, " or ");
}

}  // namespace

std::string not_used(std::string_view names) {
  return fmt::format(
      "found {}, which no training step uses; expected all-reduce, reduce-scatter, all-gather, "
      "all-to-all, broadcast or reduce; leave that part out or say --collective",
      names);
}

Judge::Judge(const BandwidthRun& run, Rows rows, double unit_s, const CollectiveLogOptions& options)
    : run_(run), rows_(rows), options_(options) {
  // Scripts that rewrite a table may cut digits where printf rounds them.
  for (const double blur : {1.0, 2.0}) {
    for (const BandwidthTest& test : bandwidth_tests()) {
      const RankRange range = possible_ranks(rows, test, unit_s, blur, is_titled(test));
      if (!range.empty()) possible_.emplace_back(&test, range);
    }
    if (is_one()) return;
  }
}

const BandwidthTest* Judge::test(std::string& why) const {
  if (options_.collective) return asked(*options_.collective, why);
  for (const TitleStrength strength : {TitleStrength::statement, TitleStrength::command})
    for (auto title = run_.titles.rbegin(); title != run_.titles.rend(); ++title)
      if (title->first == strength && fits(*title->second)) return title->second;
  return by_rows(why);
}

RankRange Judge::ranks(const BandwidthTest& test) const {
  for (const auto& [possible, range] : possible_)
    if (possible == &test) return range;
  return kNoRanks;
}

std::string Judge::impossible() const {
  return fmt::format(
      "rows of {} to {} bytes whose bandwidths are not those of one collective on one number of "
      "ranks; split the log into one file a run",
      rows_.front().bytes, rows_.back().bytes);
}

bool Judge::is_titled(const BandwidthTest& test) const {
  if (options_.collective) return test.collective == options_.collective;
  return std::any_of(run_.titles.begin(), run_.titles.end(), [&](const auto& title) {
    return title.first != TitleStrength::mention && title.second == &test;
  });
}

const BandwidthTest* Judge::asked(Collective collective, std::string& why) const {
  const BandwidthTest* test = test_of(collective);
  if (!test || !fits(*test))
    why = fmt::format("its bandwidths are not those of {}, which --collective says; leave it out",
                      name_of(collective));
  return why.empty() ? test : nullptr;
}

/// All-to-all cannot be checked in place: "N/A" there beside a number out of place.
const BandwidthTest* Judge::by_checks() const {
  std::size_t gather = 0, all_to_all = 0;
  for (const BandwidthRow& row : rows_) {
    if (row.timings[0].time <= 0 || row.timings[1].time <= 0 || !row.timings[0].checked) continue;
    ++(row.timings[1].checked ? gather : all_to_all);
  }
  if ((gather == 0) == (all_to_all == 0)) return nullptr;
  return test_of(gather > 0 ? Collective::all_gather : Collective::all_to_all);
}

const BandwidthTest* Judge::by_rows(std::string& why) const {
  std::vector<const BandwidthTest*> left;
  for (const auto& [test, range] : possible_)
    if (test->name != "hypercube" && test->name != "alltoallv") left.push_back(test);
  if (left.size() == 1) return left.front();
  if (const BandwidthTest* checked = by_checks(); checked && fits(*checked)) return checked;
  // A mention, such as a list of programs in a README, decides only between what is left.
  std::set<const BandwidthTest*> mentioned;
  for (const auto& [strength, test] : run_.titles)
    if (fits(*test)) mentioned.insert(test);
  if (mentioned.size() == 1) return *mentioned.begin();
  if (std::none_of(left.begin(), left.end(), [](auto* test) { return !!test->collective; })) {
    why = left.empty() ? impossible() : not_used(names_of(left));
    return nullptr;
  }
  why = fmt::format("{} print the same columns, and no line says which ran; say --collective",
                    names_of(left));
  return nullptr;
}

}  // namespace linerate::trace
