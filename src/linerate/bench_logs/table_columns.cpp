#include "linerate/bench_logs/table_columns.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "linerate/bench_logs/bandwidth_tests.hpp"
#include "linerate/bench_logs/log_words.hpp"
#include "linerate/bench_logs/table_cells.hpp"
#include "linerate/core/collective.hpp"
#include "linerate/core/text.hpp"

namespace linerate::bench_logs {
namespace {

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::optional<double> unit_of_time(std::string_view unit) {
  if (is_one_of(unit, {"s", "sec", "secs", "second", "seconds"})) return 1;
  if (is_one_of(unit, {"ms", "msec", "millisecond", "milliseconds"})) return 1e-3;
  if (is_one_of(unit, {"us", "usec", "microsecond", "microseconds", "\xc2\xb5s", "\xce\xbcs"}))
    return 1e-6;
  if (is_one_of(unit, {"ns", "nsec", "nanosecond", "nanoseconds"})) return 1e-9;
  return std::nullopt;
}

std::optional<double> unit_of_size(std::string_view unit) {
  constexpr std::array<std::pair<std::string_view, double>, 9> kUnits = {
      {{"b", 1},
       {"byte", 1},
       {"bytes", 1},
       {"kb", 1e3},
       {"mb", 1e6},
       {"gb", 1e9},
       {"kib", 1024},
       {"mib", 1024. * 1024},
       {"gib", 1024. * 1048576}}};
  for (const auto& [name, bytes] : kUnits)
    if (unit == name) return bytes;
  return std::nullopt;
}

/// "Avg Latency(us)" -> "avglatency" and "us"; "time_ms" -> "time" and "ms"; "oop-time" ->
/// "ooptime".
struct Title {
  std::string name, unit;

  explicit Title(std::string_view cell) {
    std::string text = lowered(trim(cell));
    std::erase_if(text, [](char c) { return c == '"' || c == '#' || c == '\'' || c == ':'; });
    const std::size_t open = text.find_first_of("([");
    if (open != std::string::npos) {
      unit = text.substr(open + 1, text.find_first_of(")]", open) - open - 1);
      text.erase(open);
    } else if (const std::size_t mark = text.find_last_of("_ ");
               mark != std::string::npos && mark > 0) {
      const std::string last = text.substr(mark + 1);
      if (unit_of_time(last) || unit_of_size(last)) unit = last, text.erase(mark);
    }
    std::erase_if(text, [](char c) { return c == ' ' || c == '_' || c == '-' || c == '.'; });
    name = std::move(text);
    unit = std::string(trim(unit));
  }
};

/// The group that the first or last word names, which is taken off; -1: none.
int group_of(std::string& name) {
  constexpr std::array<std::pair<std::string_view, int>, 7> kGroups = {{{"outofplace", 0},
                                                                        {"outplace", 0},
                                                                        {"oop", 0},
                                                                        {"out", 0},
                                                                        {"inplace", 1},
                                                                        {"ip", 1},
                                                                        {"in", 1}}};
  for (const auto& [word, group] : kGroups) {
    std::string rest;
    if (name.starts_with(word)) rest = name.substr(word.size());
    if (name.ends_with(word)) rest = name.substr(0, name.size() - word.size());
    if (!is_one_of(rest, {"time", "algbw", "busbw", "wrong", "error", "algbandwidth",
                          "busbandwidth", "latency"}))
      continue;
    name = rest;
    return group;
  }
  return -1;
}

class HeaderReader {
 public:
  TableColumns read(const std::vector<std::string>& cells) {
    columns_.cells = cells.size();
    for (std::size_t i = 0; i < cells.size(); ++i) column(Title(cells[i]), static_cast<int>(i));
    if (units_differ_) return {};
    if (extreme_unit_ && extreme_unit_ != columns_.time_unit_s)
      columns_.timings[0].low = columns_.timings[0].high = -1;
    return columns_;
  }

 private:
  static void take(int& column, int i) {
    if (column < 0) column = i;
  }

  void column(Title title, int i) {
    const int group = group_of(title.name);
    ++columns_.named;
    if (is_time(title, i, group) || is_extreme(title, i) || is_bandwidth(title, i, group) ||
        is_size(title, i))
      return;
    const std::string& name = title.name;
    if (is_one_of(name, {"count", "elements", "nelements", "numel", "n"}))
      take(columns_.count, i);
    else if (is_one_of(name, {"type", "dtype", "datatype"}))
      take(columns_.dtype, i);
    else if (is_one_of(name, {"redop", "reduceop", "reduction"}))
      take(columns_.redop, i);
    else if (name == "root")
      take(columns_.root, i);
    else if (is_one_of(name,
                       {"ranks", "nranks", "numranks", "gpus", "ngpus", "numgpus", "worldsize",
                        "nprocs", "np", "processes", "commgroupsize", "groupsize"}))
      take(columns_.ranks, i);
    else if (is_one_of(name, {"nodes", "nnodes", "numnodes"}))
      take(columns_.nodes, i);
    else if (is_one_of(name,
                       {"rankspernode", "nrankspernode", "gpuspernode", "ngpuspernode", "ppn"}))
      take(columns_.ranks_per_node, i);
    else if (is_one_of(name, {"collective", "coll", "name", "operation", "op", "test", "commtype"}))
      take(columns_.collective, i);
    else if (is_one_of(name, {"gpusperrank", "gpusperprocess"}))
      take(columns_.gpus_per_rank, i);
    else if (name == "inplace")
      take(columns_.in_place, i);
    else
      --columns_.named;
  }

  bool is_time(const Title& title, int i, int group) {
    const bool seconds = is_one_of(title.name, {"seconds", "secs", "s", "us", "ms", "ns"});
    if (!seconds &&
        !is_one_of(title.name, {"time",        "latency",        "duration",    "elapsed",
                                "elapsedtime", "avgtime",        "avglatency",  "meantime",
                                "mediantime",  "median",         "mean",        "cputime",
                                "avg",         "average",        "p50",         "averagetime",
                                "avegtime",    "averagelatency", "meanlatency", "medianlatency",
                                "p50latency",  "latencyp50",     "timeavg",     "latencyavg"}))
      return false;
    const std::optional<double> unit = unit_of_time(seconds ? title.name : title.unit);
    if (timed_ && unit != columns_.time_unit_s) units_differ_ = true;
    columns_.time_unit_s = unit, timed_ = true;
    // A second column of times without a prefix is that of in place, as in nccl-tests.
    present_ = group >= 0 ? group : columns_.timings[0].time >= 0 ? 1 : 0;
    take(columns_.timings[present_].time, i);
    return true;
  }

  /// Least and largest repetition, in the unit of the time.
  bool is_extreme(const Title& title, int i) {
    const bool low = is_one_of(title.name, {"min", "mintime", "minlatency", "minlat", "timemin"});
    const bool high = is_one_of(title.name, {"max", "maxtime", "maxlatency", "maxlat", "timemax"});
    if (!low && !high) return false;
    extreme_unit_ = unit_of_time(title.unit);
    take(low ? columns_.timings[0].low : columns_.timings[0].high, i);
    return true;
  }

  bool is_bandwidth(const Title& title, int i, int group) {
    TimingColumns& t = columns_.timings[group >= 0 ? group : present_];
    if (is_one_of(title.name, {"algbw", "algbandwidth"}))
      take(t.algbw, i);
    else if (is_one_of(title.name, {"busbw", "busbandwidth"}))
      take(t.busbw, i);
    else if (is_one_of(title.name, {"wrong", "error", "errors"}))
      take(t.wrong, i);
    else
      return false;
    return true;
  }

  bool is_size(const Title& title, int i) {
    if (!is_one_of(title.name, {"bytes", "size", "nbytes", "msgsize", "messagesize", "buffersize",
                                "datasize", "payload"}))
      return false;
    take(columns_.bytes, i);
    if (columns_.bytes == i && !title.unit.empty()) {
      const auto unit = unit_of_size(title.unit);
      if (!unit) units_differ_ = true;
      columns_.bytes_unit = unit.value_or(1);
    }
    return true;
  }

  TableColumns columns_;
  std::optional<double> extreme_unit_;
  int present_ = 0;  // group of the last time
  bool timed_ = false, units_differ_ = false;
};

}  // namespace

namespace {

TableColumns columns_of_plain_cells(const std::vector<std::string>& cells) {
  const auto whole = [&cells](std::size_t i) {
    const auto number = number_of(cells[i]);
    return number && *number >= 1 && *number == std::floor(*number);
  };
  if (cells.size() < 2 || cells.size() > 4 || !whole(0)) return {};
  const auto seconds = number_of(cells[1]);
  if (!seconds || *seconds <= 0) return {};
  if (cells.size() > 2 && !whole(2)) return {};
  if (cells.size() > 3 && !test_named(cells[3])) return {};
  TableColumns columns;
  columns.cells = cells.size();
  columns.bytes = 0, columns.timings[0].time = 1, columns.time_unit_s = 1;
  if (cells.size() > 2) columns.ranks = 2;
  if (cells.size() > 3) columns.collective = 3;
  return columns;
}

/// By the first separator of the line with which `read` finds columns.
template <typename Read>
TableColumns with_separator(std::string_view line, Read read) {
  for (const char separator : {'|', ',', ';', '\t', '\0'}) {
    if (separator != '\0' && line.find(separator) == std::string_view::npos) continue;
    TableColumns columns = read(cells_of(line, separator));
    columns.separator = separator;
    if (columns.known()) return columns;
  }
  return {};
}

}  // namespace

TableColumns columns_of_header(std::string_view line) {
  return with_separator(line, [](const auto& cells) { return HeaderReader().read(cells); });
}

TableColumns columns_of_plain_row(std::string_view line) {
  return with_separator(line, columns_of_plain_cells);
}

}  // namespace linerate::bench_logs
