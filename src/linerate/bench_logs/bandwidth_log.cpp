// Readers of formats give this class their runs. add() finds the unit of the times, drops damaged
// rows, decides which test printed them, and settles the number of ranks. It first judges the run
// whole. If no test fits, the run may be several that were appended without a header, and each
// stretch of ascending sizes is judged by itself.
//
// A log may have lost its title, have a wrong one, or have those of several runs. Rows cannot lie
// as easily, since their bandwidths were computed with the true test and the true number of ranks.
#include "linerate/bench_logs/log_readers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <ranges>

#include "linerate/core/error.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"

namespace linerate::bench_logs {

// How many ranks ran, and how many of them on a node. With one communicator, the highest listed
// number plus one is the count, because lines get lost: with those of ranks 0, 1 and 3 there are
// four. With several groups, numbers run over all of them, so the lines of the largest are counted.
//
// Example: 8 ranks, with 4 lines of node1, 2 of node2 and two lines lost. There are two hosts, and
// the fullest one has 4 lines. 4 x 2 is 8, so four ranks share a node. With 3 lines of node1 this
// would not hold. The device of the last listed rank may say it then: rank 7 on device 7 ends a
// node of eight. Otherwise the answer is unknown.

namespace {

using Listed = std::vector<RankLine>;

Listed largest_group(const Listed& lines) {
  std::map<int, Listed> groups;
  for (const RankLine& line : lines) groups[line.group].push_back(line);
  const auto size = [](const auto& group) { return group.second.size(); };
  return std::ranges::max_element(groups, {}, size)->second;
}

const RankLine& highest_rank(const Listed& lines) {
  return *std::ranges::max_element(lines, {}, &RankLine::rank);
}

/// Ranks of one communicator; nullopt: nothing is listed.
std::optional<int> listed_ranks(const BandwidthRun& run) {
  if (run.ranks > 0) return run.ranks;
  if (run.listed.empty()) return std::nullopt;
  const Listed group = largest_group(run.listed);
  return group.size() == run.listed.size() ? highest_rank(group).rank + 1
                                           : static_cast<int>(group.size());
}

/// Whether two ranks have one device of one host, so that one name stands for several machines.
bool hosts_share_names(const Listed& lines) {
  std::set<std::pair<std::string, std::string>> devices;
  return std::ranges::any_of(lines, [&](const RankLine& line) {
    return !line.host.empty() && !line.device.empty() &&
           !devices.emplace(line.host, line.device).second;
  });
}

/// Ranks on each node; 0 if the hosts do not say: they are absent, uneven, or have one name for
/// several machines. The text says what is taken for granted; empty: nothing.
std::pair<int, std::string> ranks_per_node(const BandwidthRun& run, int ranks) {
  if (run.ranks > 0 || run.listed.empty()) return {run.ranks_per_node, ""};
  const Listed group = largest_group(run.listed);
  const bool is_cut = group.size() == run.listed.size() && std::ssize(group) < ranks;
  std::map<std::string, int> of_host;
  int taken = 0;
  for (const RankLine& line : group)
    if (!line.host.empty()) taken = std::max(taken, ++of_host[line.host]);
  const RankLine& last = highest_rank(run.listed);
  const int devices = count_of(last.device, 0).value_or(0) + 1;
  const bool ends_node = devices > 1 && (last.rank + 1) % devices == 0 && ranks % devices == 0;
  // Holds when lines were lost, too: as many on every host as on the one that is listed whole.
  if (taken * std::ssize(of_host) != ranks) taken = is_cut && ends_node ? devices : 0;
  if (ranks < 1 || hosts_share_names(run.listed)) taken = 0;
  if (!is_cut) return {taken, ""};
  const std::string listed = fmt::format("{} of {} ranks {} listed", group.size(), ranks,
                                         group.size() == 1 ? "is" : "are");
  if (taken > 0)
    return {taken, fmt::format("{}: taken as {} on each node; if that is wrong, give "
                               "--ranks-per-node",
                               listed, taken)};
  return {0, listed + ": the number that share a node is not known; give --ranks-per-node"};
}

/// "4", "14 to 19" or "20 or more".
std::string ranks_text(const Interval& ranks) {
  if (ranks.single()) return fmt::format("{:g}", ranks.low);
  return ranks.high < kMostRanks ? fmt::format("{:g} to {:g}", ranks.low, ranks.high)
                                 : fmt::format("{:g} or more", ranks.low);
}

}  // namespace

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

constexpr Interval kNoRanks{1, 0};

/// Thrown inside this file: why readable rows of a log are not used.
struct RowsNotUsed {
  std::string why;
};

/// A test that can have printed all of the rows, and on how many ranks.
struct PossibleTest {
  const BandwidthTest* test;
  Interval ranks;
};
using Candidates = std::vector<PossibleTest>;

/// All times of the rows.
auto timings_of(Rows rows) {
  return rows | std::views::transform(&BandwidthRow::timings) | std::views::join;
}

/// Bytes a second that size and time say, in GB/s.
Interval algbw_by_time(const Timing& t, double unit_s) {
  const double gb = t.bytes * 1e-9 / unit_s;
  return Interval{gb, gb}.over(t.time_range);
}

/// Whether the algbw printed next to a time follows from size and time, within their printed digits
/// and half a percent.
bool agrees(const Timing& t, double unit_s) {
  // Both come from one measured time; printed digits are all that may differ.
  constexpr double kSlack = 0.005;
  const Interval timed = algbw_by_time(t, unit_s);
  return timed.low <= t.algbw->high * (1 + kSlack) && t.algbw->low <= timed.high * (1 + kSlack);
}

Interval widened(const Interval& range, double times) {
  const double middle = (range.low + range.high) / 2, half = times * (range.high - range.low) / 2;
  return {std::max(0.0, middle - half), middle + half};
}

/// busbw / algbw over both groups; `blur` multiplies what rounding leaves.
Interval ratio_of(const BandwidthRow& row, double unit_s, double blur) {
  Interval ratio;
  for (const Timing& t : row.timings) {
    if (!t.busbw || t.busbw->high <= 0) continue;
    const Interval timed = algbw_by_time(t, unit_s);
    Interval algbw = t.algbw ? t.algbw->with(timed) : timed;
    if (algbw.empty()) algbw = *t.algbw;
    ratio = ratio.with(widened(*t.busbw, blur).over(widened(algbw, blur)));
  }
  return ratio;
}

/// How many pieces of `count` elements the size holds, if that is a whole number.
std::optional<double> pieces_of(const BandwidthRow& row) {
  if (row.count.value_or(0) <= 0) return std::nullopt;
  const double pieces = row.bytes / (*row.count * static_cast<double>(size_of(*row.dtype)));
  return pieces >= 1 && pieces == std::floor(pieces) ? std::optional(pieces) : std::nullopt;
}

/// Takes off an algbw that is no algbw. Until 2020 all-gather and reduce-scatter print the bytes
/// that travel, (n-1)/n of the size, as algbw too. The sign is that both bandwidths are equal in
/// every row of several pieces. Other runs stay as they are.
void take_off_travelled(std::vector<BandwidthRow>& rows) {
  const bool travelled = std::ranges::all_of(rows, [](const BandwidthRow& row) {
    return pieces_of(row).value_or(1) > 1 && std::ranges::all_of(row.timings, [](const Timing& t) {
             return t.algbw && t.busbw && t.algbw->low == t.busbw->low;
           });
  });
  for (BandwidthRow& row : rows) {
    row.travelled = travelled;
    for (Timing& t : row.timings)
      if (travelled) t.algbw.reset();
  }
}

/// The numbers of ranks that all rows together leave possible for a test. A row can exclude the
/// test by its operation or root, or by a count that the test does not print. It also excludes the
/// test if no n gives its ratio. `believed`: the log names the test, so its count may be in another
/// convention.
Interval possible_ranks(Rows rows, const BandwidthTest& test, double unit_s, double blur,
                        bool believed) {
  Interval ratio, range = kAnyRanks;
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

}  // namespace

// limit * (n-1)/n = r gives n = limit / (limit - r). A ratio at the limit leaves n without an upper
// bound.
Interval ranks_of(BusFactor factor, const Interval& ratio) {
  if (factor == BusFactor::one) return ratio.holds(1) ? kAnyRanks : kNoRanks;
  const double limit = factor == BusFactor::twice ? 2 : 1;  // limit * (n-1)/n
  const auto ranks_at = [limit](double r) { return limit / (limit - r); };
  Interval range = kAnyRanks;
  // 2 ranks have the least.
  if (ratio.low >= limit || ratio.high < limit / 2) return kNoRanks;
  // Whole numbers on the border are not lost to binary rounding.
  range.low = std::max(2.0, std::ceil(ranks_at(ratio.low) * (1 - 1e-12)));
  if (ratio.high < limit) range.high = std::floor(ranks_at(ratio.high) * (1 + 1e-12));
  return range;
}

// possible_tests() keeps the tests that can have printed the rows. decide() then takes the first of
// these that leaves one:
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

/// The tests that titles name, without mentions: the most credible first, the last of equals first.
auto believed_titles(const BandwidthRun& run) {
  return std::ranges::subrange(run.titles.upper_bound(TitleStrength::mention), run.titles.end()) |
         std::views::reverse | std::views::values;
}

Candidates possible_tests(const BandwidthRun& run, Rows rows, double unit_s,
                          const CollectiveLogOptions& options) {
  const auto is_named = [&](const BandwidthTest& test) {
    return options.collective ? test.collective == options.collective
                              : std::ranges::count(believed_titles(run), &test) > 0;
  };
  Candidates found;
  // Scripts that rewrite a table may cut digits where printf rounds them.
  for (double blur = 1; blur <= 2 && found.empty(); ++blur)
    for (const BandwidthTest& test : bandwidth_tests()) {
      const Interval range = possible_ranks(rows, test, unit_s, blur, is_named(test));
      if (!range.empty()) found.push_back({&test, range});
    }
  return found;
}

/// Whether rows that were checked out of place were checked in place, too. All-to-all cannot check
/// in place and prints "N/A" there. Absent: no row says, or rows differ.
std::optional<bool> checked_in_place(Rows rows) {
  bool yes = false, no = false;
  for (const BandwidthRow& row : rows)
    if (row.timings.size() == 2 && row.timings[0].checked.value_or(false) && row.timings[1].checked)
      (*row.timings[1].checked ? yes : no) = true;
  return yes == no ? std::nullopt : std::optional(yes);
}

/// Whether every process ran alone. On one rank nothing travels, so busbw is 0, however large
/// algbw.
bool ran_alone(Rows rows) {
  bool zero = false, other = false;
  for (const Timing& t : timings_of(rows)) {
    if (!t.algbw || !t.busbw) continue;
    other = other || t.busbw->low > 0;
    // All-gather on two ranks has the least share of algbw that several ranks have, a half.
    zero = zero || t.busbw->high < t.algbw->low / 2;
  }
  return zero && !other;
}

std::string why_impossible(Rows rows) {
  if (ran_alone(rows))
    return "its busbw is 0 throughout, so every process measured itself alone (nccl-tests built "
           "without MPI=1?); expected one run of all ranks together";
  return fmt::format(
      "expected rows of one collective on one number of ranks; the bandwidths of {} to {} bytes do "
      "not fit that; split the log into one file a run",
      rows.front().bytes, rows.back().bytes);
}

std::string names_of(const Candidates& candidates) {
  std::vector<std::string> names;
  for (const PossibleTest& c : candidates) names.push_back(std::string(c.test->name) + "_perf");
  return join(names, " or ");
}

/// Leaves out rows of tests that no training step uses.
[[noreturn]] void refuse_tests(const Candidates& candidates) {
  throw RowsNotUsed{fmt::format(
      "found {}, which no training step uses; expected all-reduce, reduce-scatter, all-gather, "
      "all-to-all, broadcast or reduce; leave that part out or say --collective",
      names_of(candidates))};
}

/// The one test that the rows leave. Throws RowsNotUsed if several are left, or none that a
/// training step uses.
PossibleTest decided_by_rows(const BandwidthRun& run, Rows rows, const Candidates& candidates) {
  Candidates left;
  std::ranges::copy_if(candidates, std::back_inserter(left), &BandwidthTest::is_common,
                       &PossibleTest::test);
  // Further evidence counts unless it excludes all.
  const auto keep_if_any = [&left](const auto& holds) {
    if (std::ranges::any_of(left, holds)) std::erase_if(left, std::not_fn(holds));
  };
  if (const auto listed = listed_ranks(run))
    keep_if_any([&](const PossibleTest& c) { return c.ranks.holds(*listed); });
  if (const auto checked = checked_in_place(rows))
    keep_if_any([&](const PossibleTest& c) { return c.test->checks_in_place == *checked; });
  if (left.size() == 1) return left.front();
  // A mention, such as a list of programs in a README, decides only among what is left.
  Candidates mentioned = candidates;
  std::erase_if(mentioned, [&](const PossibleTest& c) {
    return std::ranges::count(run.titles | std::views::values, c.test) == 0;
  });
  if (mentioned.size() == 1) return mentioned.front();
  if (std::ranges::none_of(left, [](auto& c) { return !!c.test->collective; }))
    refuse_tests(left.empty() ? candidates : left);
  throw RowsNotUsed{fmt::format(
      "{} print the same columns, and no line says which of them ran; give --collective",
      names_of(left))};
}

/// Throws RowsNotUsed if rows and titles leave none or several tests, or one without a Collective.
PossibleTest decide(const BandwidthRun& run, Rows rows, const Candidates& candidates,
                    const CollectiveLogOptions& options) {
  if (candidates.empty()) throw RowsNotUsed{why_impossible(rows)};
  const auto found = [&](const BandwidthTest* test) {
    return std::ranges::find(candidates, test, &PossibleTest::test);
  };
  if (options.collective) {
    if (const auto c = found(test_of(*options.collective)); c != candidates.end()) return *c;
    throw RowsNotUsed{
        fmt::format("--collective says {0}, but the log's bandwidths are not those of {0}; leave "
                    "--collective out",
                    name_of(*options.collective))};
  }
  for (const BandwidthTest* test : believed_titles(run))
    if (const auto c = found(test); c != candidates.end()) return *c;
  return decided_by_rows(run, rows, candidates);
}

bool informs(const Timing& t) { return t.algbw && t.algbw->low > 0; }

/// Unit of the times, in seconds. It is us, or ms as the tests of 2017 print. Bandwidths decide: 1
/// MiB in "100" with an algbw of 10.49 GB/s took 100 us. nullopt: most rows contradict both.
std::optional<double> unit_of(const BandwidthRun& run) {
  if (run.unit_s) return run.unit_s;
  constexpr double kMicro = 1e-6, kMilli = 1e-3;
  std::size_t informing = 0, micro = 0, milli = 0;
  for (const Timing& t : timings_of(run.rows) | std::views::filter(informs))
    ++informing, micro += agrees(t, kMicro), milli += agrees(t, kMilli);
  if (informing == 0) return run.is_of_2017 ? kMilli : kMicro;
  if (2 * std::max(micro, milli) <= informing) return std::nullopt;
  return micro >= milli ? kMicro : kMilli;
}

/// Why no unit fits, for people. It gives the median factor between size / time and the printed
/// algbw. A factor of 1000 is a wrong unit of time, and 1.07 is GiB for GB.
std::string contradiction(const BandwidthRun& run) {
  std::vector<double> factors;
  for (const Timing& t : timings_of(run.rows) | std::views::filter(informs))
    factors.push_back(t.bytes * 1e-9 / (t.time * run.unit_s.value_or(1e-6)) /
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

void BandwidthLog::refuse(std::size_t line_number, std::string_view line, const std::string& why) {
  ++refused_;
  if (first_refused_.empty())
    first_refused_ = fmt::format("line {}: \"{}\"{}{}", line_number, shortened(line),
                                 why.empty() ? "" : ": ", why);
}

void BandwidthLog::add(BandwidthRun run) {
  failed_ = failed_ || run.failed;
  if (run.rows.empty()) return;
  take_off_travelled(run.rows);
  check_collective(run);
  const std::optional<double> unit_s = unit_of(run);
  const std::string why = contradiction(run);
  // Rows whose own time and bandwidth contradict each other were damaged.
  if (unit_s)
    refused_ += std::erase_if(run.rows, [&](const BandwidthRow& row) {
      return std::ranges::any_of(row.timings,
                                 [&](const Timing& t) { return t.algbw && !agrees(t, *unit_s); });
    });
  if (!unit_s || run.rows.empty()) return leave_out(why);
  for (const BandwidthRow& row : run.rows)
    wrong_ += std::ranges::any_of(row.timings, [](const Timing& t) { return t.wrong > 0; });
  if (!possible_tests(run, run.rows, *unit_s, options_).empty())
    return add_stretch(run, run.rows, *unit_s);
  for (const Rows stretch : ascending_stretches(run.rows)) add_stretch(run, stretch, *unit_s);
}

/// Throws InputError if --collective contradicts a title or the redop column: a log must not be
/// overruled by accident.
void BandwidthLog::check_collective(const BandwidthRun& run) const {
  if (!options_.collective) return;
  const Collective asked = *options_.collective;
  const auto refuse = [&](const std::string& what) {
    throw InputError(source(), fmt::format("{}, but --collective says {}; leave --collective out",
                                           what, name_of(asked)));
  };
  for (const auto& [strength, test] : run.titles)
    if (strength != TitleStrength::mention && test->collective.value_or(asked) != asked)
      refuse(fmt::format("the log is of {}", name_of(*test->collective)));
  if (!test_of(asked)->reduces.value_or(true) && run.rows.back().reduces.value_or(false))
    refuse("the log's redop column says that it reduces");
}

/// Adds samples of the rows, out of place and in place, or the reason why they are left out.
void BandwidthLog::add_stretch(const BandwidthRun& run, Rows rows, double unit_s) try {
  const auto [test, possible] =
      decide(run, rows, possible_tests(run, rows, unit_s, options_), options_);
  if (!test->collective) refuse_tests({{test, possible}});
  const auto named = believed_titles(run);
  if (!options_.collective && !named.empty() && std::ranges::count(named, test) == 0)
    note(fmt::format("named {}_perf, its bandwidths are those of {}_perf", named.front()->name,
                     test->name));
  const int ranks = settled_ranks(run, possible);
  if (run.states_parts && ranks < 1)
    throw InputError(source(), fmt::format("the size of {} is stated per rank, but not how many "
                                           "ranks ran; give --ranks",
                                           name_of(*test->collective)));
  const auto [on_node, doubt] = ranks_per_node(run, ranks);
  if (!doubt.empty()) note(doubt);
  for (const BandwidthRow& row : rows)
    for (const Timing& t : row.timings)
      log_.rows.push_back({.collective = *test->collective,
                           .ranks = ranks,
                           .ranks_per_node = on_node,
                           .dtype = row.dtype.value_or(DType::f32),
                           .says_type = row.dtype.has_value(),
                           .in_place = t.in_place,
                           .bytes = std::llround(t.bytes * (run.states_parts ? ranks : 1)),
                           .seconds = t.time * unit_s,
                           .low_s = t.low * unit_s,
                           .high_s = t.high * unit_s});
} catch (const RowsNotUsed& left_out) {
  leave_out(left_out.why);
}

/// The number of ranks; 0: unknown. The listed ranks stand unless the bandwidths exclude them,
/// which were computed with the true number. Then the bandwidths' number counts, or the caller's.
/// Throws RowsNotUsed if the listed ranks are excluded and no other number is certain, and
/// InputError if --ranks contradicts what was found.
int BandwidthLog::settled_ranks(const BandwidthRun& run, const Interval& possible) {
  const std::optional<int> listed = listed_ranks(run), asked = options_.ranks;
  const bool silent = possible.low == kAnyRanks.low && possible.high == kAnyRanks.high;
  Interval fitting = silent ? Interval{} : possible;
  const bool listed_fit = listed && fitting.holds(*listed);
  if (listed_fit) fitting.low = fitting.high = *listed;
  const std::string found = ranks_text(fitting);
  if (asked && !fitting.holds(*asked))
    throw InputError(source(), fmt::format("expected {} ranks as --ranks says, found a log of {}; "
                                           "leave --ranks out",
                                           *asked, found));
  const int ranks = fitting.single() ? static_cast<int>(fitting.low) : asked.value_or(0);
  if (!listed && ranks == 0)
    note(silent ? "the log does not say how many ranks ran; give --ranks"
                : fmt::format("no line lists the ranks, and the bandwidths fit {} ranks; give "
                              "--ranks",
                              found));
  if (!listed || listed_fit) return ranks;
  const std::string excluded =
      fmt::format("{} ranks are listed, but its bandwidths are those of {}", *listed, found);
  if (ranks == 0) throw RowsNotUsed{excluded + "; give --ranks"};
  note(fmt::format("{}; taken as {}", excluded, ranks));
  return ranks;
}

CollectiveLog BandwidthLog::finish() {
  if (log_.rows.empty() && !left_out_.empty()) throw InputError(source(), left_out_.front());
  if (log_.rows.empty() && !first_refused_.empty())
    throw InputError(source(), fmt::format("the {} log holds no row with a size and a time; the "
                                           "first row that could not be read is {}",
                                           log_.format, first_refused_));
  for (const std::string& why : left_out_) note("left out: " + why);
  if (refused_ > 0) {
    note(fmt::format("{} rows could not be read (interrupted by other output?){}", refused_,
                     first_refused_.empty() ? "" : "; the first is " + first_refused_));
    log_.unread = log_.notes.back();
  }
  if (wrong_ > 0 || failed_)
    note(fmt::format("{} rows report wrong results, so what was measured did not work", wrong_));
  return std::move(log_);
}

}  // namespace linerate::bench_logs
