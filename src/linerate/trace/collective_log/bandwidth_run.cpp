#include "linerate/trace/collective_log/bandwidth_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <set>
#include <span>

#include "linerate/core/collective.hpp"
#include "linerate/core/error.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/collective_log/log_words.hpp"

namespace linerate::trace {

/// busbw = algbw * factor (nccl-tests, doc/PERFORMANCE.md): 2(n-1)/n, (n-1)/n, or 1.
enum class BusFactor { twice, once, one };

struct BandwidthTest {
  std::string_view name;
  std::optional<Collective> collective;
  bool reduces, rooted;
  bool splits;  // `count` is one rank's piece: size / (count * element) = n
  BusFactor factor;
};

namespace {

using Rows = std::span<const BandwidthRow>;

constexpr std::array kTests = {
    BandwidthTest{"all_reduce", Collective::all_reduce, true, false, false, BusFactor::twice},
    BandwidthTest{"reduce_scatter", Collective::reduce_scatter, true, false, true, BusFactor::once},
    BandwidthTest{"all_gather", Collective::all_gather, false, false, true, BusFactor::once},
    BandwidthTest{"alltoall", Collective::all_to_all, false, false, true, BusFactor::once},
    BandwidthTest{"broadcast", Collective::broadcast, false, true, false, BusFactor::one},
    BandwidthTest{"reduce", Collective::reduce, true, true, false, BusFactor::one},
    BandwidthTest{"sendrecv", std::nullopt, false, false, false, BusFactor::one},
    BandwidthTest{"gather", std::nullopt, false, true, true, BusFactor::once},
    BandwidthTest{"scatter", std::nullopt, false, true, true, BusFactor::once},
    BandwidthTest{"hypercube", std::nullopt, false, false, true, BusFactor::once},
    BandwidthTest{"alltoallv", std::nullopt, false, false, true, BusFactor::once},
};

/// Rank counts that something leaves possible.
struct RankRange {
  double low = 2, high = kMostRanks;

  bool empty() const { return low > high; }
  bool holds(double n) const { return low <= n && n <= high; }
  bool single() const { return low == high; }
  RankRange with(const RankRange& other) const {
    return {std::max(low, other.low), std::min(high, other.high)};
  }
  std::string text() const {
    if (single()) return fmt::format("{:g}", low);
    return high < kMostRanks ? fmt::format("{:g} to {:g}", low, high)
                             : fmt::format("{:g} or more", low);
  }
};
constexpr RankRange kNoRanks{1, 0};

/// The whole n >= 2 whose factor lies in `ratio`.
RankRange ranks_of(BusFactor factor, const Interval& ratio) {
  if (factor == BusFactor::one) return ratio.holds(1) ? RankRange{} : kNoRanks;
  const double limit = factor == BusFactor::twice ? 2 : 1;  // limit * (n-1)/n
  const auto ranks_at = [limit](double r) { return limit / (limit - r); };
  RankRange range;
  if (ratio.low >= limit) return kNoRanks;
  if (ratio.high < limit / 2) return kNoRanks;  // what 2 ranks have is the least
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

bool agrees(const BandwidthRow& row, const Timing& t, double unit_s) {
  const Interval said = *t.algbw, timed = algbw_by_time(row, t, unit_s);
  return timed.low <= said.high * (1 + kSlack) && said.low <= timed.high * (1 + kSlack);
}

bool informs(const Timing& t) { return t.time > 0 && t.algbw && t.algbw->low > 0; }

Interval widened(const Interval& range, double times) {
  const double middle = (range.low + range.high) / 2, half = times * (range.high - range.low) / 2;
  return {std::max(0.0, middle - half), middle + half};
}

/// busbw / algbw over both groups; `blur` multiplies what rounding leaves.
Interval ratio_of(const BandwidthRow& row, double unit_s, double blur) {
  Interval ratio;
  for (const Timing& t : row.timings) {
    if (t.time <= 0 || !t.busbw || t.busbw->high <= 0 || t.busbw->low <= 0) continue;
    const Interval timed = algbw_by_time(row, t, unit_s);
    Interval algbw = t.algbw ? t.algbw->with(timed) : timed;
    if (algbw.empty()) algbw = *t.algbw;
    ratio = ratio.with(widened(*t.busbw, blur).over(widened(algbw, blur)));
  }
  return ratio;
}

/// How many pieces of `count` elements the size holds, where that is a whole number.
std::optional<double> pieces_of(const BandwidthRow& row) {
  if (row.count.value_or(0) <= 0) return std::nullopt;
  const double pieces = row.bytes / (*row.count * static_cast<double>(size_of(row.dtype)));
  return pieces >= 1 && pieces == std::floor(pieces) ? std::optional(pieces) : std::nullopt;
}

/// What all rows together leave possible for a test. `believed`: the log names it in so many words,
/// so that its count may be in another convention.
RankRange possible_ranks(Rows rows, const BandwidthTest& test, double unit_s, double blur,
                         bool believed) {
  Interval ratio;
  RankRange range;
  for (const BandwidthRow& row : rows) {
    if (row.reduces.value_or(test.reduces) != test.reduces) return kNoRanks;
    if (row.rooted.value_or(test.rooted) != test.rooted) return kNoRanks;
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
  std::vector<double> factors;
  for (const BandwidthRow& row : run.rows)
    for (const Timing& t : row.timings)
      if (informs(t))
        factors.push_back(row.bytes / (t.time * 1e3) / ((t.algbw->low + t.algbw->high) / 2));
  return fmt::format(
      "size / time is {:.3g} times the algbw that stands beside it; expected sizes in bytes, times "
      "in us and bandwidths in GB/s (1e9)",
      median(factors));
}

std::string names_of(const std::vector<const BandwidthTest*>& tests) {
  std::vector<std::string> names;
  for (const BandwidthTest* test : tests) names.push_back(std::string(test->name) + "_perf");
  return join(names, " or ");
}

std::string not_used(std::string_view names) {
  return fmt::format(
      "found {}, which no training step uses; expected all-reduce, reduce-scatter, all-gather, "
      "all-to-all, broadcast or reduce; leave that part out or say --collective",
      names);
}

/// One run, or an ascending stretch of one, under judgement.
class Judge {
 public:
  Judge(const BandwidthRun& run, Rows rows, double unit_s, const CollectiveLogOptions& options)
      : run_(run), rows_(rows), unit_s_(unit_s), options_(options) {
    // Scripts that rewrite a table may cut digits where printf rounds them.
    for (const double blur : {1.0, 2.0}) {
      for (const BandwidthTest& test : kTests) {
        const RankRange range = possible_ranks(rows, test, unit_s, blur, is_titled(test));
        if (!range.empty()) possible_.emplace_back(&test, range);
      }
      if (is_one()) return;
    }
  }

  /// Whether one test on one number of ranks can have printed all of the rows.
  bool is_one() const { return !possible_.empty(); }

  /// nullptr with the reason in `why` where the rows and the titles leave several.
  const BandwidthTest* test(std::string& why) const {
    if (options_.collective) return asked(*options_.collective, why);
    for (const TitleStrength strength : {TitleStrength::statement, TitleStrength::command})
      for (auto title = run_.titles.rbegin(); title != run_.titles.rend(); ++title)
        if (title->first == strength && fits(*title->second)) return title->second;
    return by_rows(why);
  }

  RankRange ranks(const BandwidthTest& test) const {
    for (const auto& [possible, range] : possible_)
      if (possible == &test) return range;
    return kNoRanks;
  }

  std::string impossible() const {
    return fmt::format(
        "rows of {} to {} bytes whose bandwidths are not those of one collective on one number of "
        "ranks; split the log into one file a run",
        rows_.front().bytes, rows_.back().bytes);
  }

 private:
  bool is_titled(const BandwidthTest& test) const {
    if (options_.collective) return test.collective == options_.collective;
    return std::any_of(run_.titles.begin(), run_.titles.end(), [&](const auto& title) {
      return title.first != TitleStrength::mention && title.second == &test;
    });
  }
  bool fits(const BandwidthTest& test) const { return !ranks(test).empty(); }

  const BandwidthTest* asked(Collective collective, std::string& why) const {
    const BandwidthTest* test = test_of(collective);
    if (!test || !fits(*test))
      why = fmt::format("its bandwidths are not those of {}, which --collective says; leave it out",
                        name_of(collective));
    return why.empty() ? test : nullptr;
  }

  /// All-to-all cannot be checked in place: "N/A" there beside a number out of place.
  const BandwidthTest* by_checks() const {
    std::size_t gather = 0, all_to_all = 0;
    for (const BandwidthRow& row : rows_) {
      if (row.timings[0].time <= 0 || row.timings[1].time <= 0 || !row.timings[0].checked) continue;
      ++(row.timings[1].checked ? gather : all_to_all);
    }
    if ((gather == 0) == (all_to_all == 0)) return nullptr;
    return test_of(gather > 0 ? Collective::all_gather : Collective::all_to_all);
  }

  const BandwidthTest* by_rows(std::string& why) const {
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

  const BandwidthRun& run_;
  Rows rows_;
  double unit_s_;
  const CollectiveLogOptions& options_;
  std::vector<std::pair<const BandwidthTest*, RankRange>> possible_;
};

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
  if (test && !test->reduces && run.rows.back().reduces.value_or(false))
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
    tally.left_out.push_back(not_used(names_of({test})));
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

const BandwidthTest* test_named(std::string_view name) {
  const std::string key = plain_word(name);
  for (const BandwidthTest& test : kTests)
    if (key == plain_word(test.name)) return &test;
  return key == "bcast" ? test_of(Collective::broadcast) : nullptr;
}

const BandwidthTest* test_of(Collective collective) {
  for (const BandwidthTest& test : kTests)
    if (test.collective == collective) return &test;
  return nullptr;
}

const BandwidthTest* test_in(std::string_view text) {
  const BandwidthTest* found = nullptr;
  for (std::size_t at = text.find("_perf"); at != std::string_view::npos;
       at = text.find("_perf", at + 1)) {
    std::size_t first = at;
    while (first > 0 && (std::isalpha(static_cast<unsigned char>(text[first - 1])) != 0 ||
                         text[first - 1] == '_'))
      --first;
    if (const BandwidthTest* test = test_named(text.substr(first, at - first))) found = test;
  }
  return found;
}

void add_run(const BandwidthRun& run, const CollectiveLogOptions& options, CollectiveLog& log,
             RunTally& tally) {
  tally.failed = tally.failed || run.failed;
  if (run.rows.empty()) return;
  check_collective(run, options, log.source);
  const std::optional<double> unit_s = unit_of(run);
  if (!unit_s) {
    tally.left_out.push_back(contradiction(run));
    return;
  }
  const std::vector<BandwidthRow> rows = sound_rows(run, *unit_s, tally);
  if (rows.empty()) return;
  for (const BandwidthRow& row : rows)
    tally.wrong += row.timings[0].wrong > 0 || row.timings[1].wrong > 0;
  const Judge whole(run, rows, *unit_s, options);
  if (whole.is_one()) return add_stretch(run, rows, whole, *unit_s, options, log, tally);
  for (const Rows stretch : ascending_stretches(rows))
    add_stretch(run, stretch, Judge(run, stretch, *unit_s, options), *unit_s, options, log, tally);
}

void finish_runs(const RunTally& tally, CollectiveLog& log) {
  const auto note = [&log](const std::string& text) {
    log.notes.push_back(fmt::format("{}: {}", log.source, text));
  };
  if (log.rows.empty() && !tally.left_out.empty())
    throw InputError(log.source, tally.left_out.front());
  std::set<std::string> said;
  for (const std::string& why : tally.left_out)
    if (said.insert(why).second) note("left out: " + why);
  if (tally.refused > 0)
    note(fmt::format("{} rows could not be read (interrupted by other output?)", tally.refused));
  if (tally.wrong > 0 || tally.failed)
    note(fmt::format("{} rows report wrong results: what was measured did not work", tally.wrong));
}

}  // namespace linerate::trace
