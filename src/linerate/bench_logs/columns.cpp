// What is in a column follows from the words of its title, in any order and case. "Avg Latency(us)"
// is the name "avglatency" with the unit "us", and a name has one meaning in the tables below.
// Words that say out of place or in place are taken off first. So "oop_time" is the time of group
// 0, and "ip_busbw" is the bus bandwidth of group 1.
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "linerate/bench_logs/log_readers.hpp"
#include "linerate/core/index.hpp"
#include "linerate/core/text.hpp"

namespace linerate::bench_logs {
namespace {

struct Unit {
  std::string_view names;
  double value;
};
constexpr std::array kTimeUnits = {
    Unit{"s sec secs second seconds", 1}, Unit{"ms msec millisecond milliseconds", 1e-3},
    Unit{"us usec microsecond microseconds \xc2\xb5s \xce\xbcs", 1e-6},
    Unit{"ns nsec nanosecond nanoseconds", 1e-9}};
constexpr std::array kSizeUnits = {Unit{"b byte bytes", 1},
                                   Unit{"kb", 1e3},
                                   Unit{"mb", 1e6},
                                   Unit{"gb", 1e9},
                                   Unit{"kib", 1024},
                                   Unit{"mib", 1024. * 1024},
                                   Unit{"gib", 1024. * 1048576}};

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

template <typename Owner>
struct Meaning {
  int Owner::*column;
  std::string_view names;
};

using Column = Meaning<Columns>;
using TimingColumn = Meaning<TimingColumns>;
constexpr std::array kMeanings = {
    Column{&Columns::bytes, "bytes size nbytes msgsize messagesize buffersize datasize payload"},
    Column{&Columns::count, "count elements nelements numel n"},
    Column{&Columns::dtype, "type dtype datatype"},
    Column{&Columns::redop, "redop reduceop reduction"},
    Column{&Columns::root, "root"},
    Column{&Columns::ranks,
           "ranks nranks numranks gpus ngpus numgpus worldsize nprocs np processes "
           "commgroupsize groupsize"},
    Column{&Columns::nodes, "nodes nnodes numnodes"},
    Column{&Columns::ranks_per_node, "rankspernode nrankspernode gpuspernode ngpuspernode ppn"},
    Column{&Columns::collective, "collective coll name operation op test commtype"},
    Column{&Columns::gpus_per_rank, "gpusperrank gpusperprocess"},
    Column{&Columns::in_place, "inplace"}};

constexpr std::string_view kSecondsNames = "seconds secs s us ms ns";
constexpr std::array kTimingMeanings = {
    TimingColumn{
        &TimingColumns::time,
        "time latency duration elapsed elapsedtime avgtime avglatency meantime mediantime median "
        "mean cputime avg average p50 averagetime avegtime averagelatency meanlatency "
        "medianlatency p50latency latencyp50 timeavg latencyavg seconds secs s us ms ns"},
    // Least and largest repetition, in the unit of the time.
    TimingColumn{&TimingColumns::low, "min mintime minlatency minlat timemin imin peritermin"},
    TimingColumn{&TimingColumns::high, "max maxtime maxlatency maxlat timemax imax peritermax"},
    TimingColumn{&TimingColumns::algbw, "algbw algbandwidth algobw"},
    TimingColumn{&TimingColumns::busbw, "busbw busbandwidth nwbw"},
    TimingColumn{&TimingColumns::wrong, "wrong nwrong error errors res"}};

template <typename Owner, std::size_t n>
int Owner::*meaning_in(const std::array<Meaning<Owner>, n>& meanings, std::string_view name) {
  for (const Meaning<Owner>& m : meanings)
    if (is_among(name, m.names)) return m.column;
  return nullptr;
}

/// Reads the titles of a header from left to right. A bandwidth without a prefix belongs to the
/// time before it, as in nccl-tests: "time algbw busbw time algbw busbw" are two groups. Nothing is
/// found if two columns of times have different units.
class HeaderReader {
 public:
  Columns read(const Cells& titles) {
    columns_.cells = titles.size();
    for (std::size_t i = 0; i < titles.size(); ++i) column(Title(titles[i]), static_cast<int>(i));
    if (units_differ_) return {};
    if (extreme_unit_ && columns_.time_unit_s && extreme_unit_ != columns_.time_unit_s)
      for (TimingColumns& t : columns_.timings) t.low = t.high = -1;
    return columns_;
  }

 private:
  /// The first of its kind counts.
  static void take(int& column, int i) {
    if (column < 0) column = i;
  }

  void column(Title title, int i) {
    const int group = group_of(title.name);
    const auto timed = meaning_in(kTimingMeanings, title.name);
    const auto other = meaning_in(kMeanings, title.name);
    columns_.named += timed || other;
    if (timed) return timing(title, timed, i, group);
    if (other == &Columns::bytes && columns_.bytes < 0 && !title.unit.empty()) {
      const auto unit = unit_in(kSizeUnits, title.unit);
      units_differ_ = units_differ_ || !unit;
      columns_.bytes_unit = unit.value_or(1);
    }
    if (other) take(columns_.*other, i);
  }

  void timing(const Title& title, int TimingColumns::*member, int i, int group) {
    if (member == &TimingColumns::time) {
      const auto unit =
          unit_in(kTimeUnits, is_among(title.name, kSecondsNames) ? title.name : title.unit);
      units_differ_ = units_differ_ || (timed_ && unit != columns_.time_unit_s);
      columns_.time_unit_s = unit, timed_ = true;
      // A second column of times without a prefix is in place, as in nccl-tests.
      present_ = group >= 0 ? group : columns_.timings[0].time >= 0 ? 1 : 0;
    }
    if (member == &TimingColumns::low || member == &TimingColumns::high)
      extreme_unit_ = unit_in(kTimeUnits, title.unit);
    take(columns_.timings[group >= 0 ? group : present_].*member, i);
  }

  Columns columns_;
  std::optional<double> extreme_unit_;
  int present_ = 0;  // group of the last time
  bool timed_ = false, units_differ_ = false;
};

/// Without titles only this order is known: bytes, seconds, ranks, collective, type. Each cell must
/// be possible for its place, so that two numbers in a text are rarely taken for a row.
Columns columns_of_plain_cells(const Cells& cells) {
  const auto whole = [&cells](std::size_t i) {
    const auto number = number_of(cells[i]);
    return number && *number >= 1 && *number == std::floor(*number);
  };
  if (cells.size() < 2 || cells.size() > 5 || !whole(0)) return {};
  if (number_of(cells[1]).value_or(0) <= 0) return {};
  if (cells.size() > 2 && !whole(2)) return {};
  if (cells.size() > 3 && !test_named(cells[3])) return {};
  if (cells.size() > 4 && !dtype_of_log(cells[4])) return {};
  Columns columns;
  columns.cells = cells.size();
  columns.bytes = 0, columns.timings[0].time = 1, columns.time_unit_s = 1;
  if (cells.size() > 2) columns.ranks = 2;
  if (cells.size() > 3) columns.collective = 3;
  if (cells.size() > 4) columns.dtype = 4;
  return columns;
}

/// With the first separator by which `read` finds columns.
Columns with_separator(std::string_view line, Columns (*read)(const Cells&)) {
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

const std::string& cell_at(const Cells& cells, int column) {
  static const std::string kNone;
  return column >= 0 ? cells[to_index(column)] : kNone;
}

std::optional<double> number_at(const Cells& cells, int column) {
  return number_of(cell_at(cells, column));
}

Columns columns_of_titles(const Cells& titles) { return HeaderReader().read(titles); }

Columns columns_of_header(std::string_view line) { return with_separator(line, columns_of_titles); }

Columns columns_of_plain_row(std::string_view line) {
  return with_separator(line, columns_of_plain_cells);
}

// A printed decimal stands for all numbers that round to it. Arithmetic on such intervals tells
// whether two printed numbers can belong together, and an equality of doubles would not. "12.50" is
// 12.495 to 12.505, and its quotient by "5.0" (4.95 to 5.05) is 2.474 to 2.526.

namespace {

// A decimal on the very border of its interval is not lost to binary rounding.
constexpr double kBinaryRounding = 1e-12;

/// Half a unit of the last digit that counts: 0.005 of "12.50", 5 of "1.2e+02". Zeros at the end of
/// a whole number may stand for digits that were cut: 500 of "101000".
double half_unit(std::string word) {
  constexpr std::string_view kDigits = "0123456789";
  const std::size_t end = std::min(word.find_first_of("eE"), word.size());
  const bool whole = word.find('.') >= end;
  std::size_t last = word.find_last_of(whole ? kDigits.substr(1) : kDigits, end - 1);
  if (last == std::string::npos) last = end - 1;  // "0"
  std::replace_if(
      word.begin(), word.begin() + static_cast<std::ptrdiff_t>(end),
      [](char c) { return c >= '0' && c <= '9'; }, '0');
  word[last] = '1';
  return 0.5 * std::abs(number_of(word).value_or(0));
}

}  // namespace

Interval Interval::over(const Interval& divisor) const {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  return {divisor.high < kNone && divisor.high > 0 ? low / divisor.high : 0,
          divisor.low > 0 ? high / divisor.low : kNone};
}

std::optional<Printed> printed_number(std::string_view word) {
  const auto value = number_of(word);
  if (!value) return std::nullopt;
  const double slack = half_unit(std::string(word)) + kBinaryRounding * std::abs(*value);
  return Printed{*value, {std::max(0.0, *value - slack), std::max(0.0, *value + slack)}};
}

// Cells become numbers here, for all formats of nccl-tests. A number keeps the interval of what it
// may have been before it was rounded (log_readers.hpp), because the judge compares intervals.

namespace {

constexpr double kLargestBytes = 1e15;

/// The cell as number_of() reads it, with groups of three digits joined: "1,048,576" and "32_768".
/// `whole`: the number has no decimals. Otherwise "1,234.50" is read, and "4,120" is not, because
/// its comma may be a decimal point. Empty: no such number.
std::string plain_digits(const std::string& cell, bool whole) {
  const std::size_t first = cell.find_first_of(",_"), point = cell.find('.');
  if (first == std::string::npos) return cell;
  const char mark = cell[first];
  const std::string before = cell.substr(0, point), digits = replaced(before, {&mark, 1}, "");
  std::string grouped = digits;
  for (std::size_t i = digits.size(); i > 3; i -= 3) grouped.insert(i - 3, 1, mark);
  const bool certain =
      whole || mark == '_' || point != std::string::npos || before.rfind(mark) > first;
  if (!certain || grouped != before || first > point || digits[0] == '0' ||
      digits.find_first_not_of("0123456789") != std::string::npos)
    return {};
  return replaced(cell, {&mark, 1}, "");
}

std::optional<double> whole_number(const Cells& cells, int column) {
  return number_of(plain_digits(cell_at(cells, column), true));
}

double seconds_or_none(const Cells& cells, int column) {
  return std::max(0.0, number_of(plain_digits(cell_at(cells, column), false)).value_or(0));
}

std::optional<Interval> range_at(const Cells& cells, int column) {
  const auto printed = printed_number(cell_at(cells, column));
  return printed ? std::optional(printed->range) : std::nullopt;
}

Timing timing_of(const Cells& cells, const TimingColumns& columns) {
  Timing t;
  const auto time = printed_number(plain_digits(cell_at(cells, columns.time), false));
  if (!time || time->value <= 0) return t;
  t.time = time->value, t.time_range = time->range;
  t.algbw = range_at(cells, columns.algbw), t.busbw = range_at(cells, columns.busbw);
  t.low = seconds_or_none(cells, columns.low), t.high = seconds_or_none(cells, columns.high);
  const auto wrong = number_at(cells, columns.wrong);
  if (columns.wrong >= 0) t.checked = wrong.has_value();
  t.wrong = wrong.value_or(0);
  return t;
}

}  // namespace

std::optional<BandwidthRow> row_of(const Cells& cells, const Columns& columns) {
  BandwidthRow row;
  const auto size = whole_number(cells, columns.bytes);
  if (!size || *size < 0 || *size * columns.bytes_unit > kLargestBytes) return std::nullopt;
  row.bytes = *size * columns.bytes_unit;
  if (columns.dtype >= 0) {
    const auto type = dtype_of_log(cell_at(cells, columns.dtype));
    if (!type) return std::nullopt;
    row.dtype = *type;
    row.count = whole_number(cells, columns.count);
  }
  if (const std::string redop = lowered(cell_at(cells, columns.redop)); !redop.empty())
    row.none = redop == "none", row.reduces = !row.none && redop != "-1";
  if (const auto root = number_at(cells, columns.root)) row.rooted = *root >= 0;
  for (int g = 0; g < 2; ++g) row.timings[g] = timing_of(cells, columns.timings[g]);
  return row;
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

}  // namespace

std::span<const BandwidthTest> bandwidth_tests() { return kTests; }

const BandwidthTest* test_named(std::string_view text) {
  const std::string key = plain_word(text);
  for (const BandwidthTest& test : kTests)
    if (key == plain_word(test.name)) return &test;
  if (const BandwidthTest* test = test_in(text)) return test;
  // Reduce is part of other names, and gather and scatter are, too.
  for (const std::string_view name :
       {"reducescatter", "allreduce", "allgather", "alltoall", "broadcast", "bcast"})
    if (key.find(name) != std::string::npos)
      return name == "bcast" ? test_of(Collective::broadcast) : test_named(name);
  return nullptr;
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
    const std::string key = plain_word(text.substr(first, at - first));
    for (const BandwidthTest& test : kTests)
      if (key == plain_word(test.name)) found = &test;
  }
  return found;
}

}  // namespace linerate::bench_logs
