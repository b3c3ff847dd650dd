// The constructor keeps the tests that can have printed the rows (possible_ranks.hpp). decide()
// then takes the first of these that leaves one:
//
// 1. the caller's --collective
// 2. the last statement ("Collective test starting"), then the last command line
// 3. the rows alone, with the listed ranks and the check in place as further evidence
// 4. a mention, such as a list of programs in a README
//
// Example. Rows have algbw 10.00 and busbw 15.00 GB/s, and no title. The ratio 1.5 is 2 (n - 1) / n
// for all-reduce on four ranks. No test whose factor is (n - 1) / n reaches 1.5, and broadcast has
// 1. So all-reduce is left, on four ranks.
#include "linerate/bench_logs/bandwidth_judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "linerate/core/text.hpp"

namespace linerate::bench_logs {
namespace {

using Candidates = std::vector<const PossibleTest*>;

std::string names_of(const Candidates& candidates) {
  std::vector<std::string> names;
  for (const PossibleTest* c : candidates) names.push_back(std::string(c->test->name) + "_perf");
  return join(names, " or ");
}

/// The reason for leaving out rows of tests that no training step uses.
std::string not_used(const Candidates& candidates) {
  return fmt::format(
      "found {}, which no training step uses; expected all-reduce, reduce-scatter, all-gather, "
      "all-to-all, broadcast or reduce; leave that part out or say --collective",
      names_of(candidates));
}

/// Whether rows that were checked out of place were checked in place, too. All-to-all cannot check
/// in place and prints "N/A" there. Absent: no row says, or rows differ.
std::optional<bool> checked_in_place(Rows rows) {
  std::size_t yes = 0, no = 0;
  for (const BandwidthRow& row : rows) {
    const Timing &out = row.timings[0], &in = row.timings[1];
    if (out.time <= 0 || in.time <= 0 || !out.checked.value_or(false) || !in.checked) continue;
    ++(*in.checked ? yes : no);
  }
  return (yes == 0) == (no == 0) ? std::nullopt : std::optional(yes > 0);
}

/// Whether every process ran alone. On one rank nothing travels, so busbw is 0, however large
/// algbw.
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

/// Those for which `holds`; all if it holds for none.
template <typename Predicate>
void keep_if_any(Candidates& candidates, Predicate holds) {
  if (std::any_of(candidates.begin(), candidates.end(), holds))
    std::erase_if(candidates, [&](const PossibleTest* c) { return !holds(c); });
}

}  // namespace

Judge::Judge(const BandwidthRun& run, Rows rows, double unit_s, const CollectiveLogOptions& options)
    : run_(run), rows_(rows), options_(options) {
  // Scripts that rewrite a table may cut digits where printf rounds them.
  for (const double blur : {1.0, 2.0}) {
    for (const BandwidthTest& test : bandwidth_tests()) {
      const RankRange range = possible_ranks(rows, test, unit_s, blur, is_named(test));
      if (!range.empty()) candidates_.push_back({&test, range});
    }
    if (has_candidates()) return;
  }
}

const PossibleTest& Judge::decide() const {
  if (!has_candidates()) throw RowsNotUsed{impossible()};
  const PossibleTest* found = options_.collective ? asked_for() : titled();
  if (!found) found = by_rows();
  if (!found->test->collective) throw RowsNotUsed{not_used({found})};
  return *found;
}

std::string Judge::impossible() const {
  if (ran_alone(rows_))
    return "its busbw is 0 throughout, so every process measured itself alone (nccl-tests built "
           "without MPI=1?); expected one run of all ranks together";
  return fmt::format(
      "expected rows of one collective on one number of ranks; the bandwidths of {} to {} bytes do "
      "not fit that; split the log into one file a run",
      rows_.front().bytes, rows_.back().bytes);
}

/// The caller or the log names it.
bool Judge::is_named(const BandwidthTest& test) const {
  if (options_.collective) return test.collective == options_.collective;
  return std::any_of(run_.titles.begin(), run_.titles.end(), [&](const auto& title) {
    return title.first != TitleStrength::mention && title.second == &test;
  });
}

const PossibleTest* Judge::candidate_of(const BandwidthTest* test) const {
  const auto found = std::find_if(candidates_.begin(), candidates_.end(),
                                  [test](const PossibleTest& c) { return c.test == test; });
  return found == candidates_.end() ? nullptr : &*found;
}

const PossibleTest* Judge::asked_for() const {
  const PossibleTest* found = candidate_of(test_of(*options_.collective));
  if (!found)
    throw RowsNotUsed{
        fmt::format("--collective says {0}, but the log's bandwidths are not those of {0}; leave "
                    "--collective out",
                    name_of(*options_.collective))};
  return found;
}

/// The last of the most credible titles; nullptr: the rows contradict all.
const PossibleTest* Judge::titled() const {
  for (const TitleStrength strength : {TitleStrength::statement, TitleStrength::command})
    for (auto title = run_.titles.rbegin(); title != run_.titles.rend(); ++title)
      if (title->first == strength)
        if (const PossibleTest* found = candidate_of(title->second)) return found;
  return nullptr;
}

/// The one test that the rows leave. Tests that only few builds have count only if a line mentions
/// them. Throws RowsNotUsed if several are left, or none that a training step uses.
const PossibleTest* Judge::by_rows() const {
  Candidates left, all;
  for (const PossibleTest& c : candidates_) {
    all.push_back(&c);
    if (c.test->name != "hypercube" && c.test->name != "alltoallv") left.push_back(&c);
  }
  if (const auto listed = run_.listed.ranks())
    keep_if_any(left, [&](const PossibleTest* c) { return c->ranks.holds(*listed); });
  if (const auto checked = checked_in_place(rows_))
    keep_if_any(left, [&](const PossibleTest* c) { return c->test->checks_in_place == *checked; });
  if (left.size() == 1) return left.front();
  // A mention, such as a list of programs in a README, decides only among what is left.
  std::set<const PossibleTest*> mentioned;
  for (const auto& [strength, test] : run_.titles)
    if (const PossibleTest* c = candidate_of(test)) mentioned.insert(c);
  if (mentioned.size() == 1) return *mentioned.begin();
  if (std::none_of(left.begin(), left.end(), [](auto* c) { return !!c->test->collective; }))
    throw RowsNotUsed{not_used(left.empty() ? all : left)};
  throw RowsNotUsed{fmt::format(
      "{} print the same columns, and no line says which of them ran; give --collective",
      names_of(left))};
}

}  // namespace linerate::bench_logs
