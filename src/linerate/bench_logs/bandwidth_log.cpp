// Readers of formats give this class their runs (columns.hpp). add() finds the unit of the
// times, drops damaged rows, lets Judge name the test, and settles the number of ranks. It first
// judges the run whole. If no test fits, the run may be several that were appended without a
// header, and each stretch of ascending sizes is judged by itself.
#include "linerate/bench_logs/bandwidth_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/core/dtype.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"

namespace linerate::bench_logs {
namespace {

bool informs(const Timing& t) { return t.time > 0 && t.algbw && t.algbw->low > 0; }

/// Unit of the times, in seconds. It is us, or ms as the tests of 2017 print. Bandwidths decide: 1
/// MiB in "100" with an algbw of 10.49 GB/s took 100 us. nullopt: most rows contradict both.
std::optional<double> unit_of(const BandwidthRun& run) {
  if (run.unit_s) return run.unit_s;
  constexpr double kMicro = 1e-6, kMilli = 1e-3;
  std::size_t informing = 0, micro = 0, milli = 0;
  for (const BandwidthRow& row : run.rows)
    for (const Timing& t : row.timings)
      if (informs(t)) ++informing, micro += agrees(row, t, kMicro), milli += agrees(row, t, kMilli);
  if (informing == 0) return run.is_of_2017 ? kMilli : kMicro;
  const std::size_t most = std::max(micro, milli);
  if (2 * most <= informing) return std::nullopt;
  return micro >= milli ? kMicro : kMilli;
}

/// Why no unit fits, for people. It gives the median factor between size / time and the printed
/// algbw. A factor of 1000 is a wrong unit of time, and 1.07 is GiB for GB.
std::string contradiction(const BandwidthRun& run) {
  const double unit_s = run.unit_s.value_or(1e-6);
  std::vector<double> factors;
  for (const BandwidthRow& row : run.rows)
    for (const Timing& t : row.timings)
      if (informs(t))
        factors.push_back(row.bytes * 1e-9 / (t.time * unit_s) /
                          ((t.algbw->low + t.algbw->high) / 2));
  if (factors.empty())
    return "expected bandwidths precise enough to tell the unit of the times, found none; give a "
           "log with more digits, or a table with a header such as bytes,time_us";
  return fmt::format(
      "size / time is {:.3g} times the algbw printed next to it; expected sizes in bytes, times "
      "in {} and bandwidths in GB/s (1e9)",
      median(factors), run.unit_s ? "the header's unit" : "us");
}

/// Cuts rows of several runs: where sizes ascend again another begins.
std::vector<Rows> ascending_stretches(Rows rows) {
  std::vector<Rows> stretches;
  for (std::size_t first = 0, i = 1; i <= rows.size(); ++i) {
    if (i < rows.size() && rows[i].bytes > rows[i - 1].bytes) continue;
    stretches.push_back(rows.subspan(first, i - first));
    first = i;
  }
  return stretches;
}

}  // namespace

void BandwidthLog::refuse(const std::string& where, const std::string& why) {
  ++refused_;
  if (first_refused_.empty()) first_refused_ = where + (why.empty() ? "" : ": " + why);
}

void BandwidthLog::add(BandwidthRun run) {
  failed_ = failed_ || run.failed;
  if (run.rows.empty()) return;
  run.rows = without_travelled(std::move(run.rows));
  check_collective(run);
  const std::optional<double> unit_s = unit_of(run);
  const std::vector<BandwidthRow> rows =
      unit_s ? sound_rows(run, *unit_s) : std::vector<BandwidthRow>();
  if (rows.empty()) {
    left_out_.push_back(contradiction(run));
    return;
  }
  for (const BandwidthRow& row : rows)
    wrong_ += row.timings[0].wrong > 0 || row.timings[1].wrong > 0;
  const Judge whole(run, rows, *unit_s, options_);
  if (whole.has_candidates()) return add_stretch(run, rows, whole, *unit_s);
  for (const Rows stretch : ascending_stretches(rows))
    add_stretch(run, stretch, Judge(run, stretch, *unit_s, options_), *unit_s);
}

/// Throws InputError if --collective contradicts a title or the redop column: a log must not be
/// overruled by accident.
void BandwidthLog::check_collective(const BandwidthRun& run) const {
  if (!options_.collective) return;
  const Collective asked = *options_.collective;
  for (const auto& [strength, test] : run.titles)
    if (strength != TitleStrength::mention && test->collective && *test->collective != asked)
      throw InputError(
          source(),
          fmt::format("the log is of {}, but --collective says {}; leave --collective out",
                      name_of(*test->collective), name_of(asked)));
  const BandwidthTest* test = test_of(asked);
  if (test && !test->reduces.value_or(true) && run.rows.back().reduces.value_or(false))
    throw InputError(source(), fmt::format("the log's redop column says that it reduces, but "
                                           "--collective says {}; leave --collective out",
                                           name_of(asked)));
}

/// The rows whose own time and bandwidth agree. Others were damaged, and count as refused.
std::vector<BandwidthRow> BandwidthLog::sound_rows(const BandwidthRun& run, double unit_s) {
  std::vector<BandwidthRow> sound;
  for (const BandwidthRow& row : run.rows) {
    const bool damaged = std::any_of(
        std::begin(row.timings), std::end(row.timings),
        [&](const Timing& t) { return t.time > 0 && t.algbw && !agrees(row, t, unit_s); });
    refused_ += damaged;
    if (!damaged) sound.push_back(row);
  }
  return sound;
}

/// Adds samples of the rows, out of place and in place, or the reason why they are left out.
void BandwidthLog::add_stretch(const BandwidthRun& run, Rows rows, const Judge& judge,
                               double unit_s) try {
  const auto& [test, possible] = judge.decide();
  note_other_title(run, *test);
  const int ranks = settled_ranks(run, possible);
  if (const std::string doubt = run.listed.doubt(ranks); !doubt.empty()) note_once(doubt);
  for (const BandwidthRow& row : rows)
    for (int g = 0; g < 2; ++g)
      if (const Timing& t = row.timings[g]; t.time > 0)
        log_.rows.push_back({.collective = *test->collective,
                             .ranks = ranks,
                             .ranks_per_node = run.listed.ranks_per_node(ranks),
                             .dtype = row.dtype,
                             .says_type = row.says_type,
                             .in_place = g == 1,
                             .bytes = static_cast<std::int64_t>(row.bytes),
                             .seconds = t.time * unit_s,
                             .low_s = t.low * unit_s,
                             .high_s = t.high * unit_s});
} catch (const RowsNotUsed& left_out) {
  left_out_.push_back(left_out.why);
}

/// The number of ranks; 0: unknown. The listed ranks stand unless the bandwidths exclude them,
/// which were computed with the true number. Then the bandwidths' number counts, or the caller's.
/// Throws RowsNotUsed if the listed ranks are excluded and no other number is certain.
int BandwidthLog::settled_ranks(const BandwidthRun& run, const RankRange& possible) {
  const std::optional<int> listed = run.listed.ranks(), asked = options_.ranks;
  const bool silent = possible.low == RankRange{}.low && possible.high == RankRange{}.high;
  if (listed && (silent || possible.holds(*listed))) return settle_ranks(source(), listed, asked);
  if (asked && !possible.holds(*asked)) refuse_ranks(source(), *asked, possible.text());
  const int ranks = possible.single() ? static_cast<int>(possible.low) : asked.value_or(0);
  const auto excluded = [&] {
    return fmt::format("{} ranks are listed, but its bandwidths are those of {}", *listed,
                       possible.text());
  };
  if (listed && ranks == 0) throw RowsNotUsed{excluded() + "; give --ranks"};
  if (listed)
    note(fmt::format("{}; taken as {}", excluded(), ranks));
  else if (ranks == 0)
    note(fmt::format("no line lists the ranks, and the bandwidths fit {} ranks; give --ranks",
                     possible.text()));
  return ranks;
}

/// Notes that the last title which is more than a mention names another test.
void BandwidthLog::note_other_title(const BandwidthRun& run, const BandwidthTest& test) {
  const BandwidthTest* named = nullptr;
  for (const auto& [strength, title] : run.titles) {
    if (strength == TitleStrength::mention) continue;
    if (title == &test) return;
    named = title;
  }
  if (named && !options_.collective)
    note(fmt::format("named {}_perf, its bandwidths are those of {}_perf", named->name, test.name));
}

CollectiveLog BandwidthLog::finish() {
  if (log_.rows.empty() && !left_out_.empty()) throw InputError(source(), left_out_.front());
  if (log_.rows.empty() && !first_refused_.empty())
    throw InputError(source(), fmt::format("the {} log holds no row with a size and a time; the "
                                           "first row that could not be read is {}",
                                           log_.format, first_refused_));
  std::set<std::string> said;
  for (const std::string& why : left_out_)
    if (said.insert(why).second) note("left out: " + why);
  if (refused_ > 0) {
    note(fmt::format("{} rows could not be read (interrupted by other output?){}", refused_,
                     first_refused_.empty() ? "" : "; the first is " + first_refused_));
    log_.unread = log_.notes.back();
  }
  if (wrong_ > 0 || failed_)
    note(fmt::format("{} rows report wrong results, so what was measured did not work", wrong_));
  return std::move(log_);
}

// The constructor keeps the tests that can have printed the rows (bandwidth_log.hpp). decide()
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

// Printed bandwidths tell the number of ranks. busbw = algbw * factor, and the factor depends on n:
// 2 (n-1)/n for all-reduce, (n-1)/n for gathers and scatters (nccl-tests, doc/PERFORMANCE.md).
// Printed numbers are rounded, so each stands for an interval, and so does n.
//
// Example. "1.00" and "1.97" stand for 0.995 to 1.005 and 1.965 to 1.975. Their ratio is 1.955 to
// 1.985, which all-reduce has on 45 to 132 ranks. Another row has 100.00 and 196.88. Its ratio is
// 1.9687 to 1.9689, for which only 64 ranks are left. Rows of one run intersect, so the best row
// decides.
//
// Sizes tell it, too. All-gather prints the elements of one rank's piece as count. A size of 16 MiB
// with a count of 1,048,576 floats is four pieces, so four ranks.

namespace {

/// The whole n >= 2 whose factor lies in `ratio`. limit * (n-1)/n = r gives n = limit / (limit -
/// r). A ratio at the limit leaves n without an upper bound.
RankRange ranks_of(BusFactor factor, const Interval& ratio) {
  if (factor == BusFactor::one) return ratio.holds(1) ? RankRange{} : kNoRanks;
  const double limit = factor == BusFactor::twice ? 2 : 1;  // limit * (n-1)/n
  const auto ranks_at = [limit](double r) { return limit / (limit - r); };
  RankRange range;
  if (ratio.low >= limit) return kNoRanks;
  if (ratio.high < limit / 2) return kNoRanks;  // 2 ranks have the least
  // Whole numbers on the border are not lost to binary rounding.
  range.low = std::max(2.0, std::ceil(ranks_at(ratio.low) * (1 - 1e-12)));
  if (ratio.high < limit) range.high = std::floor(ranks_at(ratio.high) * (1 + 1e-12));
  return range;
}

/// Bytes a second that size and time say, in GB/s.
Interval algbw_by_time(const BandwidthRow& row, const Timing& t, double unit_s) {
  const double gb = row.bytes * 1e-9 / unit_s;
  return Interval{gb, gb}.over(t.time_range);
}

// Both come from one measured time; printed digits are all that may differ.
constexpr double kSlack = 0.005;

Interval widened(const Interval& range, double times) {
  const double middle = (range.low + range.high) / 2, half = times * (range.high - range.low) / 2;
  return {std::max(0.0, middle - half), middle + half};
}

/// busbw / algbw over both groups; `blur` multiplies what rounding leaves.
Interval ratio_of(const BandwidthRow& row, double unit_s, double blur) {
  Interval ratio;
  for (const Timing& t : row.timings) {
    if (t.time <= 0 || !t.busbw || t.busbw->high <= 0) continue;
    const Interval timed = algbw_by_time(row, t, unit_s);
    Interval algbw = t.algbw ? t.algbw->with(timed) : timed;
    if (algbw.empty()) algbw = *t.algbw;
    ratio = ratio.with(widened(*t.busbw, blur).over(widened(algbw, blur)));
  }
  return ratio;
}

/// How many pieces of `count` elements the size holds, if that is a whole number.
std::optional<double> pieces_of(const BandwidthRow& row) {
  if (row.count.value_or(0) <= 0) return std::nullopt;
  const double pieces = row.bytes / (*row.count * static_cast<double>(size_of(row.dtype)));
  return pieces >= 1 && pieces == std::floor(pieces) ? std::optional(pieces) : std::nullopt;
}

bool same(const Timing& t) {
  return t.time <= 0 || (t.algbw && t.busbw && t.algbw->low == t.busbw->low);
}

}  // namespace

std::vector<BandwidthRow> without_travelled(std::vector<BandwidthRow> rows) {
  const bool travelled = std::all_of(rows.begin(), rows.end(), [](const BandwidthRow& row) {
    return pieces_of(row).value_or(1) > 1 && same(row.timings[0]) && same(row.timings[1]);
  });
  if (travelled)
    for (BandwidthRow& row : rows) {
      row.timings[0].algbw = row.timings[1].algbw = std::nullopt;
      row.travelled = true;
    }
  return rows;
}

bool agrees(const BandwidthRow& row, const Timing& t, double unit_s) {
  const Interval said = *t.algbw, timed = algbw_by_time(row, t, unit_s);
  return timed.low <= said.high * (1 + kSlack) && said.low <= timed.high * (1 + kSlack);
}

/// A row can exclude the test by its operation or root, or by a count that the test does not print.
/// It also excludes the test if no n gives its ratio. What all rows allow is intersected.
RankRange possible_ranks(Rows rows, const BandwidthTest& test, double unit_s, double blur,
                         bool believed) {
  Interval ratio;
  RankRange range;
  for (const BandwidthRow& row : rows) {
    if (row.reduces && test.reduces && *row.reduces != *test.reduces) return kNoRanks;
    if (row.rooted.value_or(test.rooted) != test.rooted) return kNoRanks;
    // Since "none" is printed only tests that no training step uses count what travels.
    if (row.travelled && row.none && test.collective) return kNoRanks;
    const auto pieces = pieces_of(row);
    if (pieces && *pieces > 1) {
      if (!test.splits) return kNoRanks;
      range = range.with({*pieces, *pieces});
    } else if (pieces && test.splits && !believed) {
      return kNoRanks;
    }
    ratio = ratio.with(ratio_of(row, unit_s, blur));
  }
  return ratio.empty() ? kNoRanks : range.with(ranks_of(test.factor, ratio));
}

}  // namespace linerate::bench_logs
