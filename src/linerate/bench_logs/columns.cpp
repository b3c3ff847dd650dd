// What is in a column follows from the words of its title, in any order and case. "Avg Latency(us)"
// is the name "avglatency" with the unit "us", and a name has one meaning in the tables below.
// Words that say out of place or in place are taken off first. So "oop_time" is the time of group
// 0, and "ip_busbw" is the bus bandwidth of group 1.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <ranges>
#include <regex>

#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/core/text.hpp"

namespace linerate::bench_logs {
namespace {

struct Unit {
  std::string_view names;
  double value;
};
constexpr Unit kTimeUnits[] = {{"s sec secs second seconds", 1},
                               {"ms msec millisecond milliseconds", 1e-3},
                               {"us usec microsecond microseconds \xc2\xb5s \xce\xbcs", 1e-6},
                               {"ns nsec nanosecond nanoseconds", 1e-9}};
constexpr Unit kSizeUnits[] = {{"b byte bytes", 1}, {"kb", 1e3},   {"mb", 1e6},
                               {"gb", 1e9},         {"kib", 1024}, {"mib", 1048576},
                               {"gib", 1073741824}};

std::optional<double> unit_in(std::span<const Unit> units, std::string_view name) {
  for (const auto& [names, unit] : units)
    if (is_among(name, names)) return unit;
  return std::nullopt;
}

/// "Avg Latency(us)" -> "avglatency" and "us"; "time_ms" -> "time" and "ms"; "oop-time" ->
/// "ooptime".
struct Title {
  std::string name, unit;

  explicit Title(std::string_view cell) {
    name = lowered(trim(cell));
    std::erase_if(name, [](char c) { return c == '"' || c == '#' || c == '\'' || c == ':'; });
    const std::size_t open = name.find_first_of("(["), mark = name.find_last_of("_ ");
    if (open != std::string::npos) {
      unit = trim(name.substr(open + 1, name.find_first_of(")]", open) - open - 1));
      name.erase(open);
    } else if (mark != std::string::npos && mark > 0) {
      const std::string last = name.substr(mark + 1);
      if (unit_in(kTimeUnits, last) || unit_in(kSizeUnits, last)) unit = last, name.erase(mark);
    }
    std::erase_if(name, [](char c) { return c == ' ' || c == '_' || c == '-' || c == '.'; });
  }
};

/// The group that the first or last word names, which is taken off; -1: none.
int group_of(std::string& name) {
  constexpr std::array<std::string_view, 7> kWords = {"outofplace", "outplace", "oop", "out",
                                                      "inplace",    "ip",       "in"};
  for (const std::string_view word : kWords) {
    std::string rest;
    if (name.starts_with(word)) rest = name.substr(word.size());
    if (name.ends_with(word)) rest = name.substr(0, name.size() - word.size());
    if (!is_among(rest,
                  "time cputime algbw busbw wrong nwrong error algbandwidth busbandwidth latency "
                  "peritermin peritermax"))
      continue;
    name = rest;
    return word.starts_with('i') ? 1 : 0;
  }
  return -1;
}

/// What columns hold, by their names; the first of these is what the code calls it.
constexpr std::array<std::string_view, 17> kMeanings = {
    "bytes size nbytes msgsize messagesize buffersize datasize payload",
    "count elements nelements numel n", "dtype type datatype", "redop reduceop reduction", "root",
    "ranks nranks numranks gpus ngpus numgpus worldsize nprocs np processes commgroupsize "
    "groupsize",
    "nodes nnodes numnodes", "rankspernode nrankspernode gpuspernode ngpuspernode ppn",
    "collective coll name operation op test commtype", "gpusperrank gpusperprocess", "inplace",
    "time latency duration elapsed elapsedtime avgtime avglatency meantime mediantime median mean "
    "cputime avg average p50 averagetime avegtime averagelatency meanlatency medianlatency "
    "p50latency latencyp50 timeavg latencyavg seconds secs s us ms ns",
    // Least and largest repetition, in the unit of the time.
    "min mintime minlatency minlat timemin imin peritermin",
    "max maxtime maxlatency maxlat timemax imax peritermax", "algbw algbandwidth algobw",
    "busbw busbandwidth nwbw", "wrong nwrong error errors res"};
/// Those that are there once for each group of times.
constexpr std::string_view kOfGroups = "time min max algbw busbw wrong";

/// Without titles only the order of kPlainTitles is known. Each cell must be possible for its
/// place, so that two numbers in a text are rarely taken for a row.
Columns columns_of_plain_cells(const Cells& cells) {
  if (cells.size() < 2 || cells.size() > kPlainTitles.size()) return {};
  const Columns columns = columns_of_titles(std::span(kPlainTitles).first(cells.size()));
  const bool possible = std::ranges::all_of(columns.places, [&cells](const auto& place) {
    const std::string_view column = place.first.first;
    const std::string& cell = cells[place.second];
    const double number = number_of(cell).value_or(0);
    return column == "time"         ? number > 0
           : column == "collective" ? test_named(cell) != nullptr
           : column == "dtype"      ? dtype_of_log(cell).has_value()
                                    : number >= 1 && number == std::floor(number);
  });
  return possible ? columns : Columns{};
}

/// With the first separator by which `read` finds columns.
template <typename Read>
Columns with_separator(std::string_view line, const Read& read) {
  for (const char separator : {'|', ',', ';', '\t', '\0'}) {
    if (separator != '\0' && line.find(separator) == std::string_view::npos) continue;
    Columns columns = read(cells_of(line, separator));
    columns.separator = separator;
    if (columns.known()) return columns;
  }
  return {};
}

}  // namespace

/// A separator counts outside of quotes and parentheses: `"a,b"` and `time (us, mean)` are one
/// cell. Between blanks, a word in parentheses belongs to the word before it.
Cells cells_of(std::string_view line, char separator) {
  line = trim(line);
  Cells cells;
  if (separator == '\0') {
    for (const std::string_view word : words_of(line))
      if (word.starts_with('(') && !cells.empty())
        cells.back() += word;  // "Size (B)"
      else
        cells.emplace_back(word);
    for (std::string& cell : cells) std::erase(cell, '"');
    return cells;
  }
  if (separator == '|' && line.starts_with('|')) line.remove_prefix(1);
  if (separator == '|' && line.ends_with('|')) line.remove_suffix(1);
  std::string cell;
  bool quoted = false;
  int depth = 0;
  for (const char c : line) {
    if (c == '"') quoted = !quoted;
    if (!quoted) depth += (c == '(') - (c == ')');
    if (c == separator && !quoted && depth <= 0) {
      cells.emplace_back(trim(cell));
      cell.clear();
    } else if (c != '"') {
      cell += c;
    }
  }
  cells.emplace_back(trim(cell));
  return cells;
}

const std::string& Columns::cell(const Cells& line, std::string_view column, int group) const {
  static const std::string kNone;
  const auto place = places.find({column, group});
  return place == places.end() ? kNone : line[place->second];
}

/// Titles are read from left to right. A bandwidth without a prefix belongs to the time before it,
/// as in nccl-tests: "time algbw busbw time algbw busbw" are two groups. Nothing is found if two
/// columns of times have different units.
Columns columns_of_titles(std::span<const std::string> titles) {
  Columns columns;
  columns.cells = titles.size();
  std::optional<double> extreme_unit;
  int present = 0;  // group of the last time
  for (std::size_t i = 0; i < titles.size(); ++i) {
    Title title(titles[i]);
    const int group = group_of(title.name);
    const auto names = std::ranges::find_if(
        kMeanings, [&title](std::string_view n) { return is_among(title.name, n); });
    if (names == kMeanings.end()) continue;
    const std::string_view column = names->substr(0, names->find(' '));
    // "seconds" and "us" are names of times, too.
    const auto named_s = unit_in(kTimeUnits, title.name),
               unit_s = named_s ? named_s : unit_in(kTimeUnits, title.unit);
    ++columns.named;
    if (column == "bytes" && !columns.has("bytes") && !title.unit.empty()) {
      const auto unit = unit_in(kSizeUnits, title.unit);
      if (!unit) return {};
      columns.bytes_unit = *unit;
    }
    if (column == "time") {
      if (columns.has("time") && unit_s != columns.time_unit_s) return {};
      columns.time_unit_s = unit_s;
      // A second column of times without a prefix is in place, as in nccl-tests.
      present = group >= 0 ? group : columns.has("time", 0) ? 1 : 0;
    }
    if (column == "min" || column == "max") extreme_unit = unit_s;
    const int of_group = group >= 0 ? group : present;
    // The first of its kind counts.
    columns.places.try_emplace({column, is_among(column, kOfGroups) ? of_group : 0}, i);
  }
  if (extreme_unit && columns.time_unit_s && extreme_unit != columns.time_unit_s)
    std::erase_if(columns.places, [](const auto& place) {
      return place.first.first == "min" || place.first.first == "max";
    });
  return columns;
}

Columns columns_of_header(std::string_view line) { return with_separator(line, columns_of_titles); }

bool take_units(std::string_view line, Columns& columns) {
  const auto words = words_of(line);
  const bool is_of_units = !words.empty() && std::ranges::all_of(words, [](std::string_view word) {
    return word.starts_with('(') && word.ends_with(')');
  });
  if (!is_of_units) return false;
  for (const std::string_view word : words) {
    const std::string unit = Title(word).unit;
    // The header's own units stand.
    if (columns.bytes_unit == 1) columns.bytes_unit = unit_in(kSizeUnits, unit).value_or(1);
    if (!columns.time_unit_s) columns.time_unit_s = unit_in(kTimeUnits, unit);
  }
  return true;
}

Columns columns_of_plain_row(std::string_view line) {
  return with_separator(line, columns_of_plain_cells);
}

// A printed decimal stands for all numbers that round to it. Arithmetic on such intervals tells
// whether two printed numbers can belong together, and an equality of doubles would not. "12.50" is
// 12.495 to 12.505, and its quotient by "5.0" (4.95 to 5.05) is 2.474 to 2.526.

Interval Interval::over(const Interval& divisor) const {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  return {divisor.high < kNone && divisor.high > 0 ? low / divisor.high : 0,
          divisor.low > 0 ? high / divisor.low : kNone};
}

/// The last digit that counts is the 0 after the point of "12.50", the 2 of "1.2e+02". Zeros at the
/// end of a whole number may stand for digits that were cut: "101000" is 100500 to 101500.
std::optional<Interval> rounded_to(std::string_view word) {
  const auto value = number_of(word);
  if (!value) return std::nullopt;
  const std::size_t end = std::min(word.find_first_of("eE"), word.size());
  const std::size_t point = std::min(word.find('.'), end);
  std::size_t last = word.find_last_of(point < end ? "0123456789" : "123456789", end - 1);
  if (last == word.npos) last = end - 1;  // "0"
  const double place = static_cast<double>(point) - static_cast<double>(last) - (last < point);
  const double unit = number_of(fmt::format("1{}", word.substr(end))).value_or(0);
  // A decimal on the very border of its interval is not lost to binary rounding.
  constexpr double kBinaryRounding = 1e-12;
  const double slack = 0.5 * unit * std::pow(10.0, place) + kBinaryRounding * std::abs(*value);
  return Interval{std::max(0.0, *value - slack), std::max(0.0, *value + slack)};
}

// Cells become numbers here, for all formats of nccl-tests. A number keeps the interval of what it
// may have been before it was rounded (log_readers.hpp), because the judge compares intervals.

namespace {

constexpr double kLargestBytes = 1e15;
constexpr std::size_t kLongestNumber = 64;  // characters

/// The cell as number_of() reads it, with groups of three digits joined: "1,048,576" and "32_768".
/// `whole`: the number has no decimals. Otherwise "1,234.50" is read, and "4,120" is not, because
/// its comma may be a decimal point. Empty: no such number.
std::string plain_digits(const std::string& cell, bool whole) {
  if (cell.find_first_of(",_") == std::string::npos) return cell;
  static const std::regex groups(R"([1-9]\d{0,2}([,_])\d{3}((?:\1\d{3})*)(\..*)?)");
  std::smatch found;
  if (cell.size() > kLongestNumber || !std::regex_match(cell, found, groups)) return {};
  const bool certain = whole || found[1] == "_" || found.length(2) > 0 || found.length(3) > 0;
  return certain ? replaced(cell, found.str(1), "") : std::string();
}

std::optional<double> whole_number(const std::string& cell) {
  return number_of(plain_digits(cell, true));
}

/// Nothing if there is no time.
void add_timing(const Cells& cells, const Columns& columns, int group, BandwidthRow& row) {
  const auto digits_of = [&](std::string_view column) {
    return plain_digits(columns.cell(cells, column, group), false);
  };
  const auto positive = [&](std::string_view column) {
    return std::max(0.0, number_of(digits_of(column)).value_or(0));
  };
  if (positive("time") <= 0) return;
  const auto wrong = number_of(columns.cell(cells, "wrong", group));
  row.timings.push_back({.in_place = group == 1,
                         .bytes = row.bytes,
                         .time = positive("time"),
                         .time_range = *rounded_to(digits_of("time")),
                         .algbw = rounded_to(columns.cell(cells, "algbw", group)),
                         .busbw = rounded_to(columns.cell(cells, "busbw", group)),
                         .low = positive("min"),
                         .high = positive("max"),
                         // an "error" below 1 is a difference by rounding, not a count
                         .wrong = std::floor(wrong.value_or(0))});
  if (columns.has("wrong", group)) row.timings.back().checked = wrong.has_value();
}

}  // namespace

std::string unread(const Cells& cells, const Columns& columns, BandwidthRow& row) {
  const std::string &type = columns.cell(cells, "dtype"), &bytes = columns.cell(cells, "bytes"),
                    &time = columns.cell(cells, "time", columns.has("time", 0) ? 0 : 1);
  const auto dtype = dtype_of_log(type);
  if (!dtype && !type.empty()) return fmt::format("expected an element type, found \"{}\"", type);
  const double size =
      columns.has("bytes") ? whole_number(bytes).value_or(-1) * columns.bytes_unit : 0;
  if (size < 0 || size > kLargestBytes || (columns.has("dtype") && !dtype))
    return fmt::format("expected a size, found \"{}\"", bytes);
  row.dtype = dtype;
  if (dtype) row.count = whole_number(columns.cell(cells, "count"));
  row.bytes = size;
  if (const std::string redop = lowered(columns.cell(cells, "redop")); !redop.empty())
    row.none = redop == "none", row.reduces = !row.none && redop != "-1";
  if (const auto root = number_of(columns.cell(cells, "root"))) row.rooted = *root >= 0;
  for (const int group : {0, 1}) add_timing(cells, columns, group, row);
  constexpr double kDay = 86400;
  const bool too_long = std::ranges::any_of(row.timings, [&](const Timing& t) {
    return t.time * columns.time_unit_s.value_or(1e-6) >= kDay;
  });
  if (!row.timings.empty() && !too_long) return "";
  return fmt::format("expected a time above 0, found \"{}\"", time);
}

namespace {

constexpr std::array kTests = {
    BandwidthTest{"all_reduce", Collective::all_reduce, true, false, false, BusFactor::twice},
    BandwidthTest{"reduce_scatter", Collective::reduce_scatter, true, false, true, BusFactor::once},
    BandwidthTest{"all_gather", Collective::all_gather, false, false, true, BusFactor::once},
    BandwidthTest{"alltoall", Collective::all_to_all, false, false, true, BusFactor::once, false},
    BandwidthTest{"broadcast", Collective::broadcast, false, true, false, BusFactor::one},
    BandwidthTest{"reduce", Collective::reduce, true, true, false, BusFactor::one},
    // Prints the operation that all-reduce would have, which it does not use.
    BandwidthTest{"sendrecv", std::nullopt, std::nullopt, false, false, BusFactor::one, false},
    BandwidthTest{"gather", std::nullopt, false, true, true, BusFactor::once},
    BandwidthTest{"scatter", std::nullopt, false, true, true, BusFactor::once},
    BandwidthTest{"hypercube", std::nullopt, false, false, true, BusFactor::once, true, false},
    BandwidthTest{"alltoallv", std::nullopt, false, false, true, BusFactor::once, false, false},
    BandwidthTest{"barrier", Collective::barrier, false, false, false, BusFactor::one, true, false},
};

/// By its plain_word().
const BandwidthTest* test_called(std::string_view key) {
  const auto test =
      std::ranges::find(kTests, key, [](const BandwidthTest& t) { return plain_word(t.name); });
  return test == kTests.end() ? nullptr : test;
}

}  // namespace

std::span<const BandwidthTest> bandwidth_tests() { return kTests; }

const BandwidthTest* test_named(std::string_view text) {
  const std::string key = plain_word(text);
  if (const BandwidthTest* test = test_called(key)) return test;
  if (const BandwidthTest* test = test_in(text)) return test;
  // Reduce is part of other names, and gather and scatter are, too.
  for (const std::string_view name :
       {"reducescatter", "allreduce", "allgather", "alltoall", "broadcast", "bcast"})
    if (contains(key, name)) return test_called(name == "bcast" ? "broadcast" : name);
  return nullptr;
}

const BandwidthTest* test_of(Collective collective) {
  return std::ranges::find(kTests, std::optional(collective), &BandwidthTest::collective);
}

const BandwidthTest* test_in(std::string_view text) {
  constexpr std::string_view kLetters = "_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const BandwidthTest* found = nullptr;
  for (std::size_t at = text.find("_perf"); at != text.npos; at = text.find("_perf", at + 1)) {
    const std::string_view before = text.substr(0, at);
    const std::string_view name = before.substr(before.find_last_not_of(kLetters) + 1);
    if (const BandwidthTest* test = test_called(plain_word(name))) found = test;
  }
  return found;
}

}  // namespace linerate::bench_logs
