// nccl-tests text from 2017 to today. Rows are read by the words of the header above them, never by
// position: the columns differ per era, per test and per build option.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "linerate/core/error.hpp"
#include "linerate/core/statistics.hpp"
#include "linerate/core/text.hpp"
#include "linerate/trace/log_readers.hpp"

namespace linerate::trace {
namespace {

struct Group {
  int time = -1, algbw = -1, busbw = -1, low = -1, high = -1;
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
  bool has_redop = false, has_root = false;
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

struct Found {
  std::vector<Row> rows;
  std::optional<int> ranks;         // "#  Rank  0 ..." lines
  std::optional<Collective> named;  // a command line or a title in the log
  bool is_of_2017 = false;          // the header says "bytes" and "N"
  std::size_t refused = 0;
};

void read_comment(std::string_view line, Found& found, Layout& layout) {
  const std::vector<std::string_view> words = words_of(line);
  const Layout l = layout_of(words);
  if (l.known()) {
    layout = l;
    const auto has = [&](std::string_view word) {
      return std::find(words.begin(), words.end(), word) != words.end();
    };
    found.is_of_2017 = has("bytes") && has("N");
  }
  // "#  Rank  0 Group  0 Pid  1234 on host device  0 [0x07] NAME"; 2017: "#   Rank  0 on host
  // device ..."
  for (std::size_t i = 0; i + 1 < words.size() && i < 2; ++i) {
    if (words[i] != "Rank" && words[i] != "#Rank") continue;
    if (const auto rank = number_of(words[i + 1]); rank && *rank >= 0 && *rank < 1e7)
      found.ranks = std::max(found.ranks.value_or(0), static_cast<int>(*rank) + 1);
  }
}

Found scan(Input& input) {
  Found found;
  Layout layout;
  std::string_view line;
  while (input.next_line(line)) {
    line = without_mpi_tag(line);
    if (!found.named && line.find("_perf") != std::string_view::npos)
      found.named = collective_named_in(line);
    if (line.find('#') != std::string_view::npos) {
      read_comment(line, found, layout);
      continue;
    }
    const std::vector<std::string_view> words = words_of(line);
    if (words.size() < 7 || !number_of(words[0])) continue;
    // A trailing time stamp (-T) makes rows longer than the header; a shorter row was interrupted.
    const bool cut = layout.known() && words.size() < layout.words;
    const bool fits = layout.known() && !cut && words.size() <= layout.words + 2;
    const auto row =
        cut ? std::nullopt : parse_row(words, fits ? layout : layout_by_width(words.size()));
    if (row && row->bytes > 0)
      found.rows.push_back(*row);
    else
      found.refused += !row.has_value();
  }
  return found;
}

bool near(double value, double expected) { return std::abs(value / expected - 1) < 0.25; }

/// Rows are read as microseconds. The tests of 2017 print milliseconds; the bandwidths beside the
/// times tell, and where there are none, the words of that year's header. Returns what to multiply
/// with.
double time_unit(const Found& found, const std::string& name) {
  constexpr double kMilli = 1000;
  std::vector<double> units;
  for (const Row& row : found.rows)
    for (const double unit : row.unit)
      if (unit > 0) units.push_back(unit);
  if (units.empty()) return found.is_of_2017 ? kMilli : 1;
  const double typical = median(units);
  if (near(typical, 1)) return 1;
  if (near(typical, kMilli)) return kMilli;
  throw InputError(
      name, fmt::format("size / time is {:.3g} times the algbw that stands beside it; expected "
                        "sizes in bytes, times in us and bandwidths in GB/s (1e9)",
                        typical));
}

void scale_times(std::vector<Row>& rows, double factor) {
  for (Row& row : rows)
    for (int g = 0; g < 2; ++g)
      row.seconds[g] *= factor, row.low[g] *= factor, row.high[g] *= factor;
}

/// What the log says itself must not be overruled by accident.
void check_collective(const Found& found, Collective asked, const std::string& name) {
  const bool reduces = asked == Collective::all_reduce || asked == Collective::reduce_scatter ||
                       asked == Collective::reduce;
  if (found.named && *found.named != asked)
    throw InputError(name, fmt::format("the log is of {}, --collective says {}; leave it out",
                                       name_of(*found.named), name_of(asked)));
  if (found.rows.back().has_redop && !reduces)
    throw InputError(name, fmt::format("the log's redop column says that it reduces, --collective "
                                       "says {}; leave it out",
                                       name_of(asked)));
}

/// Rank lines may be lost to other output; the bandwidths were computed with the true count. They
/// have two decimals, so they overrule only where the two are far apart.
std::optional<int> ranks_told(const Found& found, Collective collective, CollectiveLog& log) {
  std::optional<int> by_bandwidths;
  if (collective == Collective::all_reduce)
    for (const Row& row : found.rows)  // the last (largest) message has the most digits
      if (const auto n = ranks_of_all_reduce(row.ratio)) by_bandwidths = n;
  if (!found.ranks) return by_bandwidths;
  if (!by_bandwidths || std::abs(*by_bandwidths - *found.ranks) <= 0.1 * *found.ranks)
    return found.ranks;
  log.notes.push_back(
      fmt::format("{}: {} ranks are listed, its bandwidths are those of {}; taken "
                  "as {}",
                  log.source, *found.ranks, *by_bandwidths, *by_bandwidths));
  return by_bandwidths;
}

/// The log rarely names its test: the redop and root columns and busbw/algbw tell most of them
/// apart.
Collective deduce_collective(const Found& found, const CollectiveLogOptions& options,
                             CollectiveLog& log) {
  if (options.collective) {
    check_collective(found, *options.collective, log.source);
    return *options.collective;
  }
  if (found.named) return *found.named;
  const Row& largest = found.rows.back();
  if (largest.has_redop && largest.has_root) return Collective::reduce;
  if (largest.has_redop)
    return largest.ratio > 0 && largest.ratio < 0.99 ? Collective::reduce_scatter
                                                     : Collective::all_reduce;
  if (largest.has_root) return Collective::broadcast;
  if (largest.ratio > 1.005)
    return Collective::all_reduce;  // columns without redop, quoted in prose
  log.notes.push_back(fmt::format(
      "{}: all-gather and all-to-all print the same columns; taken as all-gather", log.source));
  return Collective::all_gather;
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
  Found found = scan(input);
  if (found.refused > 0)
    log.notes.push_back(fmt::format("{}: {} rows could not be read (interrupted by other output?)",
                                    input.name(), found.refused));
  if (found.rows.empty()) return log;
  const Collective collective = deduce_collective(found, options, log);
  scale_times(found.rows, time_unit(found, input.name()));
  std::optional<int> told = ranks_told(found, collective, log);
  if (!told && collective != Collective::all_reduce && found.rows.back().count.value_or(0) > 0) {
    const Row& row = found.rows.back();  // count is per rank where size is the total array
    const double n = row.bytes / (*row.count * static_cast<double>(size_of(row.dtype)));
    if (n >= 2 && n < 1e6 && n == std::floor(n)) told = static_cast<int>(n);
  }
  const int ranks = settle_ranks(input.name(), told, options.ranks);
  for (const Row& row : found.rows)
    for (int g = 0; g < 2; ++g)
      if (row.seconds[g] > 0)
        log.rows.push_back({.collective = collective,
                            .ranks = ranks,
                            .dtype = row.dtype,
                            .in_place = g == 1,
                            .bytes = static_cast<std::int64_t>(row.bytes),
                            .seconds = row.seconds[g],
                            .low_s = row.low[g],
                            .high_s = row.high[g]});
  if (ranks == 0)
    log.notes.push_back(
        fmt::format("{}: neither rank lines nor bandwidths say how many ranks ran; give --ranks",
                    input.name()));
  return log;
}

}  // namespace linerate::trace
