#include "linerate/bench_logs/bandwidth_judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "linerate/core/text.hpp"

namespace linerate::bench_logs {
namespace {

std::string names_of(const std::vector<const BandwidthTest*>& tests) {
  std::vector<std::string> names;
  for (const BandwidthTest* test : tests) names.push_back(std::string(test->name) + "_perf");
  return join(names, " or ");
}

/// Whether numbers stand in place, too, wherever they stand out of place; absent: no row says, or
/// not all the same.
std::optional<bool> checked_in_place(Rows rows) {
  std::size_t yes = 0, no = 0;
  for (const BandwidthRow& row : rows) {
    const Timing &out = row.timings[0], &in = row.timings[1];
    if (out.time <= 0 || in.time <= 0 || !out.checked.value_or(false) || !in.checked) continue;
    ++(*in.checked ? yes : no);
  }
  return (yes == 0) == (no == 0) ? std::nullopt : std::optional(yes > 0);
}

/// On one rank nothing travels: busbw is 0, however large algbw.
bool ran_alone(Rows rows) {
  std::size_t zero = 0, other = 0;
  for (const BandwidthRow& row : rows)
    for (const Timing& t : row.timings) {
      if (t.time <= 0 || !t.algbw || !t.busbw) continue;
      other += t.busbw->low > 0;
      // All-gather on two ranks has the least share of algbw that several ranks have, a half.
      zero += t.busbw->high < t.algbw->low / 2;
    }
  return zero > 0 && other == 0;
}

/// Of several, those of which `holds`; all of them where it holds of none.
template <typename Predicate>
void keep_if_any(std::vector<const BandwidthTest*>& tests, Predicate holds) {
  if (std::any_of(tests.begin(), tests.end(), holds))
    std::erase_if(tests, [&](const BandwidthTest* test) { return !holds(test); });
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
  if (ran_alone(rows_))
    return "its busbw is 0 throughout: every process measured itself alone (nccl-tests built "
           "without "
           "MPI=1?); expected one run of all ranks together";
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

const BandwidthTest* Judge::by_rows(std::string& why) const {
  std::vector<const BandwidthTest*> left;
  for (const auto& [test, range] : possible_)
    if (test->name != "hypercube" && test->name != "alltoallv") left.push_back(test);
  if (const auto listed = run_.listed.ranks())
    keep_if_any(left, [&](const BandwidthTest* test) { return ranks(*test).holds(*listed); });
  if (const auto checked = checked_in_place(rows_))
    keep_if_any(left, [&](const BandwidthTest* test) { return test->checks_in_place == *checked; });
  if (left.size() == 1) return left.front();
  // A mention, such as a list of programs in a README, decides only between what is left.
  std::set<const BandwidthTest*> mentioned;
  for (const auto& [strength, test] : run_.titles)
    if (fits(*test)) mentioned.insert(test);
  if (mentioned.size() == 1) return *mentioned.begin();
  if (std::none_of(left.begin(), left.end(), [](auto* test) { return !!test->collective; })) {
    if (left.empty())
      for (const auto& [test, range] : possible_) left.push_back(test);
    why = left.empty() ? impossible() : not_used(names_of(left));
    return nullptr;
  }
  why = fmt::format("{} print the same columns, and no line says which ran; say --collective",
                    names_of(left));
  return nullptr;
}

}  // namespace linerate::bench_logs
