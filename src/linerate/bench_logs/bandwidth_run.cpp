#include "linerate/bench_logs/bandwidth_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "linerate/bench_logs/bandwidth_judge.hpp"
#include "linerate/bench_logs/log_words.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/statistics.hpp"

namespace linerate::bench_logs {
namespace {

bool informs(const Timing& t) { return t.time > 0 && t.algbw && t.algbw->low > 0; }

/// Of the times: us, or ms as the tests of 2017 print them; the bandwidths beside them say. nullopt
/// where most rows contradict both.
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

std::string contradiction(const BandwidthRun& run) {
  const double unit_s = run.unit_s.value_or(1e-6);
  std::vector<double> factors;
  for (const BandwidthRow& row : run.rows)
    for (const Timing& t : row.timings)
      if (informs(t))
        factors.push_back(row.bytes * 1e-9 / (t.time * unit_s) /
                          ((t.algbw->low + t.algbw->high) / 2));
  if (factors.empty()) return "no bandwidth says enough to tell the unit of the times";
  return fmt::format(
      "size / time is {:.3g} times the algbw that stands beside it; expected sizes in bytes, times "
      "in {} and bandwidths in GB/s (1e9)",
      median(factors), run.unit_s ? "the header's unit" : "us");
}

/// What the log says itself must not be overruled by accident.
void check_collective(const BandwidthRun& run, const CollectiveLogOptions& options,
                      const std::string& name) {
  if (!options.collective) return;
  const Collective asked = *options.collective;
  for (const auto& [strength, test] : run.titles)
    if (strength != TitleStrength::mention && test->collective && *test->collective != asked)
      throw InputError(name, fmt::format("the log is of {}, --collective says {}; leave it out",
                                         name_of(*test->collective), name_of(asked)));
  const BandwidthTest* test = test_of(asked);
  if (test && !test->reduces.value_or(true) && run.rows.back().reduces.value_or(false))
    throw InputError(name, fmt::format("the log's redop column says that it reduces, --collective "
                                       "says {}; leave it out",
                                       name_of(asked)));
}

/// The listed ranks stand unless the bandwidths, which were computed with the true count, exclude
/// them. 0: unknown. `why` is set where they are excluded and nothing else is certain.
int settled_ranks(const BandwidthRun& run, const RankRange& possible,
                  const CollectiveLogOptions& options, CollectiveLog& log, std::string& why) {
  const std::optional<int> listed = run.listed.ranks();
  const bool silent = possible.low == RankRange{}.low && possible.high == RankRange{}.high;
  if (listed && (silent || possible.holds(*listed)))
    return settle_ranks(log.source, listed, options.ranks);
  if (options.ranks && !possible.holds(*options.ranks))
    throw InputError(log.source,
                     fmt::format("expected {} ranks as --ranks says, found a log of {}; leave "
                                 "--ranks out",
                                 *options.ranks, possible.text()));
  const int ranks = possible.single() ? static_cast<int>(possible.low) : options.ranks.value_or(0);
  if (listed && ranks > 0)
    log.notes.push_back(
        fmt::format("{}: {} ranks are listed, its bandwidths are those of {}; taken as {}",
                    log.source, *listed, possible.text(), ranks));
  if (listed && ranks == 0)
    why = fmt::format("{} ranks are listed, its bandwidths are those of {}; give --ranks", *listed,
                      possible.text());
  if (!listed && ranks == 0)
    log.notes.push_back(fmt::format("{}: no rank lines, and bandwidths of {} ranks; give --ranks",
                                    log.source, possible.text()));
  return ranks;
}

void add_samples(Rows rows, const CollectiveSample& kind, double unit_s, CollectiveLog& log) {
  for (const BandwidthRow& row : rows)
    for (int g = 0; g < 2; ++g) {
      const Timing& t = row.timings[g];
      if (t.time <= 0) continue;
      CollectiveSample sample = kind;
      sample.dtype = row.dtype;
      sample.in_place = g == 1;
      sample.bytes = static_cast<std::int64_t>(row.bytes);
      sample.seconds = t.time * unit_s;
      sample.low_s = t.low * unit_s, sample.high_s = t.high * unit_s;
      log.rows.push_back(sample);
    }
}

/// The last title that is more than a mention says something else.
void note_other_title(const BandwidthRun& run, const BandwidthTest& test,
                      const CollectiveLogOptions& options, CollectiveLog& log) {
  const BandwidthTest* named = nullptr;
  for (const auto& [strength, title] : run.titles) {
    if (strength == TitleStrength::mention) continue;
    if (title == &test) return;
    named = title;
  }
  if (named && !options.collective)
    log.notes.push_back(fmt::format("{}: named {}_perf, its bandwidths are those of {}_perf",
                                    log.source, named->name, test.name));
}

void add_stretch(const BandwidthRun& run, Rows rows, const Judge& judge, double unit_s,
                 const CollectiveLogOptions& options, CollectiveLog& log, RunTally& tally) {
  std::string why;
  const BandwidthTest* test = judge.is_one() ? judge.test(why) : nullptr;
  if (!test) {
    tally.left_out.push_back(why.empty() ? judge.impossible() : why);
    return;
  }
  if (!test->collective) {
    tally.left_out.push_back(not_used(std::string(test->name) + "_perf"));
    return;
  }
  note_other_title(run, *test, options, log);
  CollectiveSample kind{.collective = *test->collective};
  kind.ranks = settled_ranks(run, judge.ranks(*test), options, log, why);
  kind.ranks_per_node = run.listed.ranks_per_node(kind.ranks);
  if (why.empty())
    add_samples(rows, kind, unit_s, log);
  else
    tally.left_out.push_back(why);
}

/// Rows whose own time and bandwidth contradict each other were damaged.
std::vector<BandwidthRow> sound_rows(const BandwidthRun& run, double unit_s, RunTally& tally) {
  std::vector<BandwidthRow> sound;
  for (const BandwidthRow& row : run.rows) {
    const bool damaged = std::any_of(
        std::begin(row.timings), std::end(row.timings),
        [&](const Timing& t) { return t.time > 0 && t.algbw && !agrees(row, t, unit_s); });
    tally.refused += damaged;
    if (!damaged) sound.push_back(row);
  }
  return sound;
}

/// Where the rows are not those of one run: sizes that ascend again begin another.
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

void add_run(BandwidthRun run, const CollectiveLogOptions& options, CollectiveLog& log,
             RunTally& tally) {
  tally.failed = tally.failed || run.failed;
  if (run.rows.empty()) return;
  run.rows = without_travelled(std::move(run.rows));
  check_collective(run, options, log.source);
  const std::optional<double> unit_s = unit_of(run);
  if (!unit_s) {
    tally.left_out.push_back(contradiction(run));
    return;
  }
  const std::vector<BandwidthRow> rows = sound_rows(run, *unit_s, tally);
  if (rows.empty()) tally.left_out.push_back(contradiction(run));
  if (rows.empty()) return;
  for (const BandwidthRow& row : rows)
    tally.wrong += row.timings[0].wrong > 0 || row.timings[1].wrong > 0;
  const Judge whole(run, rows, *unit_s, options);
  if (whole.is_one()) return add_stretch(run, rows, whole, *unit_s, options, log, tally);
  for (const Rows stretch : ascending_stretches(rows))
    add_stretch(run, stretch, Judge(run, stretch, *unit_s, options), *unit_s, options, log, tally);
}

void RunTally::refuse(std::size_t line_number, std::string_view line) {
  ++refused;
  if (first_refused.empty())
    first_refused = fmt::format("line {}: \"{}\"", line_number, shortened(line));
}

void finish_runs(const RunTally& tally, CollectiveLog& log) {
  const auto note = [&log](const std::string& text) {
    log.notes.push_back(fmt::format("{}: {}", log.source, text));
  };
  if (log.rows.empty() && !tally.left_out.empty())
    throw InputError(log.source, tally.left_out.front());
  if (log.rows.empty() && !tally.first_refused.empty())
    throw InputError(log.source, fmt::format("the {} log holds no row with a size and a time; the "
                                             "first that could not be read is {}",
                                             log.format, tally.first_refused));
  std::set<std::string> said;
  for (const std::string& why : tally.left_out)
    if (said.insert(why).second) note("left out: " + why);
  if (tally.refused > 0)
    note(fmt::format("{} rows could not be read (interrupted by other output?){}", tally.refused,
                     tally.first_refused.empty() ? "" : "; the first is " + tally.first_refused));
  if (tally.wrong > 0 || tally.failed)
    note(fmt::format("{} rows report wrong results: what was measured did not work", tally.wrong));
}

}  // namespace linerate::bench_logs
