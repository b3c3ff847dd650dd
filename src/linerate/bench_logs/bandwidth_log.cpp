// Readers of formats give this class their runs (bandwidth_rows.hpp). add() finds the unit of the
// times, drops damaged rows, lets Judge name the test, and settles the number of ranks. It first
// judges the run whole. If no test fits, the run may be several that were appended without a
// header, and each stretch of ascending sizes is judged by itself.
#include "linerate/bench_logs/bandwidth_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "linerate/bench_logs/log_words.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/statistics.hpp"

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

}  // namespace linerate::bench_logs
