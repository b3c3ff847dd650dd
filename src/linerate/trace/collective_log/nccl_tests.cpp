// nccl-tests text from 2017 to today. Rows are read by the words of the header above them, never by
// position: the columns differ per era, per test and per build option.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "linerate/core/error.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/collective_log/log_readers.hpp"
#include "linerate/trace/collective_log/log_words.hpp"

namespace linerate::trace {
namespace {

struct Group {
  int time = -1, algbw = -1, busbw = -1, low = -1, high = -1, wrong = -1;
};

struct Layout {
  int size = -1, count = -1, type = -1, redop = -1, root = -1;
  Group groups[2];  // out of place, in place
  std::size_t words = 0;

  bool known() const { return size >= 0 && groups[0].time >= 0; }
};

/// The header's own words: "size count type redop root time algbw busbw #wrong time algbw busbw
/// #wrong".
Layout layout_of(const std::vector<std::string_view>& words) {
  Layout l;
  int group = -1;
  int column = 0;
  for (std::string_view w : words) {
    if (w == "#") continue;
    while (w.starts_with('#')) w.remove_prefix(1);
    if (w == "size" || w == "bytes")
      l.size = column;
    else if (w == "count" || w == "N")
      l.count = column;
    else if (w == "type")
      l.type = column;
    else if (w == "redop" || w == "op")
      l.redop = column;
    else if (w == "root")
      l.root = column;
    else if (w == "time" || w == "cputime") {
      if (++group < 2) l.groups[group].time = column;
    } else if (group >= 0 && group < 2) {
      Group& g = l.groups[group];
      if (w == "algbw")
        g.algbw = column;
      else if (w == "busbw")
        g.busbw = column;
      else if (w == "wrong")  // until 2022 "error": a difference, which may be small and right
        g.wrong = column;
      else if (w == "i_min")
        g.low = column;
      else if (w == "i_max")
        g.high = column;
    }
    ++column;
  }
  l.words = static_cast<std::size_t>(column);
  return l;
}

/// Without a header (a row quoted in prose): the widths of 2019 onwards are unmistakable.
Layout layout_by_width(std::size_t words) {
  Layout l;
  l.words = words;
  if (words < 11 || words > 13) return l;
  const int keys = static_cast<int>(words) - 8;
  l.size = 0, l.count = 1, l.type = 2;
  if (keys >= 4) l.redop = 3;
  if (keys == 5) l.root = 4;
  for (int g = 0; g < 2; ++g)
    l.groups[g] = {.time = keys + 4 * g, .algbw = keys + 4 * g + 1, .busbw = keys + 4 * g + 2};
  return l;
}

struct Row {
  double bytes = 0;
  std::optional<double> count;
  DType dtype = DType::f32;
  bool has_redop = false, has_root = false, wrong = false;
  double seconds[2] = {0, 0}, low[2] = {0, 0}, high[2] = {0, 0};
  double ratio = 0;         // busbw / algbw of a group that has both
  double unit[2] = {0, 0};  // size / time over the algbw stated: 1 where times are microseconds
};

std::optional<double> at(const std::vector<std::string_view>& words, int column) {
  return column >= 0 && column < static_cast<int>(words.size())
             ? number_of(words[static_cast<std::size_t>(column)])
             : std::nullopt;
}

std::optional<Row> parse_row(const std::vector<std::string_view>& words, const Layout& l) {
  Row row;
  const auto size = at(words, l.size);
  if (!size || *size < 0 || *size > 1e15 || l.type < 0) return std::nullopt;
  const auto type = dtype_of_log(words[static_cast<std::size_t>(l.type)]);
  if (!type) return std::nullopt;
  row.bytes = *size;
  row.dtype = *type;
  row.count = at(words, l.count);
  const auto word = [&words](int c) {
    return c >= 0 ? words[static_cast<std::size_t>(c)] : std::string_view();
  };
  row.has_redop = l.redop >= 0 && word(l.redop) != "none";
  row.has_root = l.root >= 0 && at(words, l.root).value_or(-1) >= 0;
  bool any = false;
  for (int g = 0; g < 2; ++g) {
    const auto us = at(words, l.groups[g].time);
    if (!us || *us <= 0) continue;
    any = true;
    row.seconds[g] = *us * 1e-6;
    row.wrong = row.wrong || at(words, l.groups[g].wrong).value_or(0) > 0;
    row.low[g] = at(words, l.groups[g].low).value_or(0) * 1e-6;
    row.high[g] = at(words, l.groups[g].high).value_or(0) * 1e-6;
    const double alg = at(words, l.groups[g].algbw).value_or(0),
                 bus = at(words, l.groups[g].busbw).value_or(0);
    if (alg < 1 || bus <= 0) continue;  // below 1 GB/s two decimals say little
    row.ratio = bus / alg;
    row.unit[g] = row.bytes / row.seconds[g] / (alg * 1e9);
  }
  return any ? std::optional<Row>(row) : std::nullopt;
}

/// One run of one test; a log may hold several after each other.
struct Run {
  std::vector<Row> rows;
  std::map<int, int> ranks_of_group;  // "#  Rank  0 Group  0 ..." lines by group
  int highest_rank = -1;
  std::string title;  // the command line or header that names the test
  std::size_t refused = 0, wrong = 0;
  bool failed = false;      // the footer says that results were out of bounds
  bool is_of_2017 = false;  // the header says "bytes" and "N"

  std::optional<int> ranks() const {
    if (ranks_of_group.empty()) return std::nullopt;
    // Numbers run over all groups, and each group has a communicator of its own. In one group the
    // highest number counts, since lines get lost.
    if (ranks_of_group.size() == 1) return highest_rank + 1;
    int most = 0;
    for (const auto& [group, n] : ranks_of_group) most = std::max(most, n);
    return most;
  }
};

class Log {
 public:
  std::vector<Run> scan(Input& input) {
    std::string_view line;
    while (input.next_line(line)) {
      line = without_mpi_tag(line);
      if (line.find("_perf") != std::string_view::npos) {
        begin_run_if_rows();
        if (run().title.empty()) run().title = line;
      }
      if (line.find('#') != std::string_view::npos)
        read_comment(line);
      else
        read_row(line);
    }
    return std::move(runs_);
  }

 private:
  Run& run() {
    if (runs_.empty()) runs_.emplace_back();
    return runs_.back();
  }
  void begin_run_if_rows() {
    if (!run().rows.empty()) runs_.emplace_back();
  }

  void read_comment(std::string_view line) {
    const std::vector<std::string_view> words = words_of(line);
    const Layout l = layout_of(words);
    if (l.known()) {
      begin_run_if_rows();
      layout_ = l;
      const auto has = [&](std::string_view word) {
        return std::find(words.begin(), words.end(), word) != words.end();
      };
      run().is_of_2017 = has("bytes") && has("N");
    }
    if (line.find("# nThread") != std::string_view::npos) begin_run_if_rows();
    if (line.find("Out of bounds values") != std::string_view::npos &&
        line.find("FAILED") != std::string_view::npos)
      run().failed = true;
    // "#  Rank  0 Group  0 Pid  1234 on host device  0 [0x07] NAME"; 2017: "#   Rank  0 on host
    // device ..."
    for (std::size_t i = 0; i + 1 < words.size() && i < 2; ++i) {
      if (words[i] != "Rank" && words[i] != "#Rank") continue;
      const auto rank = number_of(words[i + 1]);
      if (!rank || *rank < 0 || *rank >= 1e7) continue;
      const bool grouped = i + 3 < words.size() && words[i + 2] == "Group";
      const double group = grouped ? number_of(words[i + 3]).value_or(0) : 0;
      begin_run_if_rows();
      run().highest_rank = std::max(run().highest_rank, static_cast<int>(*rank));
      ++run().ranks_of_group[group >= 0 && group < 1e7 ? static_cast<int>(group) : 0];
    }
  }

  void read_row(std::string_view line) {
    const std::vector<std::string_view> words = words_of(line);
    if (words.size() < 7 || !number_of(words[0])) return;
    // A trailing time stamp (-T) makes rows longer than the header; a shorter row was interrupted.
    const bool cut = layout_.known() && words.size() < layout_.words;
    const bool fits = layout_.known() && !cut && words.size() <= layout_.words + 2;
    const auto row =
        cut ? std::nullopt : parse_row(words, fits ? layout_ : layout_by_width(words.size()));
    if (!row) ++run().refused;
    if (!row || row->bytes <= 0) return;
    run().wrong += row->wrong;
    run().rows.push_back(*row);
  }

  std::vector<Run> runs_;
  Layout layout_;
};

[[noreturn]] void refuse(const std::string& name, std::string_view found) {
  throw InputError(name, fmt::format("found {}; expected all-reduce, reduce-scatter, all-gather, "
                                     "all-to-all, broadcast or reduce; leave that part out or say "
                                     "--collective",
                                     found));
}

bool near(double value, double expected) { return std::abs(value / expected - 1) < 0.25; }

/// Rows are read as microseconds. The tests of 2017 print milliseconds; the bandwidths beside the
/// times show which, and where there are none, the words of that year's header. Returns what to
/// multiply with.
double time_unit(const Run& run, const std::string& name) {
  constexpr double kMilli = 1000;
  std::vector<double> units;
  for (const Row& row : run.rows)
    for (const double unit : row.unit)
      if (unit > 0) units.push_back(unit);
  if (units.empty()) return run.is_of_2017 ? kMilli : 1;
  const double typical = median(units);
  if (near(typical, 1)) return 1;
  if (near(typical, kMilli)) return kMilli;
  throw InputError(
      name, fmt::format("size / time is {:.3g} times the algbw that stands beside it; expected "
                        "sizes in bytes, times in us and bandwidths in GB/s (1e9)",
                        typical));
}

/// What the log says itself must not be overruled by accident.
void check_collective(const Run& run, Collective asked, const std::string& name) {
  const bool reduces = asked == Collective::all_reduce || asked == Collective::reduce_scatter ||
                       asked == Collective::reduce;
  const auto named = collective_named_in(run.title);
  if (named && *named != asked)
    throw InputError(name, fmt::format("the log is of {}, --collective says {}; leave it out",
                                       name_of(*named), name_of(asked)));
  if (run.rows.back().has_redop && !reduces)
    throw InputError(name, fmt::format("the log's redop column says that it reduces, --collective "
                                       "says {}; leave it out",
                                       name_of(asked)));
}

/// The log rarely names its test: the redop and root columns and busbw/algbw distinguish most.
Collective deduce_collective(const Run& run, const CollectiveLogOptions& options,
                             CollectiveLog& log) {
  if (options.collective) {
    check_collective(run, *options.collective, log.source);
    return *options.collective;
  }
  if (const auto named = collective_named_in(run.title)) return *named;
  for (const char* other : {"sendrecv_perf", "scatter_perf", "gather_perf", "hypercube_perf"})
    if (run.title.find(other) != std::string::npos)
      refuse(log.source, fmt::format("{}, which no training step uses", other));
  const Row& largest = run.rows.back();
  const double ratio = largest.ratio;  // 0: unknown
  if (largest.has_redop && largest.has_root) return Collective::reduce;
  if (largest.has_redop)
    return ratio > 0 && ratio < 0.99 ? Collective::reduce_scatter : Collective::all_reduce;
  const double share = run.ranks() ? 1 - 1.0 / *run.ranks() : 0.99;  // (n-1)/n
  const bool whole = ratio > (1 + share) / 2;                        // busbw = algbw
  if (largest.has_root) {
    if (ratio > 0 && !whole)
      refuse(log.source, "rows with a root and busbw below algbw (gather or scatter)");
    return Collective::broadcast;
  }
  if (ratio > 1.005) return Collective::all_reduce;  // columns without redop, quoted in prose
  if (whole) refuse(log.source, "rows without redop and root and busbw = algbw (send-receive)");
  log.notes.push_back(fmt::format(
      "{}: all-gather and all-to-all print the same columns; taken as all-gather", log.source));
  return Collective::all_gather;
}

/// Rank lines may be lost to other output; the bandwidths were computed with the true count. They
/// have two decimals, so they overrule only where the two are far apart.
std::optional<int> ranks_of_run(const Run& run, Collective collective, CollectiveLog& log) {
  const std::optional<int> listed = run.ranks();
  std::optional<int> by_bandwidths;
  if (collective == Collective::all_reduce)
    for (const Row& row : run.rows)  // the last (largest) message has the most digits
      if (const auto n = ranks_of_all_reduce(row.ratio)) by_bandwidths = n;
  if (!listed) return by_bandwidths;
  if (!by_bandwidths || std::abs(*by_bandwidths - *listed) <= 0.1 * *listed) return listed;
  log.notes.push_back(
      fmt::format("{}: {} ranks are listed, its bandwidths are those of {}; taken as {}",
                  log.source, *listed, *by_bandwidths, *by_bandwidths));
  return by_bandwidths;
}

std::optional<int> ranks_known(const Run& run, Collective collective, CollectiveLog& log) {
  std::optional<int> ranks = ranks_of_run(run, collective, log);
  if (!ranks && collective != Collective::all_reduce && run.rows.back().count.value_or(0) > 0) {
    const Row& row = run.rows.back();  // count is per rank where size is the total array
    const double n = row.bytes / (*row.count * static_cast<double>(size_of(row.dtype)));
    if (n >= 2 && n < 1e6 && n == std::floor(n)) ranks = static_cast<int>(n);
  }
  return ranks;
}

void add_rows(const Run& run, const CollectiveLogOptions& options, CollectiveLog& log) {
  const Collective collective = deduce_collective(run, options, log);
  const int ranks = settle_ranks(log.source, ranks_known(run, collective, log), options.ranks);
  const double unit = time_unit(run, log.source);
  for (const Row& row : run.rows)
    for (int g = 0; g < 2; ++g)
      if (row.seconds[g] > 0)
        log.rows.push_back({.collective = collective,
                            .ranks = ranks,
                            .dtype = row.dtype,
                            .in_place = g == 1,
                            .bytes = static_cast<std::int64_t>(row.bytes),
                            .seconds = row.seconds[g] * unit,
                            .low_s = row.low[g] * unit,
                            .high_s = row.high[g] * unit});
  if (ranks == 0)
    log.notes.push_back(fmt::format(
        "{}: neither rank lines nor bandwidths say how many ranks ran; give --ranks", log.source));
}

}  // namespace

bool is_nccl_tests(std::string_view head) {
  if (head.find("nccl-tests") != std::string_view::npos ||
      head.find("# nThread") != std::string_view::npos)
    return true;
  const bool bandwidths =
      head.find("algbw") != std::string_view::npos && head.find("busbw") != std::string_view::npos;
  return bandwidths || head.find("_perf") != std::string_view::npos;
}

CollectiveLog read_nccl_tests(Input& input, const CollectiveLogOptions& options) {
  CollectiveLog log{.source = input.name(), .format = "nccl-tests"};
  std::size_t refused = 0, wrong = 0;
  bool failed = false;
  for (const Run& run : Log().scan(input)) {
    refused += run.refused, wrong += run.wrong, failed = failed || run.failed;
    if (!run.rows.empty()) add_rows(run, options, log);
  }
  if (refused > 0)
    log.notes.push_back(fmt::format("{}: {} rows could not be read (interrupted by other output?)",
                                    input.name(), refused));
  if (wrong > 0 || failed)
    log.notes.push_back(fmt::format(
        "{}: {} rows report wrong results: what was measured did not work", input.name(), wrong));
  return log;
}

}  // namespace linerate::trace
